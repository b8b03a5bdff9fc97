#pragma once

#include <memory>
#include <memory_resource>

#include <torch/types.h>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/tensors.h"
#include "shardwise/loader/batch.h"

namespace shardwise::libtorch {

/// Page-locked memory for Loader::Options::memory, from which a GPU copies by itself. The loader
/// uses it again for later batches, so little of it is taken and given back.
/// Errors: Unsupported if this LibTorch sees no GPU.
/// Threads: any. Untested: no GPU was at hand; please report.
SHARDWISE_EXPORT std::shared_ptr<std::pmr::memory_resource> pinned_memory();

/// Copies batches to a device, on a stream beside the one that computes.
///
///     Loader loader(data, {.columns = ..., .memory = pinned_memory()}, make_reducer(group));
///     DeviceCopier copier(torch::kCUDA);
///     for (const Batch& batch : loader.epoch()) {
///       torch::Tensor images = copier.copy(batch["jpg"]);   // at once; the device does it
///       step(model, images);
///     }
///
/// The copy of a batch goes on while the device still computes the step before it; what is computed
/// next on the current stream waits for it. The batch's memory goes back to the loader when the
/// copy has ended. Nothing is copied to the CPU: tensors are over the batch's memory.
///
/// Threads: one at a time. Untested on a GPU: none was at hand; please report.
class SHARDWISE_EXPORT DeviceCopier {
 public:
  /// Errors: Unsupported if this LibTorch has no such device.
  explicit DeviceCopier(torch::Device device);
  /// Waits for the copies that are under way.
  ~DeviceCopier();
  DeviceCopier(const DeviceCopier&) = delete;
  DeviceCopier& operator=(const DeviceCopier&) = delete;

  /// As to_tensor(), on the device. Errors: as to_tensor(); c10::Error from the device.
  torch::Tensor copy(const Batch::Array& array);
  /// As to_struct(), on the device. Errors: NotFound, and as copy().
  template <class Struct>
  Struct copy(const Batch& batch, Members<Struct> members) {
    Struct result{};
    for (const auto& [column, member] : members) result.*member = copy(batch[column]);
    return result;
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::libtorch
