#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <vector>

namespace shardwise::train {

/// A small CNN: 3x3 convolutions with group normalisation, which halve the image, then the largest
/// response of each channel at any position. The result for a sample does not depend on its batch,
/// so spreading a step over ranks changes only the rounding. Takes uint8 [N, 3, H, W] of any size.
struct SmallCnnImpl : torch::nn::Module {
  static constexpr std::array<std::int64_t, 4> kWidths = {16, 32, 64, 96};

  explicit SmallCnnImpl(std::int64_t classes);
  torch::Tensor forward(const torch::Tensor& images);

  std::vector<torch::nn::Conv2d> convolutions;
  std::vector<torch::nn::GroupNorm> norms;
  torch::nn::Linear scores{nullptr};
};
TORCH_MODULE(SmallCnn);

}  // namespace shardwise::train
