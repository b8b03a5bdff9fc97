// Decoding of JPEGs of 500 x 375 pixels and about 80 KB, made at run time, on one thread.
//
//   BM_Jpeg_Bare             the limit: libjpeg-turbo, rows into one reused buffer
//   BM_Jpeg_Ours             decode_rgb, which does the same
//   BM_JpegCrop_*            boxes like those of random resized crops. Bare rows use
//                            jpeg_crop_scanline and jpeg_skip_scanlines: wrong pixels at edges
//   BM_JpegScale_*/scale:N   N eighths of the size, by the scaled DCT
//   BM_JpegProgressive_*     the same pictures, progressive
//   BM_JpegHeader_*          bare: jpeg_read_header; ours: read_image_header
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "decode/image_codec.h"
#include "support/pictures.h"

namespace shardwise::bench {
namespace {

using detail::Box;
using detail::decode_rgb;
using detail::DecodeRequest;
using detail::RgbImage;

constexpr std::size_t kHeight = kPictureHeight;
constexpr std::size_t kWidth = kPictureWidth;
constexpr int kPictures = 16;

const std::vector<std::string>& files(bool progressive) {
  static const auto kMade = [] {
    std::array<std::vector<std::string>, 2> made;
    for (unsigned i = 0; i < kPictures; ++i) {
      for (const bool kind : {false, true}) made[kind ? 1 : 0].push_back(make_jpeg(i, kind));
    }
    return made;
  }();
  return kMade[progressive ? 1 : 0];
}

/// Boxes by Inception's rule: 8 % to 100 % of the area, aspect ratios from 3:4 to 4:3.
const std::vector<Box>& boxes() {
  static const auto kMade = [] {
    std::mt19937 random(17);
    std::uniform_real_distribution<double> unit(0, 1);
    std::vector<Box> made;
    while (made.size() < 61) {
      const double area = (0.08 + 0.92 * unit(random)) * kHeight * kWidth;
      const double ratio = std::exp((2 * unit(random) - 1) * std::log(4.0 / 3));
      const auto height = static_cast<std::size_t>(std::sqrt(area / ratio));
      const auto width = static_cast<std::size_t>(std::sqrt(area * ratio));
      if (height > kHeight || width > kWidth) continue;
      const auto below = static_cast<double>(kHeight - height + 1);
      const auto beside = static_cast<double>(kWidth - width + 1);
      made.push_back({static_cast<std::size_t>(unit(random) * below),
                      static_cast<std::size_t>(unit(random) * beside), height, width});
    }
    return made;
  }();
  return kMade;
}

/// Calls `decode(file, i)` for one file after another.
template <class Decode>
void for_files(benchmark::State& state, bool progressive, Decode&& decode) {
  const std::vector<std::string>& all = files(progressive);
  std::size_t i = 0;
  std::size_t num_bytes = 0;
  for (auto _ : state) {
    const std::string& bytes = all[i % all.size()];
    decode(bytes, i);
    num_bytes += bytes.size();
    ++i;
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["file_bytes"] = static_cast<double>(num_bytes) / static_cast<double>(i);
}

void decode_bare(benchmark::State& state, bool progressive, unsigned scale) {
  BareJpeg jpeg;
  for_files(state, progressive,
            [&](const std::string& bytes, std::size_t) { jpeg.decode(bytes, scale); });
}

void decode_ours(benchmark::State& state, bool progressive, unsigned scale) {
  RgbImage image;
  for_files(state, progressive, [&](const std::string& bytes, std::size_t) {
    decode_rgb(bytes, DecodeRequest{.scale = scale}, image);
  });
}

void BM_Jpeg_Bare(benchmark::State& state) { decode_bare(state, false, 8); }
void BM_Jpeg_Ours(benchmark::State& state) { decode_ours(state, false, 8); }
void BM_JpegProgressive_Bare(benchmark::State& state) { decode_bare(state, true, 8); }
void BM_JpegProgressive_Ours(benchmark::State& state) { decode_ours(state, true, 8); }

void BM_JpegScale_Bare(benchmark::State& state) {
  decode_bare(state, false, static_cast<unsigned>(state.range(0)));
}
void BM_JpegScale_Ours(benchmark::State& state) {
  decode_ours(state, false, static_cast<unsigned>(state.range(0)));
}

void BM_JpegCrop_Bare(benchmark::State& state) {
  BareJpeg jpeg;
  for_files(state, false, [&](const std::string& bytes, std::size_t i) {
    const Box& box = boxes()[i % boxes().size()];
    jpeg.decode_part(bytes, box.top, box.left, box.height, box.width);
  });
}

void BM_JpegCrop_Ours(benchmark::State& state) {
  RgbImage image;
  for_files(state, false, [&](const std::string& bytes, std::size_t i) {
    decode_rgb(bytes, DecodeRequest{.crop = boxes()[i % boxes().size()]}, image);
  });
}

/// Decodes crops at the smallest scale that is enough for a resize to 224 x 224.
void BM_JpegCrop_OursScaled(benchmark::State& state) {
  RgbImage image;
  const auto rule = static_cast<detail::ScaleRule>(state.range(0));
  for_files(state, false, [&](const std::string& bytes, std::size_t i) {
    const Box& box = boxes()[i % boxes().size()];
    decode_rgb(bytes,
               DecodeRequest{.crop = box,
                             .scale = detail::choose_scale(box.height, box.width, 224, 224, rule)},
               image);
  });
}

void BM_JpegHeader_Bare(benchmark::State& state) {
  BareJpeg jpeg;
  for_files(state, false, [&](const std::string& bytes, std::size_t) { jpeg.read_header(bytes); });
}

void BM_JpegHeader_Ours(benchmark::State& state) {
  for_files(state, false, [&](const std::string& bytes, std::size_t) {
    benchmark::DoNotOptimize(detail::read_image_header(bytes));
  });
}

BENCHMARK(BM_Jpeg_Bare)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Jpeg_Ours)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegCrop_Bare)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegCrop_Ours)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegCrop_OursScaled)->ArgName("rule")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegScale_Bare)->ArgName("scale")->DenseRange(1, 8)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegScale_Ours)
    ->ArgName("scale")
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegProgressive_Bare)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegProgressive_Ours)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegHeader_Bare)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_JpegHeader_Ours)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shardwise::bench

BENCHMARK_MAIN();
