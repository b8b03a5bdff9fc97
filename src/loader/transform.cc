#include "loader/transform.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/of_thread.h"
#include "decode/colour.h"
#include "decode/decode_failure.h"
#include "loader/stable_math.h"
#include "shardwise/base/error.h"

// Compiled without fused multiply-add, so that plans are the same on every machine.

namespace shardwise::detail {
namespace {

using Range = ImageTransform::Range;
using Size = ImageTransform::Size;
using Type = ImageTransform::Type;

constexpr std::size_t kMaxSide = std::size_t{1} << 24;
constexpr int kTries = 10;

// ------------------------------------------------------------------------------------------ checks

void require(bool holds, const std::string& what, const std::string& remedy) {
  if (!holds) throw InvalidArgument("cannot transform images: " + what, {}, remedy);
}

void check_size(const Size& size, const std::string& name, bool is_optional) {
  if (is_optional && size.empty()) return;
  require(size.height > 0 && size.width > 0 && size.height <= kMaxSide && size.width <= kMaxSide,
          name + " is " + size_text(size.height, size.width),
          "choose a height and a width from 1 to 2^24");
}

void check_range(const Range& range, double least, double most, const std::string& name,
                 const std::string& remedy) {
  require(range.least >= least && range.least <= range.most && range.most <= most,
          name + " is [" + std::to_string(range.least) + ", " + std::to_string(range.most) + "]",
          remedy);
}

void check_probability(double probability, const std::string& name) {
  require(probability >= 0 && probability <= 1,
          name + " is " + std::to_string(probability) + ", which is not a probability",
          "choose a number from 0 to 1");
}

void check_shape(const Range& scale, const Range& ratio, const std::string& name) {
  check_range(scale, 0, 1, name + ".scale",
              "give two fractions of the area from 0 to 1, the smaller one first");
  check_range(ratio, 1e-6, 1e6, name + ".ratio", "give two positive ratios, the smaller one first");
}

void check_crops(const ImageTransform& transform) {
  check_size(transform.resize, "resize", true);
  check_size(transform.centre_crop, "centre_crop", true);
  check_size(transform.random_crop, "random_crop", true);
  require(transform.resize_shorter_side <= kMaxSide, "resize_shorter_side is too large",
          "choose at most 2^24");
  const ImageTransform::Padding& padding = transform.padding;
  require(std::max({padding.top, padding.left, padding.bottom, padding.right}) <= kMaxSide,
          "padding is too large", "choose at most 2^24");
  require(transform.centre_crop.empty() || transform.random_crop.empty(),
          "centre_crop and random_crop are both given", "leave out one of the two");
  const int num_resizes = (transform.random_resized_crop.has_value() ? 1 : 0) +
                          (transform.resize.empty() ? 0 : 1) +
                          (transform.resize_shorter_side > 0 ? 1 : 0);
  require(num_resizes <= 1,
          "more than one of random_resized_crop, resize and resize_shorter_side is given",
          "leave out all but one");
  if (!transform.random_resized_crop) return;
  check_size(transform.random_resized_crop->size, "random_resized_crop.size", false);
  check_shape(transform.random_resized_crop->scale, transform.random_resized_crop->ratio,
              "random_resized_crop");
}

void check_colours(const ImageTransform& transform) {
  check_probability(transform.grayscale, "grayscale");
  if (!transform.colour_jitter) return;
  const ImageTransform::ColourJitter& jitter = *transform.colour_jitter;
  check_probability(jitter.probability, "colour_jitter");
  const std::string factors = "give two factors from 0 to 1000, the smaller one first";
  check_range(jitter.brightness, 0, 1000, "colour_jitter.brightness", factors);
  check_range(jitter.contrast, 0, 1000, "colour_jitter.contrast", factors);
  check_range(jitter.saturation, 0, 1000, "colour_jitter.saturation", factors);
  check_range(jitter.hue, -0.5, 0.5, "colour_jitter.hue",
              "give two fractions of the colour circle from -0.5 to 0.5, the smaller one first");
}

void check_kept_values(const ImageTransform& transform) {
  const std::pair<const char*, bool> steps[] = {
      {"random_resized_crop", transform.random_resized_crop.has_value()},
      {"resize", !transform.resize.empty()},
      {"resize_shorter_side", transform.resize_shorter_side != 0},
      {"colour_jitter", transform.colour_jitter.has_value()},
      {"grayscale", transform.grayscale != 0}};
  for (const auto& [name, is_given] : steps) {
    require(!is_given, std::string(name) + " is given, but type uint16 keeps the values",
            "leave out this step, or choose another type");
  }
}

void check_values(const ImageTransform& transform) {
  const bool is_16_bits = transform.type == Type::kUint16;
  const bool is_whole = transform.type == Type::kUint8 || is_16_bits;
  const float most = is_16_bits ? 65535.0F : 255.0F;
  if (is_16_bits) check_kept_values(transform);
  if (transform.normalize) {
    require(!is_whole,
            std::string("normalize is given, but type is ") + (is_16_bits ? "uint16" : "uint8"),
            "choose a floating-point type");
    for (std::size_t c = 0; c < 3; ++c) {
      require(std::isfinite(transform.normalize->mean[c]) &&
                  std::isfinite(transform.normalize->std[c]) && transform.normalize->std[c] > 0,
              "a mean or std of normalize is not finite, or a std is not positive",
              "give the mean and the standard deviation of each channel, scaled so that 255 is 1");
    }
  }
  if (!transform.random_erasing) return;
  check_probability(transform.random_erasing->probability, "random_erasing");
  check_shape(transform.random_erasing->scale, transform.random_erasing->ratio, "random_erasing");
  for (const float value : transform.random_erasing->value) {
    require(std::isfinite(value) && (!is_whole || (value >= 0 && value <= most)),
            "random_erasing.value is " + std::to_string(value),
            "give each channel a number" +
                (is_whole ? " from 0 to " + std::to_string(static_cast<int>(most)) : ""));
  }
}

// ------------------------------------------------------------------------------------------- plans

struct Shape {
  std::size_t height;
  std::size_t width;
};

/// Draws the sides of a random part of an area, with a random aspect ratio (first side / second).
std::pair<double, double> draw_sides(SampleRandom& random, double area, const Range& scale,
                                     const Range& ratio) {
  const double part = area * random.uniform(scale);
  const double shape =
      stable_exp(random.uniform({stable_log(ratio.least), stable_log(ratio.most)}));
  return {round_to_even(std::sqrt(part * shape)), round_to_even(std::sqrt(part / shape))};
}

Box placed(SampleRandom& random, const Size& within, const Shape& shape) {
  const std::size_t top = random.below(within.height - shape.height + 1);
  const std::size_t left = random.below(within.width - shape.width + 1);
  return {top, left, shape.height, shape.width};
}

Box centred(const Size& within, const Shape& shape) {
  return {(within.height - shape.height) / 2, (within.width - shape.width) / 2, shape.height,
          shape.width};
}

Box draw_resized_crop(const ImageTransform::RandomResizedCrop& crop, const Size& stored,
                      const Hash128& key) {
  SampleRandom random(key, Operation::kRandomResizedCrop);
  const auto height = static_cast<double>(stored.height);
  const auto width = static_cast<double>(stored.width);
  for (int i = 0; i < kTries; ++i) {
    const auto [w, h] = draw_sides(random, height * width, crop.scale, crop.ratio);
    if (w < 1 || w > width || h < 1 || h > height) continue;
    return placed(random, stored, {static_cast<std::size_t>(h), static_cast<std::size_t>(w)});
  }
  const double ratio = width / height;
  Shape shape{stored.height, stored.width};
  if (ratio < crop.ratio.least) {
    shape.height = static_cast<std::size_t>(std::max(1.0, round_to_even(width / crop.ratio.least)));
  } else if (ratio > crop.ratio.most) {
    shape.width = static_cast<std::size_t>(std::max(1.0, round_to_even(height * crop.ratio.most)));
  }
  return centred(stored, shape);
}

Size resized_size(const ImageTransform& transform, const Size& stored) {
  if (transform.random_resized_crop) return transform.random_resized_crop->size;
  if (!transform.resize.empty()) return transform.resize;
  const std::size_t shorter = transform.resize_shorter_side;
  if (shorter == 0) return stored;
  if (stored.width <= stored.height) return {shorter * stored.height / stored.width, shorter};
  return {shorter, shorter * stored.width / stored.height};
}

/// The steps after the resize, along one axis: pixels [begin, begin + size) of the resized image
/// appear from `at` on in a result of `length` pixels.
struct Span {
  std::size_t begin = 0;
  std::size_t size = 0;
  std::size_t at = 0;
  std::size_t length = 0;
};

/// @param before   padding before the resized image's `size` pixels.
/// @param first    the first pixel of the padded image that is shown.
/// @param length   number of pixels shown.
Span span_of(std::size_t size, std::size_t before, std::size_t first, std::size_t length) {
  const std::size_t begin = std::max(before, first);
  const std::size_t end = std::min(before + size, first + length);
  if (begin >= end) return {0, 0, 0, length};
  return {begin - before, end - begin, begin - first, length};
}

Span centre_span(std::size_t size, std::size_t before, std::size_t after, std::size_t length) {
  const std::size_t whole = before + size + after;
  if (length > whole) return span_of(size, before + (length - whole) / 2, 0, length);
  const auto first = round_to_even(static_cast<double>(whole - length) / 2);
  return span_of(size, before, static_cast<std::size_t>(first), length);
}

Span random_span(std::size_t size, std::size_t before, std::size_t after, std::size_t length,
                 SampleRandom& random) {
  std::size_t whole = before + size + after;
  if (length > whole) {
    const std::size_t lacking = length - whole;
    before += lacking;
    whole += 2 * lacking;
  }
  return span_of(size, before, random.below(whole - length + 1), length);
}

std::pair<Span, Span> shown_spans(const ImageTransform& transform, const Size& resized,
                                  const Hash128& key) {
  const ImageTransform::Padding& pad = transform.padding;
  if (!transform.random_crop.empty()) {
    SampleRandom random(key, Operation::kRandomCrop);
    const Span down =
        random_span(resized.height, pad.top, pad.bottom, transform.random_crop.height, random);
    const Span across =
        random_span(resized.width, pad.left, pad.right, transform.random_crop.width, random);
    return {down, across};
  }
  if (!transform.centre_crop.empty()) {
    return {centre_span(resized.height, pad.top, pad.bottom, transform.centre_crop.height),
            centre_span(resized.width, pad.left, pad.right, transform.centre_crop.width)};
  }
  return {span_of(resized.height, pad.top, 0, pad.top + resized.height + pad.bottom),
          span_of(resized.width, pad.left, 0, pad.left + resized.width + pad.right)};
}

std::optional<ImagePlan::Jitter> draw_jitter(const ImageTransform::ColourJitter& ranges,
                                             const Hash128& key) {
  SampleRandom random(key, Operation::kColourJitter);
  if (!random.chance(ranges.probability)) return {};
  ImagePlan::Jitter jitter;
  jitter.order = {ImagePlan::Adjustment::kBrightness, ImagePlan::Adjustment::kContrast,
                  ImagePlan::Adjustment::kSaturation, ImagePlan::Adjustment::kHue};
  for (std::size_t i = 3; i > 0; --i) std::swap(jitter.order[i], jitter.order[random.below(i + 1)]);
  jitter.amounts[0] = random.uniform(ranges.brightness);
  jitter.amounts[1] = random.uniform(ranges.contrast);
  jitter.amounts[2] = random.uniform(ranges.saturation);
  jitter.amounts[3] = random.uniform(ranges.hue);
  return jitter;
}

std::optional<Box> draw_erased(const ImageTransform::RandomErasing& erasing, const Size& result,
                               const Hash128& key) {
  SampleRandom random(key, Operation::kRandomErasing);
  if (!random.chance(erasing.probability)) return {};
  const auto height = static_cast<double>(result.height);
  const auto width = static_cast<double>(result.width);
  for (int i = 0; i < kTries; ++i) {
    const auto [h, w] = draw_sides(random, height * width, erasing.scale, erasing.ratio);
    if (h >= height || w >= width) continue;
    return placed(random, result, {static_cast<std::size_t>(h), static_cast<std::size_t>(w)});
  }
  return {};
}

// ------------------------------------------------------------------------------------------ pixels

void adjust(RgbImage& image, const ImagePlan::Jitter& jitter) {
  for (const ImagePlan::Adjustment adjustment : jitter.order) {
    const auto amount = static_cast<float>(jitter.amounts[static_cast<std::size_t>(adjustment)]);
    switch (adjustment) {
      case ImagePlan::Adjustment::kBrightness:
        if (amount != 1) adjust_brightness(image, amount);
        break;
      case ImagePlan::Adjustment::kContrast:
        if (amount != 1) adjust_contrast(image, amount);
        break;
      case ImagePlan::Adjustment::kSaturation:
        if (amount != 1) adjust_saturation(image, amount);
        break;
      case ImagePlan::Adjustment::kHue:
        if (amount != 0) adjust_hue(image, amount);
        break;
    }
  }
}

PixelLayout layout_of(const ImageTransform& transform) {
  return transform.layout == ImageTransform::Layout::kChannelsFirst ? PixelLayout::kChannelsFirst
                                                                    : PixelLayout::kChannelsLast;
}

template <class Value>
void erase_box(const ImagePlan& plan, PixelLayout layout, const std::array<Value, 3>& value,
               Value* out) {
  const Box& box = *plan.erased;
  const bool is_planar = layout == PixelLayout::kChannelsFirst;
  const std::size_t step = is_planar ? 1 : 3;
  const std::size_t plane = is_planar ? plan.height * plan.width : 1;
  for (std::size_t y = box.top; y < box.top + box.height; ++y) {
    for (std::size_t x = box.left; x < box.left + box.width; ++x) {
      Value* pixel = out + (y * plan.width + x) * step;
      for (std::size_t c = 0; c < 3; ++c) pixel[c * plane] = value[c];
    }
  }
}

std::uint16_t to_half(Type type, float value) {
  return type == Type::kFloat16 ? to_float16(value) : to_bfloat16(value);
}

}  // namespace

ImageTransformer::ImageTransformer(const ImageTransform& transform) : transform_(transform) {
  check_crops(transform);
  check_probability(transform.horizontal_flip, "horizontal_flip");
  check_probability(transform.vertical_flip, "vertical_flip");
  check_colours(transform);
  check_values(transform);
  if (transform.type == Type::kUint8 || transform.type == Type::kUint16) return;
  const auto [mean, std] =
      transform.normalize.value_or(ImageTransform::Normalize{{0, 0, 0}, {1, 1, 1}});
  floats_ = normalizing_table(mean, std);
  if (transform.type == Type::kFloat32) return;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t i = 0; i < 256; ++i) halves_[c][i] = to_half(transform.type, floats_[c][i]);
  }
}

