#include "support/pictures.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "shardwise/tar/shard_writer.h"

namespace shardwise::bench {
namespace fs = std::filesystem;
namespace {

constexpr unsigned kPictures = 16;
constexpr int kQuality = 87;

/// Returns waves of many lengths plus noise. Detail and compressed size are like a photograph's.
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
  pixels.reserve(kPictureHeight * kPictureWidth * 3);
  for (std::size_t y = 0; y < kPictureHeight; ++y) {
    for (std::size_t x = 0; x < kPictureWidth; ++x) {
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
  jpeg.image_width = kPictureWidth;
  jpeg.image_height = kPictureHeight;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, kQuality, TRUE);
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = pixels.data() + jpeg.next_scanline * kPictureWidth * 3;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  jpeg_destroy_compress(&jpeg);
  return bytes;
}

}  // namespace

std::string make_jpeg(unsigned seed, bool progressive) {
  return to_jpeg(picture(seed), progressive);
}

ShardSet picture_shards(std::uint64_t num_samples) {
  constexpr std::uint64_t kShards = 4;
  ShardSet set{.dir = fixture_dir() + "/pictures-" + std::to_string(num_samples),
               .field = "jpg",
               .shards = {},
               .num_samples = num_samples,
               .field_bytes = 0};
  for (std::uint64_t shard = 0; shard < kShards; ++shard) {
    set.shards.push_back(set.dir + "/train-" + std::to_string(shard) + ".tar");
  }
  if (fs::exists(set.dir + "/complete")) return set;
  fs::remove_all(set.dir);
  fs::create_directories(set.dir);
  std::vector<std::string> pictures;
  for (unsigned i = 0; i < kPictures; ++i) pictures.push_back(make_jpeg(i, false));
  ShardWriter writer({.before = set.dir + "/train-", .digits = 1},
                     {.max_samples = (num_samples + kShards - 1) / kShards, .replace = true});
  for (std::uint64_t sample = 0; sample < num_samples; ++sample) {
    const std::string label = std::to_string(sample % 1000);
    const ShardWriter::Field fields[] = {{"jpg", pictures[sample % kPictures]}, {"cls", label}};
    writer.write(key_of(sample), fields);
  }
  writer.close();
  std::ofstream(set.dir + "/complete") << "ok\n";
  return set;
}

void BareJpeg::read_header(std::string_view bytes) {
  begin(bytes);
  jpeg_destroy_decompress(&jpeg_);
}

void BareJpeg::decode(std::string_view bytes, unsigned scale) {
  begin(bytes);
  jpeg_.scale_num = scale;
  jpeg_.scale_denom = 8;
  jpeg_start_decompress(&jpeg_);
  read_rows(jpeg_.output_height);
  jpeg_finish_decompress(&jpeg_);
  jpeg_destroy_decompress(&jpeg_);
}

void BareJpeg::decode_part(std::string_view bytes, std::size_t top, std::size_t left,
                           std::size_t height, std::size_t width) {
  begin(bytes);
  jpeg_start_decompress(&jpeg_);
  auto first = static_cast<JDIMENSION>(left);
  auto count = static_cast<JDIMENSION>(width);
  jpeg_crop_scanline(&jpeg_, &first, &count);
  jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(top));
  read_rows(static_cast<JDIMENSION>(top + height));
  jpeg_destroy_decompress(&jpeg_);
}

void BareJpeg::begin(std::string_view bytes) {
  jpeg_.err = jpeg_std_error(&errors_);
  jpeg_create_decompress(&jpeg_);
  jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&jpeg_, TRUE);
}

void BareJpeg::read_rows(JDIMENSION end) {
  const std::size_t stride = std::size_t{jpeg_.output_width} * 3;
  const JDIMENSION first = jpeg_.output_scanline;
  while (jpeg_.output_scanline < end) {
    JSAMPROW row = out_.data() + (jpeg_.output_scanline - first) * stride;
    jpeg_read_scanlines(&jpeg_, &row, 1);
  }
}

}  // namespace shardwise::bench
