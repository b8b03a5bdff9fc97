#pragma once

/// The loader, day one: batches of any columns in plain memory. Threads make them, in exact epochs
/// over the ranks of a run, and each epoch is proven.
///
///     using namespace shardwise;
///     Loader loader(Dataset::open("train.idx"),
///                   {.columns = {columns::image("jpg;png", {.random_resized_crop = {{{224, 224}}},
///                                                           .horizontal_flip = 0.5}),
///                                columns::text("txt"), columns::integer("cls")},
///                    .order = {.seed = 17}, .batch_size = 64, .threads = 4});
///     for (auto epoch : loader.epochs(90)) {
///       for (const Batch& batch : epoch) step(batch["jpg"].values<std::uint8_t>(), ...);
///       epoch.prove();
///     }
///
/// The target shardwise::loader also links the image codecs and shardwise::shardwise. For tensors
/// over the same memory, see <shardwise/libtorch/advanced.h>.

#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/epochs.h"
#include "shardwise/loader/image_transform.h"
#include "shardwise/loader/loader.h"
#include "shardwise/loader/media_columns.h"
#include "shardwise/loader/reducer.h"
#include "shardwise/shardwise.h"