std::optional<ImageTransform::Size> ImageTransformer::fixed_size() const noexcept {
  if (!transform_.random_crop.empty()) return transform_.random_crop;
  if (!transform_.centre_crop.empty()) return transform_.centre_crop;
  Size size = transform_.resize;
  if (transform_.random_resized_crop) size = transform_.random_resized_crop->size;
  if (size.empty()) return {};
  const ImageTransform::Padding& pad = transform_.padding;
  return Size{pad.top + size.height + pad.bottom, pad.left + size.width + pad.right};
}

std::size_t ImageTransformer::value_bytes() const noexcept {
  switch (transform_.type) {
    case Type::kUint8:
      return 1;
    case Type::kFloat32:
      return 4;
    case Type::kUint16:
    case Type::kFloat16:
    case Type::kBfloat16:
      break;
  }
  return 2;
}

ImagePlan ImageTransformer::plan(const Size& stored, const Hash128& key) const {
  SHARDWISE_ASSERT(stored.height > 0 && stored.width > 0);
  ImagePlan plan;
  plan.source = {0, 0, stored.height, stored.width};
  if (transform_.random_resized_crop) {
    plan.source = draw_resized_crop(*transform_.random_resized_crop, stored, key);
  }
  const Size resized = resized_size(transform_, stored);
  const auto [down, across] = shown_spans(transform_, resized, key);
  plan.part = {resized.height, resized.width, {down.begin, across.begin, down.size, across.size}};
  plan.height = down.length;
  plan.width = across.length;
  plan.top = down.at;
  plan.left = across.at;
  if (resized == Size{plan.source.height, plan.source.width} && down.size > 0 && across.size > 0) {
    // Without a resize, only visible pixels need decoding.
    plan.source.top += down.begin;
    plan.source.left += across.begin;
    plan.source.height = down.size;
    plan.source.width = across.size;
    plan.part = ResizedPart::whole(down.size, across.size);
  }
  plan.flips.horizontal =
      SampleRandom(key, Operation::kHorizontalFlip).chance(transform_.horizontal_flip);
  plan.flips.vertical =
      SampleRandom(key, Operation::kVerticalFlip).chance(transform_.vertical_flip);
  if (transform_.colour_jitter) plan.jitter = draw_jitter(*transform_.colour_jitter, key);
  plan.is_gray = SampleRandom(key, Operation::kGrayscale).chance(transform_.grayscale);
  if (transform_.random_erasing) {
    plan.erased = draw_erased(*transform_.random_erasing, {plan.height, plan.width}, key);
  }
  return plan;
}

