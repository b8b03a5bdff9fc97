#include "shardwise/libtorch/tensors.h"

#include <torch/torch.h>

#include <utility>
#include <vector>

#include "base/error_types.h"
#include "base/text.h"
#include "libtorch/group_access.h"
#include "loader/step_watch.h"

namespace shardwise::libtorch {
namespace {

torch::ScalarType scalar_type(const Batch::Array& array) {
  switch (array.dtype()) {
    case DType::kBool:
      return torch::kBool;
    case DType::kUInt8:
      return torch::kUInt8;
    case DType::kInt8:
      return torch::kInt8;
    case DType::kInt16:
      return torch::kInt16;
    case DType::kInt32:
      return torch::kInt32;
    case DType::kInt64:
      return torch::kInt64;
    case DType::kFloat16:
      return torch::kHalf;
    case DType::kBFloat16:
      return torch::kBFloat16;
    case DType::kFloat32:
      return torch::kFloat;
    case DType::kFloat64:
      return torch::kDouble;
    case DType::kComplex64:
      return torch::kComplexFloat;
    case DType::kComplex128:
      return torch::kComplexDouble;
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      break;
  }
  throw InvalidArgument("LibTorch has no tensors of " + std::string(to_string(array.dtype())),
                        "column " + in_quotes(array.name()), "store the arrays as a signed type");
}

class GroupReducer : public Reducer {
 public:
  explicit GroupReducer(ProcessGroup group) : group_(std::move(group)) {}

  [[nodiscard]] std::uint64_t rank() const noexcept override { return unsigned_of(group_.rank()); }
  [[nodiscard]] std::uint64_t world_size() const noexcept override {
    return unsigned_of(group_.world_size());
  }
  [[nodiscard]] std::uint64_t local_rank() const noexcept override {
    return unsigned_of(group_.local_rank());
  }
  [[nodiscard]] std::uint64_t local_world_size() const noexcept override {
    return unsigned_of(group_.local_world_size());
  }
  void add(std::span<std::int64_t> words) override {
    const auto size = static_cast<std::int64_t>(words.size());
    group_.all_reduce(torch::from_blob(words.data(), {size}, torch::kInt64));
  }

 protected:
  const ProcessGroup group_;

 private:
  static std::uint64_t unsigned_of(int value) noexcept { return static_cast<std::uint64_t>(value); }
};

/// A reducer for a group whose ranks stop together.
class GuardedReducer final : public GroupReducer, public shardwise::detail::StepWatch {
 public:
  GuardedReducer(ProcessGroup group, std::shared_ptr<StopState> stop)
      : GroupReducer(std::move(group)), stop_(std::move(stop)) {}

  [[nodiscard]] bool counts_steps() const override { return StopState::counts_steps(); }
  [[nodiscard]] std::uint64_t num_whole_steps() const override {
    stop_->happen(StopEvent::kWentOn);
    return stop_->num_whole_steps();
  }
  [[nodiscard]] bool wants_to_stop() const override {
    return stop_->wants_to_stop_at_once() || stop_->agreed().is_at_once();
  }
  [[nodiscard]] bool gave_up_step() const override { return stop_->gave_up_step(); }
  [[nodiscard]] std::int64_t largest(std::int64_t value) override {
    return group_.all_reduce(value, ProcessGroup::ReduceOp::kMax);
  }

 private:
  const std::shared_ptr<StopState> stop_;
};

}  // namespace

torch::Tensor to_tensor(const Batch::Array& array) {
  const torch::ScalarType type = scalar_type(array);
  std::vector<std::int64_t> shape = array.shape();
  if (array.is_ragged()) shape = {array.offsets().back()};
  const auto options = torch::TensorOptions().dtype(type);
  if (array.bytes().empty()) return torch::empty(shape, options);
  return torch::from_blob(
      array.memory().get(), shape, [memory = array.memory()](void*) mutable { memory.reset(); },
      options);
}

torch::Tensor offsets_tensor(const Batch::Array& array) {
  const std::span<const std::int64_t> offsets = array.offsets();
  return torch::tensor(torch::ArrayRef<std::int64_t>(offsets.data(), offsets.size()),
                       torch::kInt64);
}

std::shared_ptr<Reducer> make_reducer(ProcessGroup group) {
  auto stop = GroupAccess::calls(group).stop();
  if (stop) return std::make_shared<GuardedReducer>(std::move(group), std::move(stop));
  return std::make_shared<GroupReducer>(std::move(group));
}

}  // namespace shardwise::libtorch
