#include "shardwise/libtorch/data_parallel.h"

#include <torch/torch.h>

#include <utility>

namespace shardwise::libtorch {

void broadcast_parameters(const torch::nn::Module& module, const ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
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
  const std::int64_t total = group.all_reduce(num_samples);
  flat_.zero_();
  std::int64_t at = 0;
  for (const torch::Tensor& parameter : parameters_) {
    const std::int64_t size = parameter.numel();
    if (num_samples > 0 && parameter.grad().defined()) {
      flat_.narrow(0, at, size).copy_(parameter.grad().flatten());
    }
    at += size;
  }
  group.all_reduce(flat_);
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
