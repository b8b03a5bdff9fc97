#pragma once

/// The basic headers for training with LibTorch. An ImageLoader makes batches of images, in exact
/// epochs over the ranks of a run, and proves each epoch. Evaluation counts each sample once.
///
///     namespace sl = shardwise::libtorch;
///     auto group = sl::init_process_group();        // torchrun, mpirun, srun, or a single process
///     sl::ImageLoader loader(shardwise::Dataset::open("train.idx"), group,
///                            {.order = {.seed = 17}, .batch_size = 64, .resize = {224, 224}});
///     sl::broadcast_parameters(*model, group);      // equal parameters on all ranks
///     for (auto epoch : loader.epochs(90)) {
///       for (auto& batch : epoch) step(model, batch);   // with a GradientAverager
///       epoch.prove();
///       if (stopper.should_stop(sl::exact_accuracy(model, eval, group))) break;
///     }
///
/// <shardwise/libtorch/advanced.h> includes the other headers. The CMake target shardwise::libtorch
/// also links LibTorch and shardwise::shardwise.

#include "shardwise/libtorch/data_parallel.h"
#include "shardwise/libtorch/evaluate.h"
#include "shardwise/libtorch/image_loader.h"
#include "shardwise/libtorch/process_group.h"
#include "shardwise/libtorch/stop_guard.h"
#include "shardwise/shardwise.h"
