#include <cstdint>
#include <future>
#include <utility>
#include <vector>

#include "counted_memory.h"
#include "decode/decode_failure.h"
#include "decode/image_codec.h"
#include "loader/image_rows.h"
#include "loader/transform.h"
#include "support/images.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

using detail::RgbImage;

constexpr std::uint64_t kMaxTestPixels = std::uint64_t{1} << 23;
/// Limit on the memory for kMaxTestPixels pixels. An image takes 3 bytes per pixel, and a rotated
/// or horizontally resized copy takes 3 more. The coefficients of a progressive file take 8 bytes
/// per pixel. The rest is for the tables of a resize.
constexpr std::size_t kMaxMemory = std::size_t{256} << 20;

void decode_and_resize(std::string_view bytes, unsigned control) try {
  const ImageTransform transform{.resize = {32, 32},
                                 .filter = (control & 4) != 0 ? ImageTransform::Filter::kBicubic
                                                              : ImageTransform::Filter::kBilinear};
  const detail::ImageTransformer transformer(transform);
  const detail::ImageHeader header = detail::read_image_header(bytes);
  const bool is_turned = (control & 2) != 0;
  const bool swaps = is_turned && header.orientation >= 5;
  const ImageTransform::Size stored{swaps ? header.width : header.height,
                                    swaps ? header.height : header.width};
  const detail::ImagePlan plan = detail::plan_within(transformer, stored, {}, kMaxTestPixels);
  RgbImage image;
  detail::decode_rgb(
      bytes,
      {.max_pixels = kMaxTestPixels, .strict = (control & 1) != 0, .apply_orientation = is_turned},
      image);
  std::vector<std::uint8_t> row(plan.height * plan.width * 3);
  transformer.apply(plan, image.view(), row.data());
} catch (const detail::DecodeFailure&) {
  return;  // the image is refused, but its memory counts
}

}  // namespace

void image_memory_target(std::string_view input) {
  if (input.empty()) return;
  // A new thread has no scratch memory of earlier images.
  std::async(std::launch::async, [&] {
    const CountedMemory memory;
    decode_and_resize(input.substr(1), static_cast<unsigned char>(input[0]));
    SHARDWISE_FUZZ_REQUIRE(memory.peak() <= kMaxMemory);
  }).get();
}

std::vector<std::string> image_memory_seeds() {
  const test::Rgb picture = test::test_picture(21, 14);
  std::vector<std::string> files = {test::encode_jpeg(picture, 80, true), test::encode_png(picture),
                                    test::encode_webp(picture, true)};
  // Small files with many pixels, on both sides of the limits.
  for (const auto& [width, height] :
       {std::pair{1U << 23, 1U}, {1U << 20, 1U}, {1U, 1U << 20}, {1U, 1U << 18}, {2048U, 2048U}}) {
    files.push_back(test::black_png(width, height));
  }
  std::vector<std::string> seeds;
  for (std::size_t i = 0; i < files.size(); ++i) {
    seeds.push_back(static_cast<char>(i % 8) + files[i]);
  }
  return seeds;
}

}  // namespace shardwise::fuzz
