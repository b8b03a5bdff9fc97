#pragma once

#include <torch/optim.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace shardwise::libtorch::detail {

/// One value of the state that an optimizer keeps of a parameter: a number, or a tensor.
struct StateField {
  std::string name;
  std::int64_t* number = nullptr;
  torch::Tensor* tensor = nullptr;  ///< undefined if it is not used
};

/// An optimizer of LibTorch, and what it keeps of each parameter.
struct OptimizerKind {
  std::string name;
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  /// Calls `visit` for each value of a state of this kind.
  void (*for_each)(torch::optim::OptimizerParamState& state,
                   const std::function<void(const StateField&)>& visit);
};

/// Errors: Unsupported if it is an optimizer whose state is not known here.
const OptimizerKind& kind_of(const torch::optim::Optimizer& optimizer);

/// The state of a parameter; null if it has none yet.
torch::optim::OptimizerParamState* find_state(const torch::optim::Optimizer& optimizer,
                                              const torch::Tensor& parameter);

/// Gives a parameter this state; null takes it away.
void set_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
               std::unique_ptr<torch::optim::OptimizerParamState> state);

}  // namespace shardwise::libtorch::detail
