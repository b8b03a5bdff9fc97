#pragma once

/// Everything in shardwise::libtorch: decoders to tensors, adapters for torch::data, process
/// groups, the image loader, and exact evaluation and gradient averaging over ranks. The target
/// shardwise::libtorch brings LibTorch and shardwise::shardwise along.

#include "shardwise/libtorch/data_loader.h"
#include "shardwise/libtorch/data_parallel.h"
#include "shardwise/libtorch/decode.h"
#include "shardwise/libtorch/evaluate.h"
#include "shardwise/libtorch/image_loader.h"
#include "shardwise/libtorch/local_ranks.h"
#include "shardwise/libtorch/process_group.h"
#include "shardwise/shardwise.h"
