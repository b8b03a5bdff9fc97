#include <torch/torch.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "libtorch/group_access.h"
#include "libtorch/reduction.h"
#include "shardwise/base/error.h"
#include "shardwise/libtorch/adopt.h"

#ifdef SHARDWISE_HAVE_C10D
#include <torch/csrc/distributed/c10d/comm.hpp>
#endif

namespace shardwise::libtorch {

#ifdef SHARDWISE_HAVE_C10D

namespace {

using c10::ivalue::Future;

/// Reduces buckets of gradients during the backward pass. Buckets on the CPU are reduced in the
/// group's own thread.
class ReducerHook final : public c10d::CommHookInterface {
 public:
  ReducerHook(ProcessGroup group, std::function<std::int64_t()> num_samples)
      : group_(std::move(group)), num_samples_(std::move(num_samples)) {}

  c10::intrusive_ptr<Future> runHook(c10d::GradBucket& bucket) override {
    const torch::Tensor buffer = bucket.getBufferRef();
    detail::require_reducible(buffer, ProcessGroup::ReduceOp::kSum);
    std::vector<c10::Device> devices;
    if (!buffer.device().is_cpu()) devices.push_back(buffer.device());
    auto future = c10::make_intrusive<Future>(c10::TensorType::get(), devices);
    detail::AgreedCalls& calls = GroupAccess::calls(group_);  // outlives the queue
    auto average = [&calls, buffer, future, num_samples = num_samples_(), is_last = bucket.isLast(),
                    name = "bucket " + std::to_string(bucket.getIndex())] {
      const torch::NoGradGuard no_grad;
      try {
        const torch::Tensor wide = detail::widened(buffer);
        const std::int64_t total = calls.add_gradients(name.c_str(), wide, num_samples, is_last);
        if (total > 0) wide.div_(static_cast<double>(total));
        detail::narrow_into(buffer, wide);
        future->markCompleted(buffer);
      } catch (...) {
        future->setError(std::current_exception());
      }
    };
    if (buffer.device().is_cpu() && group_.world_size() > 1) {
      calls.queue().add(std::move(average));
    } else {
      average();
    }
    return future;
  }

  torch::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  const ProcessGroup group_;
  const std::function<std::int64_t()> num_samples_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> reducer_hook(const ProcessGroup& group,
                                                      std::function<std::int64_t()> num_samples) {
  detail::StopState::count_steps();
  return std::make_unique<ReducerHook>(group, std::move(num_samples));
}

#else

std::unique_ptr<c10d::CommHookInterface> reducer_hook(const ProcessGroup&,
                                                      std::function<std::int64_t()>) {
  throw Error(ErrorCode::kDistributed, "this build does not support c10d's Reducer",
              "reducer_hook()", "build Shardwise with a LibTorch that has c10d's headers");
}

#endif

}  // namespace shardwise::libtorch
