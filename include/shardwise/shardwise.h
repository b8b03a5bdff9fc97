#pragma once

/// The basic headers: build an index, read its samples in place by number and by key, and
/// distribute them over ranks in exact epochs.
///
///     build_index("train.idx", {"train-000000.tar", "train-000001.tar"});
///     auto data = Dataset::open("train.idx");
///     Sample sample = data[42];                     // or data.get("n01440764/10026")
///     std::string_view jpg = sample["jpg"];         // in the mapped shard; valid while sample is
///     std::int64_t label = sample.integer("cls");
///
///     DistributedChunkedSampler order(data, {.seed = 17}, {.rank = 0, .world_size = 8});
///     order.set_epoch(3);
///     for (std::uint64_t i : order) use(data[i]);
///     save(order.token().to_text());                // later: order.resume(...)
///
/// <shardwise/advanced.h> includes the other headers. For tensors and training, see
/// <shardwise/libtorch.h>.

#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/sample.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/order/order.h"
#include "shardwise/order/resume.h"
#include "shardwise/order/sampler.h"
#include "shardwise/storage/shard_cache.h"
