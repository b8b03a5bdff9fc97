#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwise::train {

/// A small CNN: 3x3 convolutions with group normalisation that halve the image, then each channel's
/// maximum over all positions. A sample's result does not depend on the rest of its batch, so
/// distributing a step over ranks changes only rounding. Takes uint8 [N, 3, H, W] of any size.
struct SmallCnnImpl : torch::nn::Module {
  static constexpr std::array<std::int64_t, 4> kWidths = {16, 32, 64, 96};

  explicit SmallCnnImpl(std::int64_t classes) {
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

  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = images.to(torch::kFloat).sub_(127.5).div_(64);
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
      x = torch::relu(norms[i](convolutions[i](x)));
      const bool can_halve = x.size(2) >= 2 && x.size(3) >= 2;
      if (i + 1 < convolutions.size() && can_halve) x = torch::max_pool2d(x, 2);
    }
    return scores(x.amax({2, 3}));
  }

  std::vector<torch::nn::Conv2d> convolutions;
  std::vector<torch::nn::GroupNorm> norms;
  torch::nn::Linear scores{nullptr};
};
TORCH_MODULE(SmallCnn);

}  // namespace shardwise::train
