#pragma once

/// Includes the whole library shardwise::shardwise: <shardwise/shardwise.h> and the advanced
/// headers.
///
/// - indexes: SQL queries, verifying, moving, exporting;
/// - shards: writing and repacking them, custom fetchers, predicting the fetches of a run;
/// - orders: more samplers, finding when a sample is delivered, proofs of epochs.
///
///     for (Query query(data.shared_index(), "SELECT sample, key FROM samples WHERE bytes > 1e6");
///          query.next();) { ... }
///     auto order = make_sampler(data, {.seed = 17, .kind = Sharded{}}, {.world_size = 8});
///     EpochAudit audit(data.fingerprint());         // add() each delivered sample, then prove()
///     ShardPrefetcher prefetcher(data, *order);     // fetches shards before they are read

#include "shardwise/base/cancel.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/progress.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/data/repack.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/index/query.h"
#include "shardwise/index/side_table.h"
#include "shardwise/ingest/attach.h"
#include "shardwise/ingest/index_cache.h"
#include "shardwise/ingest/index_export.h"
#include "shardwise/ingest/relocate.h"
#include "shardwise/ingest/remote_access.h"
#include "shardwise/ingest/source_list.h"
#include "shardwise/ingest/verify.h"
#include "shardwise/ingest/wids_descriptor.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/explain.h"
#include "shardwise/order/sample_key.h"
#include "shardwise/order/skip_list.h"
#include "shardwise/shardwise.h"
#include "shardwise/storage/fetcher.h"
#include "shardwise/tar/shard_writer.h"
