#include "shardwise/libtorch/data_parallel.h"

#include <torch/torch.h>

#include <sstream>
#include <string>
#include <utility>

#include "base/agreement.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/text.h"
#include "libtorch/group_access.h"
#include "libtorch/tensor_view.h"

namespace shardwise::libtorch {

namespace {

struct NamedTensor {
  std::string name;  ///< e.g. "parameter 'scores.weight'"
  torch::Tensor tensor;
};

/// Returns a module's parameters and buffers, with their names.
std::vector<NamedTensor> state_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.push_back({"parameter '" + item.key() + "'", item.value()});
  }
  for (const auto& item : module.named_buffers()) {
    tensors.push_back({"buffer '" + item.key() + "'", item.value()});
  }
  return tensors;
}

std::string shape_of(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  return text.str();
}

/// Returns the tensors' names, types and shapes.
Record shapes_of(const torch::nn::Module& module) {
  Record shapes;
  for (const auto& [name, tensor] : state_of(module)) shapes.emplace_back(name, shape_of(tensor));
  return shapes;
}

/// Returns for each tensor a hash of its name, type, shape and all its bits.
Record hashes_of(const torch::nn::Module& module) {
  Record hashes;
  for (const auto& [name, tensor] : state_of(module)) {
    const auto plain = tensor.detach().cpu().contiguous();
    const auto hash = hash64(view_of(plain), hash64(name + " " + shape_of(plain)));
    hashes.emplace_back("hash of " + name, hex({reinterpret_cast<const char*>(&hash), 8}));
  }
  return hashes;
}

void require_real(const torch::Tensor& tensor, const std::string& name) {
  if (!tensor.is_complex()) return;
  throw Unsupported("complex numbers are not averaged over the ranks", name,
                    "use two tensors of real numbers instead");
}

std::int64_t num_elements(const std::vector<torch::Tensor>& tensors) {
  std::int64_t size = 0;
  for (const torch::Tensor& tensor : tensors) size += tensor.numel();
  return size;
}

/// Copies all elements into one tensor on the CPU.
torch::Tensor flattened(const std::vector<torch::Tensor>& tensors, torch::ScalarType type) {
  auto flat = torch::empty({num_elements(tensors)}, type);
  std::int64_t at = 0;
  for (const torch::Tensor& tensor : tensors) {
    flat.narrow(0, at, tensor.numel()).copy_(tensor.flatten());
    at += tensor.numel();
  }
  return flat;
}

/// Copies the elements of `flat` back into the tensors.
void scatter(const torch::Tensor& flat, const std::vector<torch::Tensor>& tensors) {
  std::int64_t at = 0;
  for (const torch::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

/// Returns the type and the device in which gradients are summed.
torch::TensorOptions flat_options(const std::vector<torch::Tensor>& parameters) {
  auto type = torch::kFloat32;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.scalar_type() == torch::kFloat64) type = torch::kFloat64;
  }
  return torch::TensorOptions(type).device(parameters.empty() ? torch::Device(torch::kCPU)
                                                              : parameters[0].device());
}

}  // namespace

void broadcast_parameters(const torch::nn::Module& module, const ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  group.require_same(shapes_of(module));
  for (const torch::Tensor& parameter : module.parameters()) group.broadcast(parameter);
  for (const torch::Tensor& buffer : module.buffers()) group.broadcast(buffer);
}

void require_same_replicas(const torch::nn::Module& module, const ProcessGroup& group) {
  if (group.world_size() == 1) return;
  const torch::NoGradGuard no_grad;
  const Record hashes = hashes_of(module);
  const auto own = static_cast<std::int64_t>(hash64(shardwise::detail::to_bytes(hashes)));
  // The maximum of `~own` is the complement of the smallest hash. One reduction therefore gives
  // both the largest and the smallest hash.
  const auto extremes = torch::tensor({own, ~own}, torch::kInt64);
  group.all_reduce(extremes, ProcessGroup::ReduceOp::kMax);
  if (extremes[0].item<std::int64_t>() == ~extremes[1].item<std::int64_t>()) return;

  group.require_same(shapes_of(module));
  throw Mismatch(
      "the ranks' models are not the same",
      GroupAccess::calls(group).find_difference(hashes).value_or(""),
      "look for a step or a change of the model that only some ranks make (for buffers: call "
      "average_buffers() first), then start all ranks again from an earlier checkpoint");
}

void average_buffers(const torch::nn::Module& module, const ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> floats;
  std::vector<torch::Tensor> integers;
  for (const auto& item : module.named_buffers()) {
    require_real(item.value(), "buffer '" + item.key() + "'");
    (item.value().is_floating_point() ? floats : integers).push_back(item.value());
  }
  if (group.world_size() == 1) return;
  if (const auto flat = flattened(floats, torch::kFloat64); flat.numel() > 0) {
    group.all_reduce(flat);
    scatter(flat.div_(group.world_size()), floats);
  }
  if (const auto flat = flattened(integers, torch::kInt64); flat.numel() > 0) {
    group.all_reduce(flat, ProcessGroup::ReduceOp::kMax);
    scatter(flat, integers);
  }
}

GradientAverager::GradientAverager(std::vector<torch::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  StopState::count_steps();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    require_real(parameters_[i], "parameter " + std::to_string(i));
  }
}

std::vector<torch::Tensor> GradientAverager::trainable() const {
  std::vector<torch::Tensor> trainable;
  for (const torch::Tensor& parameter : parameters_) {
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  return trainable;
}

std::int64_t GradientAverager::average(std::int64_t num_samples, const ProcessGroup& group) {
  const auto start = std::chrono::steady_clock::now();
  const torch::NoGradGuard no_grad;
  auto parameters = trainable();
  const auto count = static_cast<std::int64_t>(parameters.size());
  const std::int64_t size = num_elements(parameters);
  const auto options = flat_options(parameters);
  if (!flat_.defined() || flat_.numel() != size + count || flat_.dtype() != options.dtype() ||
      flat_.device() != options.device()) {
    flat_ = torch::empty({size + count}, options);
  }
  flat_.zero_();
  // flat_ contains the gradients, then for each gradient the number of ranks that have it.
  auto owners = torch::zeros({count}, torch::kFloat32);
  auto* const has_owner = owners.data_ptr<float>();
  std::int64_t at = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].grad();
    const std::int64_t length = parameters[i].numel();
    if (num_samples > 0 && gradient.defined()) {
      const auto dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
      flat_.narrow(0, at, length).copy_(dense.flatten());
      has_owner[i] = 1;
    }
    at += length;
  }
  flat_.narrow(0, size, count).copy_(owners);
  const std::int64_t total =
      GroupAccess::calls(group).add_gradients("gradients", flat_, num_samples);
  owners.copy_(flat_.narrow(0, size, count));
  if (total > 0) flat_.narrow(0, 0, size).div_(static_cast<double>(total));
  at = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor& parameter = parameters[i];
    const std::int64_t length = parameter.numel();
    torch::Tensor& gradient = parameter.mutable_grad();
    if (has_owner[i] == 0) {
      gradient.reset();
    } else {
      if (!gradient.defined() || gradient.is_sparse()) gradient = torch::empty_like(parameter);
      gradient.copy_(flat_.narrow(0, at, length).view(parameter.sizes()));
    }
    at += length;
  }
  time_spent_ += std::chrono::steady_clock::now() - start;
  return total;
}

}  // namespace shardwise::libtorch
