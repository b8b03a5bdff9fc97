// Decoding JPEGs of 500 x 375 pixels and about 80 KB, on one thread; made at run time.
//
//   BM_Jpeg_Bare             the limit: libjpeg-turbo, rows into one buffer that is used again
//   BM_Jpeg_Ours             decode_rgb, the same
//   BM_JpegCrop_*            boxes as random resized crops draw them, by jpeg_crop_scanline and
//                            jpeg_skip_scanlines; bare ones have wrong pixels at their edges
//   BM_JpegScale_*/scale:N   N eighths of the size, by the scaled DCT
//   BM_JpegProgressive_*     the same pictures, progressive
//   BM_JpegHeader_*          bare: jpeg_read_header; ours: read_image_header
#include <benchmark/benchmark.h>

#include <cstdio>
// libjpeg needs stdio.h before it.
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "decode/image_codec.h"

namespace shardwise::bench {
namespace {

using detail::Box;
using detail::decode_rgb;
using detail::DecodeRequest;
using detail::RgbImage;

constexpr std::size_t kHeight = 375;
constexpr std::size_t kWidth = 500;
constexpr int kPictures = 16;
constexpr int kQuality = 87;

/// Waves of many lengths, and noise: the detail of a photograph, and its size when compressed.
std::vector<std::uint8_t> picture(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, 11);
  std::uniform_real_distribution<double> angle(0, 6.283);
  struct Wave {
    double down, across, phase, height;
  };
  std::vector<Wave> waves;
  for (int i = 0; i < 13; ++i) {
    const double length = 400 * std::pow(1.5, -i);
    const double direction = angle(random);
    const double frequency = 6.283 / length;
    waves.push_back({frequency * std::sin(direction), frequency * std::cos(direction),
                     angle(random), 8 * std::sqrt(std::log(length))});
  }
  std::vector<std::uint8_t> pixels;
  pixels.reserve(kHeight * kWidth * 3);
  for (std::size_t y = 0; y < kHeight; ++y) {
    for (std::size_t x = 0; x < kWidth; ++x) {
      double light = 128 + noise(random);
      for (const Wave& wave : waves) {
        light += wave.height * std::sin(wave.down * static_cast<double>(y) +
                                        wave.across * static_cast<double>(x) + wave.phase);
      }
      for (const double colour : {0.03, 0.05, -0.04}) {
        const double value = light + 30 * std::sin(colour * static_cast<double>(x + y));
        pixels.push_back(static_cast<std::uint8_t>(std::min(255.0, std::max(0.0, value))));
      }
    }
  }
  return pixels;
}

std::string to_jpeg(std::vector<std::uint8_t> pixels, bool progressive) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &buffer, &size);
  jpeg.image_width = kWidth;
  jpeg.image_height = kHeight;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, kQuality, TRUE);
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = pixels.data() + jpeg.next_scanline * kWidth * 3;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  jpeg_destroy_compress(&jpeg);
  return bytes;
}

const std::vector<std::string>& files(bool progressive) {
  static const auto kMade = [] {
    std::array<std::vector<std::string>, 2> made;
    for (unsigned i = 0; i < kPictures; ++i) {
      for (const bool kind : {false, true}) made[kind ? 1 : 0].push_back(to_jpeg(picture(i), kind));
    }
    return made;
  }();
  return kMade[progressive ? 1 : 0];
}

/// Inception's rule: 8 % to 100 % of the area, sides from 3:4 to 4:3.
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

/// libjpeg-turbo as one would call it by hand.
class BareJpeg {
 public:
  void read_header(const std::string& bytes) {
    begin(bytes);
    benchmark::DoNotOptimize(jpeg_.image_width);
    jpeg_destroy_decompress(&jpeg_);
  }

  void decode(const std::string& bytes, unsigned scale) {
    begin(bytes);
    jpeg_.scale_num = scale;
    jpeg_.scale_denom = 8;
    jpeg_start_decompress(&jpeg_);
    read_rows(jpeg_.output_height);
    jpeg_finish_decompress(&jpeg_);
    jpeg_destroy_decompress(&jpeg_);
  }

  void decode_part(const std::string& bytes, const Box& box) {
    begin(bytes);
    jpeg_start_decompress(&jpeg_);
    auto left = static_cast<JDIMENSION>(box.left);
    auto width = static_cast<JDIMENSION>(box.width);
    jpeg_crop_scanline(&jpeg_, &left, &width);
    jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(box.top));
    read_rows(static_cast<JDIMENSION>(box.top + box.height));
    jpeg_destroy_decompress(&jpeg_);
  }

 private:
  void begin(const std::string& bytes) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&jpeg_);
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&jpeg_, TRUE);
  }

  void read_rows(JDIMENSION end) {
    const std::size_t stride = std::size_t{jpeg_.output_width} * 3;
    const JDIMENSION first = jpeg_.output_scanline;
    while (jpeg_.output_scanline < end) {
      JSAMPROW row = out_.data() + (jpeg_.output_scanline - first) * stride;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
  }

  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  std::vector<std::uint8_t> out_ = std::vector<std::uint8_t>(kHeight * kWidth * 3);
};

/// Calls `decode(file, i)` for one file after the other.
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
    jpeg.decode_part(bytes, boxes()[i % boxes().size()]);
  });
}

void BM_JpegCrop_Ours(benchmark::State& state) {
  RgbImage image;
  for_files(state, false, [&](const std::string& bytes, std::size_t i) {
    decode_rgb(bytes, DecodeRequest{.crop = boxes()[i % boxes().size()]}, image);
  });
}

/// Crops at the scale that a resize to 224 x 224 allows.
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
