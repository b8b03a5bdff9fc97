#pragma once

/// Everything in shardwise::shardwise: indexing, reading, ordering and loading. For tensors and
/// training include <shardwise/libtorch.h> too.

#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/loader.h"
#include "shardwise/data/sample.h"
#include "shardwise/index/index.h"
#include "shardwise/index/index_builder.h"
#include "shardwise/index/index_export.h"
#include "shardwise/index/source_list.h"
#include "shardwise/index/wids_descriptor.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/sampler.h"
