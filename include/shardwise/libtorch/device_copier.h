#pragma once

#include <memory>
#include <memory_resource>

#include <torch/types.h>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/tensors.h"
#include "shardwise/loader/batch.h"

namespace shardwise::libtorch {

/// Returns an allocator of page-locked memory, from which a GPU can copy directly, for
/// Loader::Options::memory. The loader reuses memory for later batches, so allocations are rare.
/// Threads: any.
/// Errors: Unsupported if this LibTorch finds no GPU.
SHARDWISE_EXPORT std::shared_ptr<std::pmr::memory_resource> pinned_memory();

/// Copies batches to a device, on a separate stream, while the device computes.
///
///     Loader loader(data, {.columns = ..., .memory = pinned_memory()}, make_reducer(group));
///     DeviceCopier copier(torch::kCUDA);
///     for (const Batch& batch : loader.epoch()) {
///       torch::Tensor images = copier.copy(batch["jpg"]);   // returns at once
///       step(model, images);
///     }
///
/// The copy of a batch overlaps with the computation of the previous step. Later computations on
/// the current stream wait for the copy. When the copy has ended, the loader can reuse the batch's
/// memory. If the device is the CPU, nothing is copied: tensors share the batch's memory.
///
/// Threads: one at a time.
class SHARDWISE_EXPORT DeviceCopier {
 public:
  /// Errors: Unsupported if this LibTorch lacks the device.
  explicit DeviceCopier(torch::Device device);
  /// Waits for the copies in flight.
  ~DeviceCopier();
  DeviceCopier(const DeviceCopier&) = delete;
  DeviceCopier& operator=(const DeviceCopier&) = delete;

  /// Like to_tensor(), but the tensor is on the device. Errors: those of to_tensor(). c10::Error
  /// from the device.
  torch::Tensor copy(const Batch::Array& array);
  /// Like to_struct(), but the tensors are on the device. Errors: NotFound. The errors of
  /// copy(array).
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
