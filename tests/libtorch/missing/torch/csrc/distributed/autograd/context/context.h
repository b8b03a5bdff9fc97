#pragma once

// The distribution's LibTorch lacks this header. c10d's reducer.hpp includes it, and needs these
// names.

#include <functional>
#include <memory>

#include <torch/types.h>

namespace torch::distributed::autograd {
class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(torch::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;
}  // namespace torch::distributed::autograd
