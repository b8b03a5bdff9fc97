#include "shardwise/libtorch/data_parallel.h"

#include <torch/torch.h>

#include <sstream>
#include <string>
#include <utility>

#include "libtorch/group_access.h"

namespace shardwise::libtorch {

namespace {

/// Names, types and shapes of parameters and buffers.
std::vector<std::pair<std::string, std::string>> shapes_of(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, std::string>> shapes;
  const auto add = [&](const char* kind, const std::string& name, const torch::Tensor& tensor) {
    std::ostringstream text;
    text << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
    shapes.emplace_back(std::string(kind) + " '" + name + "'", text.str());
  };
  for (const auto& item : module.named_parameters()) add("parameter", item.key(), item.value());
  for (const auto& item : module.named_buffers()) add("buffer", item.key(), item.value());
  return shapes;
}

}  // namespace

void broadcast_parameters(const torch::nn::Module& module, const ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  group.require_same(shapes_of(module));
  for (const torch::Tensor& parameter : module.parameters()) group.broadcast(parameter);
  for (const torch::Tensor& buffer : module.buffers()) group.broadcast(buffer);
}

GradientAverager::GradientAverager(std::vector<torch::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  std::int64_t size = 0;
  for (const torch::Tensor& parameter : parameters_) size += parameter.numel();
  flat_ = torch::empty({size}, torch::kFloat32);
}

std::int64_t GradientAverager::average(std::int64_t num_samples, const ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  flat_.zero_();
  std::int64_t at = 0;
  for (const torch::Tensor& parameter : parameters_) {
    const std::int64_t size = parameter.numel();
    if (num_samples > 0 && parameter.grad().defined()) {
      flat_.narrow(0, at, size).copy_(parameter.grad().flatten());
    }
    at += size;
  }
  const std::int64_t total = GroupAccess::add_with_count(group, flat_, num_samples, "gradients");
  if (total > 0) flat_.div_(static_cast<double>(total));
  at = 0;
  for (torch::Tensor& parameter : parameters_) {
    const std::int64_t size = parameter.numel();
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    parameter.mutable_grad().copy_(flat_.narrow(0, at, size).view_as(parameter));
    at += size;
  }
  return total;
}

}  // namespace shardwise::libtorch