void ImageTransformer::write(const RgbView& image, const PixelTarget& target, void* out) const {
  switch (transform_.type) {
    case Type::kUint8:
      return write_pixels(image, target, static_cast<std::uint8_t*>(out));
    case Type::kUint16:
      return copy_pixels(image, target, static_cast<std::uint16_t*>(out));
    case Type::kFloat32:
      return write_pixels(image, target, floats_, static_cast<float*>(out));
    case Type::kFloat16:
    case Type::kBfloat16:
      return write_pixels(image, target, halves_, static_cast<std::uint16_t*>(out));
  }
}

void ImageTransformer::erase(const ImagePlan& plan, void* out) const {
  const PixelLayout layout = layout_of(transform_);
  const std::array<float, 3>& value = transform_.random_erasing->value;
  if (transform_.type == Type::kFloat32) {
    return erase_box(plan, layout, value, static_cast<float*>(out));
  }
  if (transform_.type == Type::kUint8) {
    std::array<std::uint8_t, 3> bytes{};
    for (std::size_t c = 0; c < 3; ++c) bytes[c] = static_cast<std::uint8_t>(value[c]);
    return erase_box(plan, layout, bytes, static_cast<std::uint8_t*>(out));
  }
  std::array<std::uint16_t, 3> halves{};
  for (std::size_t c = 0; c < 3; ++c) {
    halves[c] = transform_.type == Type::kUint16 ? static_cast<std::uint16_t>(value[c])
                                                 : to_half(transform_.type, value[c]);
  }
  erase_box(plan, layout, halves, static_cast<std::uint16_t*>(out));
}

