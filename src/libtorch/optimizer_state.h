#pragma once

#include <torch/optim.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace shardwise::libtorch::detail {

/// One value of an optimizer's state for a parameter: either a number or a tensor.
struct StateField {
  std::string name;
  std::int64_t* number = nullptr;
  torch::Tensor* tensor = nullptr;  ///< nullptr for a number
};

/// A kind of LibTorch optimizer, with access to the state that it keeps for each parameter.
struct OptimizerKind {
  std::string name;
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  /// Calls `visit` for each value of a parameter's state.
  void (*for_each)(torch::optim::OptimizerParamState& state,
                   const std::function<void(const StateField&)>& visit);
};

/// Errors: Unsupported if this library does not support the optimizer.
const OptimizerKind& kind_of(const torch::optim::Optimizer& optimizer);

/// Returns the state of a parameter; nullptr before its first step.
torch::optim::OptimizerParamState* find_state(const torch::optim::Optimizer& optimizer,
                                              const torch::Tensor& parameter);

/// Sets the state of a parameter. nullptr removes it.
void set_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
               std::unique_ptr<torch::optim::OptimizerParamState> state);

}  // namespace shardwise::libtorch::detail
