#pragma once

/// Includes the whole library shardwise::libtorch. In addition to <shardwise/libtorch.h> it has
/// decoders of fields to tensors, data sets and samplers for LibTorch's own data loader, custom
/// process groups, and checkpoints.
///
///     torch::Tensor image = decode_image(data[42], "jpg");          // uint8 [3, H, W]
///     TorchDataset dataset(data, [](const Sample& s) { return decode_image(s, "jpg"); });
///     TorchSampler sampler(ChunkedSampler(data, {.seed = 17}));
///     Loader loader(data, {.columns = {columns::image("jpg")}}, make_reducer(group));
///     torch::Tensor images = to_tensor((*loader.next())["jpg"]);   // over the same memory
///     auto pairs = to_struct<Pairs>(batch, {{"jpg", &Pairs::images}, {"txt", &Pairs::captions}});
///     DeviceCopier copier(torch::kCUDA);                            // to a GPU, while it computes
///     auto group = adopt_process_group(own);                       // your own group of c10d
///     CheckpointFile file("run.pt", group);                         // read() and write()
///     const double rate = warm_up_cosine(before, 256, total, 3e-3);  // by samples, not steps

#include "shardwise/advanced.h"
#include "shardwise/libtorch.h"
#include "shardwise/libtorch/adopt.h"
#include "shardwise/libtorch/checkpoint.h"
#include "shardwise/libtorch/data_loader.h"
#include "shardwise/libtorch/decode.h"
#include "shardwise/libtorch/device_copier.h"
#include "shardwise/libtorch/epoch_report.h"
#include "shardwise/libtorch/learning_rate.h"
#include "shardwise/libtorch/tensors.h"
#include "shardwise/loader.h"
