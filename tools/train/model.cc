#include "model.h"

#include <string>

namespace shardwise::train {

SmallCnnImpl::SmallCnnImpl(std::int64_t classes) {
  std::int64_t in = 3;
  for (const std::int64_t width : kWidths) {
    const std::string number = std::to_string(convolutions.size());
    convolutions.push_back(register_module(
        "convolution" + number,
        torch::nn::Conv2d(torch::nn::Conv2dOptions(in, width, 3).padding(1).bias(false))));
    norms.push_back(register_module("norm" + number, torch::nn::GroupNorm(4, width)));
    in = width;
  }
  scores = register_module("scores", torch::nn::Linear(in, classes));
}

torch::Tensor SmallCnnImpl::forward(const torch::Tensor& images) {
  torch::Tensor x = images.to(torch::kFloat).sub_(127.5).div_(64);
  for (std::size_t i = 0; i < convolutions.size(); ++i) {
    x = torch::relu(norms[i](convolutions[i](x)));
    const bool can_halve = x.size(2) >= 2 && x.size(3) >= 2;
    if (i + 1 < convolutions.size() && can_halve) x = torch::max_pool2d(x, 2);
  }
  return scores(x.amax({2, 3}));
}

}  // namespace shardwise::train
