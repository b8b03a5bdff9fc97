#include "libtorch/optimizer_state.h"

#include <array>
#include <sstream>
#include <type_traits>

#include "base/error_types.h"

namespace shardwise::libtorch::detail {
namespace {

using torch::optim::OptimizerParamState;
using Visit = std::function<void(const StateField&)>;

template <class State>
std::unique_ptr<OptimizerParamState> make_state() {
  return std::make_unique<State>();
}

/// Visits the values of Adam and AdamW.
template <class State>
void for_each_of_adam(OptimizerParamState& any, const Visit& visit) {
  auto& state = static_cast<State&>(any);
  visit({.name = "step", .number = &state.step()});
  visit({.name = "exp_avg", .tensor = &state.exp_avg()});
  visit({.name = "exp_avg_sq", .tensor = &state.exp_avg_sq()});
  visit({.name = "max_exp_avg_sq", .tensor = &state.max_exp_avg_sq()});
}

void for_each_of_sgd(OptimizerParamState& any, const Visit& visit) {
  auto& state = static_cast<torch::optim::SGDParamState&>(any);
  visit({.name = "momentum_buffer", .tensor = &state.momentum_buffer()});
}

void for_each_of_rmsprop(OptimizerParamState& any, const Visit& visit) {
  auto& state = static_cast<torch::optim::RMSpropParamState&>(any);
  visit({.name = "step", .number = &state.step()});
  visit({.name = "square_avg", .tensor = &state.square_avg()});
  visit({.name = "momentum_buffer", .tensor = &state.momentum_buffer()});
  visit({.name = "grad_avg", .tensor = &state.grad_avg()});
}

void for_each_of_adagrad(OptimizerParamState& any, const Visit& visit) {
  auto& state = static_cast<torch::optim::AdagradParamState&>(any);
  visit({.name = "step", .number = &state.step()});
  visit({.name = "sum", .tensor = &state.sum()});
}

struct KnownKind {
  bool (*is_one)(const torch::optim::Optimizer&);
  OptimizerKind kind;
};

template <class Optimizer>
bool is_a(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const Optimizer*>(&optimizer) != nullptr;
}

/// Returns a parameter's key in an optimizer's state: a string in LibTorch 1, a pointer later.
template <class State>
auto key_of(const State&, const torch::Tensor& parameter) {
  using Key = typename State::key_type;
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << static_cast<const void*>(parameter.unsafeGetTensorImpl());
    return text.str();
  } else {
    return static_cast<Key>(parameter.unsafeGetTensorImpl());
  }
}

}  // namespace

const OptimizerKind& kind_of(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  static const std::array<KnownKind, 5> kinds = {
      {{is_a<Adam>, {"Adam", make_state<AdamParamState>, for_each_of_adam<AdamParamState>}},
       {is_a<AdamW>, {"AdamW", make_state<AdamWParamState>, for_each_of_adam<AdamWParamState>}},
       {is_a<SGD>, {"SGD", make_state<SGDParamState>, for_each_of_sgd}},
       {is_a<RMSprop>, {"RMSprop", make_state<RMSpropParamState>, for_each_of_rmsprop}},
       {is_a<Adagrad>, {"Adagrad", make_state<AdagradParamState>, for_each_of_adagrad}}}};
  for (const KnownKind& known : kinds) {
    if (known.is_one(optimizer)) return known.kind;
  }
  throw Unsupported(
      "checkpoints do not support this optimizer", "",
      "use Adam, AdamW, SGD, RMSprop or Adagrad, or save its tensors one by one with put()");
}

OptimizerParamState* find_state(const torch::optim::Optimizer& optimizer,
                                const torch::Tensor& parameter) {
  const auto& states = optimizer.state();
  const auto at = states.find(key_of(states, parameter));
  return at == states.end() ? nullptr : at->second.get();
}

void set_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
               std::unique_ptr<OptimizerParamState> state) {
  auto& states = optimizer.state();
  if (state == nullptr) {
    states.erase(key_of(states, parameter));
  } else {
    states[key_of(states, parameter)] = std::move(state);
  }
}

}  // namespace shardwise::libtorch::detail
