#include "loader/agreed_options.h"

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/text.h"
#include "loader/column_maker.h"

namespace shardwise::detail {
namespace {

// What is in a struct of options is listed once, by members_of(). Each takes its struct apart with
// a structured binding, which names every member: an option that is added does not compile before
// it is listed here.

std::string text(const std::string& value) { return "'" + escaped(value) + "'"; }
std::string text(bool value) { return value ? "true" : "false"; }
template <class Number>
requires std::integral<Number> || std::floating_point<Number> std::string text(Number value) {
  std::array<char, 64> digits{};  // the shortest text that is this number and no other
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}
template <class Enum>
requires std::is_enum_v<Enum> std::string text(Enum value) {
  return text(static_cast<unsigned>(value));
}
template <class Value, std::size_t kSize>
std::string text(const std::array<Value, kSize>& values) {
  std::string all;
  for (const Value& value : values) all += (all.empty() ? "" : " ") + text(value);
  return all;
}
std::string text(const ImageTransform::Size& size) {
  const auto& [height, width] = size;
  return text(height) + "x" + text(width);
}
std::string text(const ImageTransform::Range& range) {
  const auto& [least, most] = range;
  return text(least) + " to " + text(most);
}

template <class Owner>
std::string members_text(const Owner& owner);
template <class Value>
std::string text(const std::optional<Value>& value) {
  return value ? members_text(*value) : "none";
}

Record members_of(const ImageTransform::RandomResizedCrop& crop) {
  const auto& [size, scale, ratio] = crop;
  return {{"size", text(size)}, {"scale", text(scale)}, {"ratio", text(ratio)}};
}
Record members_of(const ImageTransform::Padding& padding) {
  const auto& [top, left, bottom, right] = padding;
  return {
      {"top", text(top)}, {"left", text(left)}, {"bottom", text(bottom)}, {"right", text(right)}};
}
Record members_of(const ImageTransform::ColourJitter& jitter) {
  const auto& [probability, brightness, contrast, saturation, hue] = jitter;
  return {{"probability", text(probability)},
          {"brightness", text(brightness)},
          {"contrast", text(contrast)},
          {"saturation", text(saturation)},
          {"hue", text(hue)}};
}
Record members_of(const ImageTransform::Normalize& normalize) {
  const auto& [mean, std] = normalize;
  return {{"mean", text(mean)}, {"std", text(std)}};
}
Record members_of(const ImageTransform::RandomErasing& erasing) {
  const auto& [probability, scale, ratio, value] = erasing;
  return {{"probability", text(probability)},
          {"scale", text(scale)},
          {"ratio", text(ratio)},
          {"value", text(value)}};
}

Record members_of(const ImageTransform& transform) {
  const auto& [random_resized_crop, resize, resize_shorter_side, padding, centre_crop, random_crop,
               horizontal_flip, vertical_flip, colour_jitter, grayscale, normalize, random_erasing,
               fill, filter, type, layout] = transform;
  return {{"random_resized_crop", text(random_resized_crop)},
          {"resize", text(resize)},
          {"resize_shorter_side", text(resize_shorter_side)},
          {"padding", members_text(padding)},
          {"centre_crop", text(centre_crop)},
          {"random_crop", text(random_crop)},
          {"horizontal_flip", text(horizontal_flip)},
          {"vertical_flip", text(vertical_flip)},
          {"colour_jitter", text(colour_jitter)},
          {"grayscale", text(grayscale)},
          {"normalize", text(normalize)},
          {"random_erasing", text(random_erasing)},
          {"fill", text(fill)},
          {"filter", text(filter)},
          {"type", text(type)},
          {"layout", text(layout)}};
}
Record members_of(const ImageDecoding& decoding) {
  const auto& [max_pixels, strict, apply_orientation, scaling] = decoding;
  return {{"max_pixels", text(max_pixels)},
          {"strict", text(strict)},
          {"apply_orientation", text(apply_orientation)},
          {"scaling", text(scaling)}};
}
Record members_of(const Column::VideoClip& clip) {
  const auto& [frames, every, start, begin_seconds, end_seconds, refuse_short, max_pixels,
               max_frames] = clip;
  return {{"frames", text(frames)},
          {"every", text(every)},
          {"start", text(start)},
          {"begin_seconds", text(begin_seconds)},
          {"end_seconds", text(end_seconds)},
          {"refuse_short", text(refuse_short)},
          {"max_pixels", text(max_pixels)},
          {"max_frames", text(max_frames)}};
}
Record members_of(const Column::AudioClip& clip) {
  const auto& [sample_rate, channels, seconds, start, begin_seconds, end_seconds, fixed_length,
               max_samples] = clip;
  return {{"sample_rate", text(sample_rate)},
          {"channels", text(channels)},
          {"seconds", text(seconds)},
          {"start", text(start)},
          {"begin_seconds", text(begin_seconds)},
          {"end_seconds", text(end_seconds)},
          {"fixed_length", text(fixed_length)},
          {"max_samples", text(max_samples)}};
}
Record members_of(const Loader::ByLength& rule) {
  const auto& [field, column, unit, window, max_tokens, pack, pack_to, padding] = rule;
  return {{"field", text(field)},     {"column", text(column)},         {"unit", text(unit)},
          {"window", text(window)},   {"max_tokens", text(max_tokens)}, {"pack", text(pack)},
          {"pack_to", text(pack_to)}, {"padding", text(padding)}};
}
Record members_of(const Loader::Mix& mix) {
  const auto& [column, mixup_alpha, cutmix_alpha, probability] = mix;
  return {{"column", text(column)},
          {"mixup_alpha", text(mixup_alpha)},
          {"cutmix_alpha", text(cutmix_alpha)},
          {"probability", text(probability)}};
}

template <class Owner>
std::string members_text(const Owner& owner) {
  const Record members = members_of(owner);
  const Record defaults = members_of(Owner{});
  std::string all;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == defaults[i]) continue;
    all += (all.empty() ? "" : ", ") + members[i].first + "=" + members[i].second;
  }
  return "{" + all + "}";
}

