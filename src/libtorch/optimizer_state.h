#pragma once

#include <torch/optim.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace shardwise::libtorch::detail {

/// One value of an optimizer's state for a parameter: a number or a tensor.
struct StateField {
  std::string name;
  std::int64_t* number = nullptr;
  torch::Tensor* tensor = nullptr;  ///< undefined if unused
};

/// A type of LibTorch optimizer, and the state that it keeps for each parameter.
struct OptimizerKind {
  std::string name;
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  /// Calls `visit` for each value of a state of this kind.
  void (*for_each)(torch::optim::OptimizerParamState& state,
                   const std::function<void(const StateField&)>& visit);
};

/// Errors: Unsupported for an optimizer whose state this library does not know.
const OptimizerKind& kind_of(const torch::optim::Optimizer& optimizer);

/// Returns the state of a parameter, or null before its first step.
torch::optim::OptimizerParamState* find_state(const torch::optim::Optimizer& optimizer,
                                              const torch::Tensor& parameter);

/// Sets the state of a parameter; null removes it.
void set_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
               std::unique_ptr<torch::optim::OptimizerParamState> state);

}  // namespace shardwise::libtorch::detail
