#include "shardwise/libtorch/device_copier.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "base/error_types.h"
#include "base/fork.h"

// This file uses only the LibTorch calls that work for any device, and is compiled without CUDA.
// One build of this library thus works with LibTorch for CPUs and for GPUs.

namespace shardwise::libtorch {
namespace {

class PinnedMemory final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t) override {
    // LibTorch allocates whole pages here, which are aligned for any type.
    const auto size = static_cast<std::int64_t>(bytes);
    auto block =
        torch::empty({size}, torch::TensorOptions().dtype(torch::kUInt8).pinned_memory(true));
    void* const data = block.data_ptr();
    const Lock lock(mutex_);
    blocks_.emplace(data, std::move(block));
    return data;
  }
  void do_deallocate(void* data, std::size_t, std::size_t) override {
    torch::Tensor block;  // declared before the lock, so that it is freed after the lock is
                          // released
    const Lock lock(mutex_);
    const auto found = blocks_.find(data);
    block = std::move(found->second);
    blocks_.erase(found);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  Mutex mutex_;
  std::map<void*, torch::Tensor> blocks_ SHARDWISE_GUARDED_BY(mutex_);
};

torch::Device usable(torch::Device device) {
  const auto refuse = [&](const std::string& why) {
    throw Unsupported("batches cannot be copied to this device", device.str() + ": " + why,
                      "use a LibTorch that is built for this device, or torch::kCPU");
  };
  if (device.is_cpu()) return device;
  if (!c10::impl::hasDeviceGuardImpl(device.type()))
    refuse("this LibTorch does not support the device");
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (guard.deviceCount() == 0) refuse("found no device of this type");
  return device.has_index() ? device : guard.getDevice();
}

}  // namespace

std::shared_ptr<std::pmr::memory_resource> pinned_memory() {
  if (!torch::cuda::is_available()) {
    throw Unsupported("page-locked memory needs a GPU", "this LibTorch sees none",
                      "leave Loader::Options::memory empty");
  }
  return std::make_shared<PinnedMemory>();
}

struct DeviceCopier::Impl {
  struct Copy {
    c10::Event done;
    std::shared_ptr<std::byte> from;  // source of the copy; must not be reused before `done`
  };

  explicit Impl(torch::Device to) : device(usable(to)) {
    if (!device.is_cpu()) {
      stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    }
  }

  const torch::Device device;
  std::optional<c10::Stream> stream;
  std::deque<Copy> copies;  // in the order of their start
};

DeviceCopier::DeviceCopier(torch::Device device) : impl_(std::make_unique<Impl>(device)) {}

DeviceCopier::~DeviceCopier() {
  if (impl_->copies.empty()) return;
  try {
    impl_->stream->synchronize();
  } catch (const std::exception&) {  // the device failed; the program's own calls report this
  }
}

torch::Tensor DeviceCopier::copy(const Batch::Array& array) {
  const torch::Tensor from = to_tensor(array);
  if (!impl_->stream) return from;
  while (!impl_->copies.empty() && impl_->copies.front().done.query()) impl_->copies.pop_front();
  const c10::Stream computing =
      c10::impl::VirtualGuardImpl(impl_->device.type()).getStream(impl_->device);
  c10::Event done(impl_->device.type());
  torch::Tensor result;
  {
    const c10::StreamGuard guard(*impl_->stream);
    result = from.to(impl_->device, /*non_blocking=*/true);
    done.record(*impl_->stream);
  }
  done.block(computing);
  result.record_stream(computing);  // the result was allocated on the copying stream
  impl_->copies.push_back({std::move(done), array.memory()});
  return result;
}

}  // namespace shardwise::libtorch