/// "'label': integer 'cls', int64".
std::string text(const Column& column) {
  const ColumnMaker& maker = *column.maker();
  std::string all =
      text(column.name()) + ": " + maker.describe() + ", " + std::string(to_string(maker.dtype()));
  if (maker.layout() != ColumnMaker::Layout::kFixed) return all;
  all += " of shape";  // [] is one, too
  for (const std::int64_t size : maker.row_shape()) all += " " + text(size);
  return all;
}

}  // namespace

Record agreed_options(const Loader::Options& options) {
  // Threads, what they hold ahead, and where, may differ; of the order the sampler knows more.
  const auto& [columns, order, batch_size, global_batch_size, replicas, by_length, mix, threads,
               max_bad, prefetch, max_bytes_ahead, max_expanded_bytes, fetch_threads, memory] =
      options;
  std::string columns_text;
  for (const Column& column : columns) {
    columns_text += (columns_text.empty() ? "" : "; ") + text(column);
  }
  return {{"batch size", global_batch_size == 0 ? text(batch_size) : "not used"},
          {"global batch size", text(global_batch_size)},
          {"number of replicas", text(replicas)},
          {"rule of batches by length", text(by_length)},
          {"set of columns", columns_text},
          {"mixup", text(mix)},
          {"limit of bad samples", text(max_bad)},
          {"limit of expanded bytes", text(max_expanded_bytes)}};
}

std::string text_of(const ImageTransform& transform) { return members_text(transform); }
std::string text_of(const ImageDecoding& decoding) { return members_text(decoding); }
std::string text_of(const Column::VideoClip& clip) { return members_text(clip); }
std::string text_of(const Column::AudioClip& clip) { return members_text(clip); }

}  // namespace shardwise::detail
