#include "libtorch/reduction.h"

#include <sstream>
#include <string>

#include "base/error_types.h"

namespace shardwise::libtorch::detail {
namespace {

/// Returns a type that every backend supports and that can hold sums of the given type.
torch::ScalarType wide_type(torch::ScalarType type) {
  const std::size_t size = c10::elementSize(type);
  if (c10::isFloatingType(type)) return size < sizeof(float) ? torch::kFloat : type;
  if (type == torch::kInt8 || type == torch::kUInt8) return type;
  if (size < sizeof(std::int32_t) || type == torch::kBool) return torch::kInt32;
  // Newer versions of LibTorch have unsigned types. Their sums wrap around like those of signed
  // types, so kInt64 can hold them.
  return size == sizeof(std::int64_t) || type != torch::kInt32 ? torch::kInt64 : type;
}

bool has_order(torch::ScalarType type) {
  const bool is_too_wide = !c10::isFloatingType(type) && type != torch::kInt64 &&
                           c10::elementSize(type) == sizeof(std::int64_t);
  return !c10::isComplexType(type) && !is_too_wide;
}

}  // namespace

void require_reducible(const torch::Tensor& tensor, ProcessGroup::ReduceOp op) {
  const torch::ScalarType type = tensor.scalar_type();
  const bool is_number = c10::isFloatingType(type) || c10::isComplexType(type) ||
                         c10::isIntegralType(type, /*includeBool=*/true);
  if (tensor.layout() == torch::kStrided && is_number &&
      (op == ProcessGroup::ReduceOp::kSum || has_order(type))) {
    return;
  }
  std::ostringstream what;
  what << c10::toString(type) << ", " << tensor.layout();
  throw Unsupported(
      op == ProcessGroup::ReduceOp::kSum
          ? "a tensor of this kind cannot be summed over the ranks"
          : "a minimum or maximum over the ranks does not exist for a tensor of this kind",
      what.str(), "give a dense tensor of real numbers");
}

torch::Tensor widened(const torch::Tensor& tensor) {
  const torch::Tensor real = tensor.is_complex() ? torch::view_as_real(tensor) : tensor;
  return real.to(wide_type(real.scalar_type()));
}

void narrow_into(const torch::Tensor& tensor, const torch::Tensor& wide) {
  if (wide.data_ptr() == tensor.data_ptr()) return;
  (tensor.is_complex() ? torch::view_as_real(tensor) : tensor).copy_(wide);
}

torch::Tensor reduced(const std::vector<torch::Tensor>& of_ranks, ProcessGroup::ReduceOp op) {
  torch::Tensor result = of_ranks[0].clone();
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const torch::Tensor& other = of_ranks[rank];
    if (op == ProcessGroup::ReduceOp::kSum) result.add_(other);
    if (op == ProcessGroup::ReduceOp::kMin) result = torch::minimum(result, other);
    if (op == ProcessGroup::ReduceOp::kMax) result = torch::maximum(result, other);
  }
  return result;
}

}  // namespace shardwise::libtorch::detail
