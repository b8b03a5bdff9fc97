#pragma once

/// The headers of the loader. Its threads make batches of any columns in plain memory, in exact
/// epochs over the ranks of a run. It proves each epoch.
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
/// The CMake target shardwise::loader also links the image codecs and shardwise::shardwise.
/// <shardwise/libtorch/advanced.h> makes tensors that share the memory of a batch.

#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/epochs.h"
#include "shardwise/loader/image_transform.h"
#include "shardwise/loader/loader.h"
#include "shardwise/loader/media_columns.h"
#include "shardwise/loader/reducer.h"
#include "shardwise/shardwise.h"