bool ImageTransformer::keeps_pixels(const ImagePlan& plan) const noexcept {
  const Box shown{.height = plan.source.height, .width = plan.source.width};
  return transform_.type == ImageTransform::Type::kUint8 &&
         transform_.layout == ImageTransform::Layout::kChannelsLast && plan.part.window == shown &&
         plan.part.height == shown.height && plan.part.width == shown.width &&
         plan.height == shown.height && plan.width == shown.width && !plan.flips.horizontal &&
         !plan.flips.vertical && !plan.jitter && !plan.is_gray && !plan.erased;
}

void ImageTransformer::apply(const ImagePlan& plan, const RgbView& source, void* out) const {
  SHARDWISE_ASSERT(source.height > 0 && source.width > 0);
  const Box& window = plan.part.window;
  PixelTarget target{
      .height = plan.height,
      .width = plan.width,
      .part = plan.part,
      .top = plan.flips.vertical ? plan.height - plan.top - window.height : plan.top,
      .left = plan.flips.horizontal ? plan.width - plan.left - window.width : plan.left,
      .fill = transform_.fill,
      .layout = layout_of(transform_),
      .filter = transform_.filter == ImageTransform::Filter::kBicubic ? Filter::kBicubic
                                                                      : Filter::kBilinear,
      .flips = plan.flips};
  if (plan.jitter || plan.is_gray) {
    RgbImage& image = detail::of_thread<RgbImage>([] {});
    image.reshape(plan.height, plan.width);
    target.layout = PixelLayout::kChannelsLast;
    write_pixels(source, target, image.data());
    if (plan.jitter) adjust(image, *plan.jitter);
    if (plan.is_gray) make_gray(image);
    write(image.view(),
          {.height = plan.height, .width = plan.width, .layout = layout_of(transform_)}, out);
  } else {
    write(source, target, out);
  }
  if (plan.erased) erase(plan, out);
}

}  // namespace shardwise::detail
