// Steps on decoded pixels. Images are 500 x 375 unless a row says otherwise:
//
//   BM_Copy           the limit: memcpy of the image
//   BM_SplitScalar    the peer: a plain loop
//   BM_Split          splits pixels into planes
//   BM_ResizeFloat    the peer: float32, vertically, then horizontally; library code of 2026-11-22
//   BM_Resize         to 224 x 224; target 0 is the machine's best instruction set, 1 the second
//   BM_ResizeWithoutDots  the best set without dot products of bytes (dot_kernels-inl.h)
//   BM_ResizeFloats   as BM_Resize, normalised to float32
//   BM_Adjust         224 x 224 pixels; 0 is brightness, 1 contrast, 2 saturation, 3 hue
#include <benchmark/benchmark.h>

#include <hwy/targets.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "decode/colour.h"
#include "decode/pixel_kernels.h"
#include "decode/pixels.h"

namespace shardwise {
namespace {

constexpr std::size_t kHeight = 375;
constexpr std::size_t kWidth = 500;
constexpr std::size_t kSide = 224;

std::vector<std::uint8_t> make_picture() {
  std::vector<std::uint8_t> picture(kHeight * kWidth * 3);
  for (std::size_t i = 0; i < picture.size(); ++i) {
    picture[i] = static_cast<std::uint8_t>(i * 31 + i / 1000);
  }
  return picture;
}

detail::RgbView view_of(const std::vector<std::uint8_t>& picture) {
  return {picture.data(), kHeight, kWidth, kWidth * 3};
}

void BM_Copy(benchmark::State& state) {
  const auto picture = make_picture();
  std::vector<std::uint8_t> out(picture.size());
  for (auto _ : state) {
    std::memcpy(out.data(), picture.data(), out.size());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Copy)->Unit(benchmark::kMicrosecond);

void BM_SplitScalar(benchmark::State& state) {
  const auto picture = make_picture();
  const std::size_t num_pixels = kHeight * kWidth;
  std::vector<std::uint8_t> out(picture.size());
  for (auto _ : state) {
    for (std::size_t i = 0; i < num_pixels; ++i) {
      for (std::size_t c = 0; c < 3; ++c) out[c * num_pixels + i] = picture[3 * i + c];
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_SplitScalar)->Unit(benchmark::kMicrosecond);

void BM_Split(benchmark::State& state) {
  const auto picture = make_picture();
  std::vector<std::uint8_t> out(picture.size());
  for (auto _ : state) {
    detail::write_pixels(view_of(picture), {.height = kHeight, .width = kWidth}, out.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Split)->Unit(benchmark::kMicrosecond);

struct FloatTap {
  std::size_t first;
  std::vector<float> weights;
};

std::vector<FloatTap> float_taps(std::size_t in, std::size_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  std::vector<FloatTap> taps(out);
  for (std::size_t i = 0; i < out; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    taps[i].first = static_cast<std::size_t>(std::max(0.0, centre - scale + 0.5));
    const auto end = std::min(in, static_cast<std::size_t>(centre + scale + 0.5));
    float sum = 0;
    for (std::size_t j = taps[i].first; j < end; ++j) {
      taps[i].weights.push_back(
          static_cast<float>(1 - std::abs(static_cast<double>(j) + 0.5 - centre) / scale));
      sum += taps[i].weights.back();
    }
    for (float& weight : taps[i].weights) weight /= sum;
  }
  return taps;
}

void BM_ResizeFloat(benchmark::State& state) {
  const auto picture = make_picture();
  std::vector<std::uint8_t> out(kSide * kSide * 3);
  std::vector<float> row(kWidth * 3);
  for (auto _ : state) {
    const auto down = float_taps(kHeight, kSide);
    const auto across = float_taps(kWidth, kSide);
    for (std::size_t y = 0; y < kSide; ++y) {
      std::fill(row.begin(), row.end(), 0.0F);
      for (std::size_t j = 0; j < down[y].weights.size(); ++j) {
        const std::uint8_t* from = picture.data() + (down[y].first + j) * kWidth * 3;
        for (std::size_t i = 0; i < row.size(); ++i) row[i] += down[y].weights[j] * from[i];
      }
      for (std::size_t x = 0; x < kSide; ++x) {
        float sums[3] = {0.5F, 0.5F, 0.5F};
        const float* from = row.data() + across[x].first * 3;
        for (const float weight : across[x].weights) {
          for (int c = 0; c < 3; ++c) sums[c] += weight * *from++;
        }
        for (std::size_t c = 0; c < 3; ++c) {
          out[(c * kSide + y) * kSide + x] =
              static_cast<std::uint8_t>(std::clamp(sums[c], 0.0F, 255.0F));
        }
      }
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_ResizeFloat)->Unit(benchmark::kMicrosecond);

/// Selects an instruction set and labels the row with it. Skips the row if there is no such set.
bool choose_target(benchmark::State& state) {
  const auto targets = hwy::SupportedAndGeneratedTargets();
  const auto number = static_cast<std::size_t>(state.range(0));
  if (number >= targets.size()) {
    state.SkipWithError("the machine has no such instruction set");
    return false;
  }
  // Highway's best target has the lowest number.
  auto sorted = targets;
  std::sort(sorted.begin(), sorted.end());
  hwy::SetSupportedTargetsForTest(sorted[number]);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  state.SetLabel(hwy::TargetName(sorted[number]));
  return true;
}

void restore_target() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void resize_all(benchmark::State& state) {
  const auto picture = make_picture();
  std::vector<std::uint8_t> out(kSide * kSide * 3);
  for (auto _ : state) {
    detail::write_pixels(view_of(picture), {.height = kSide, .width = kSide}, out.data());
    benchmark::ClobberMemory();
  }
}

void BM_Resize(benchmark::State& state) {
  if (!choose_target(state)) return;
  resize_all(state);
  restore_target();
}
BENCHMARK(BM_Resize)->ArgName("target")->DenseRange(0, 5)->Unit(benchmark::kMicrosecond);

void BM_ResizeWithoutDots(benchmark::State& state) {
  detail::byte_dots_are_used() = false;
  resize_all(state);
  detail::byte_dots_are_used() = true;
}
BENCHMARK(BM_ResizeWithoutDots)->Unit(benchmark::kMicrosecond);

void BM_ResizeFloats(benchmark::State& state) {
  const auto picture = make_picture();
  std::vector<float> out(kSide * kSide * 3);
  const auto table = detail::normalizing_table({0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F});
  for (auto _ : state) {
    detail::write_pixels(view_of(picture), {.height = kSide, .width = kSide}, table, out.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_ResizeFloats)->Unit(benchmark::kMicrosecond);

void BM_Adjust(benchmark::State& state) {
  using Adjust = void (*)(detail::RgbImage&, float);
  constexpr Adjust kAdjusts[] = {detail::adjust_brightness, detail::adjust_contrast,
                                 detail::adjust_saturation, detail::adjust_hue};
  const Adjust adjust = kAdjusts[state.range(0)];
  const auto picture = make_picture();
  detail::RgbImage image;
  image.reshape(kSide, kSide);
  for (auto _ : state) {
    std::memcpy(image.data(), picture.data(), kSide * kSide * 3);
    adjust(image, 0.4F);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Adjust)->ArgName("what")->DenseRange(0, 3)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shardwise

BENCHMARK_MAIN();
