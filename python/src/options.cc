#include "options.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>

#include "base/text.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

template <class Enum>
struct Name {
  const char* name;
  Enum value;
};

constexpr Name<ImageTransform::Filter> kFilters[] = {
    {"bilinear", ImageTransform::Filter::kBilinear}, {"bicubic", ImageTransform::Filter::kBicubic}};
constexpr Name<ImageTransform::Type> kTypes[] = {{"uint8", ImageTransform::Type::kUint8},
                                                 {"float32", ImageTransform::Type::kFloat32},
                                                 {"float16", ImageTransform::Type::kFloat16},
                                                 {"bfloat16", ImageTransform::Type::kBfloat16},
                                                 {"uint16", ImageTransform::Type::kUint16}};
constexpr Name<ImageTransform::Layout> kLayouts[] = {
    {"channels_first", ImageTransform::Layout::kChannelsFirst},
    {"channels_last", ImageTransform::Layout::kChannelsLast}};
constexpr Name<ImageDecoding::Scaling> kScalings[] = {
    {"exact", ImageDecoding::Scaling::kExact},
    {"not_smaller", ImageDecoding::Scaling::kNotSmaller},
    {"fast", ImageDecoding::Scaling::kFast}};
constexpr Name<Column::ClipStart> kStarts[] = {{"first", Column::ClipStart::kFirst},
                                               {"centre", Column::ClipStart::kCentre},
                                               {"random", Column::ClipStart::kRandom}};

[[noreturn]] void refuse(std::string_view option, nb::handle value, const std::string& advice) {
  throw InvalidArgument("an option has no valid value", std::string(option) + "=" + shown(value),
                        advice);
}

template <class T>
void take(nb::handle record, const char* option, T& to) {
  const nb::object value = record.attr(option);
  if (!nb::try_cast(value, to)) refuse(option, value, "see the description of the option");
}

template <class Enum, std::size_t kSize>
void take(nb::handle record, const char* option, const Name<Enum> (&names)[kSize], Enum& to) {
  const nb::object value = record.attr(option);
  std::string own;
  const bool is_text = nb::try_cast(value, own);
  std::string choices;
  for (const Name<Enum>& name : names) {
    if (is_text && own == name.name) {
      to = name.value;
      return;
    }
    choices += (choices.empty() ? "" : ", ") + std::string(name.name);
  }
  refuse(option, value, "choose one of: " + choices);
}

/// A number for a square, or (height, width); None is left as it is.
void take(nb::handle record, const char* option, ImageTransform::Size& to) {
  const nb::object value = record.attr(option);
  if (value.is_none()) return;
  std::pair<std::size_t, std::size_t> sides;
  if (nb::try_cast(value, sides.first)) {
    to = {sides.first, sides.first};
  } else if (nb::try_cast(value, sides)) {
    to = {sides.first, sides.second};
  } else {
    refuse(option, value, "give the side of a square in pixels, or (height, width)");
  }
}

void take(nb::handle record, const char* option, ImageTransform::Range& to) {
  const nb::object value = record.attr(option);
  std::pair<double, double> range;
  if (!nb::try_cast(value, range)) refuse(option, value, "give two numbers: (least, most)");
  to = {range.first, range.second};
}

/// One number for all three, or three.
template <class T>
void take(nb::handle record, const char* option, std::array<T, 3>& to) {
  const nb::object value = record.attr(option);
  T one{};
  if (nb::try_cast(value, one)) {
    to = {one, one, one};
  } else if (!nb::try_cast(value, to)) {
    refuse(option, value, "give a number for each of the three channels");
  }
}

ImageTransform::RandomResizedCrop random_resized_crop(nb::handle record) {
  ImageTransform::RandomResizedCrop crop;
  take(record, "size", crop.size);
  take(record, "scale", crop.scale);
  take(record, "ratio", crop.ratio);
  return crop;
}

ImageTransform::Padding padding(nb::handle record) {
  ImageTransform::Padding sides;
  take(record, "top", sides.top);
  take(record, "left", sides.left);
  take(record, "bottom", sides.bottom);
  take(record, "right", sides.right);
  return sides;
}

ImageTransform::ColourJitter colour_jitter(nb::handle record) {
  ImageTransform::ColourJitter jitter;
  take(record, "probability", jitter.probability);
  take(record, "brightness", jitter.brightness);
  take(record, "contrast", jitter.contrast);
  take(record, "saturation", jitter.saturation);
  take(record, "hue", jitter.hue);
  return jitter;
}

ImageTransform::Normalize normalize(nb::handle record) {
  ImageTransform::Normalize by;
  take(record, "mean", by.mean);
  take(record, "std", by.std);
  return by;
}

ImageTransform::RandomErasing random_erasing(nb::handle record) {
  ImageTransform::RandomErasing erasing;
  take(record, "probability", erasing.probability);
  take(record, "scale", erasing.scale);
  take(record, "ratio", erasing.ratio);
  take(record, "value", erasing.value);
  return erasing;
}

/// A record of this class of shardwise.transforms; None is left as it is.
template <class Record, class To>
void take(nb::handle from, const char* option, const char* type, Record (*read)(nb::handle),
          To& to) {
  const nb::object value = from.attr(option);
  if (value.is_none()) return;
  const nb::module_ transforms = nb::module_::import_("shardwise.transforms");
  if (!nb::isinstance(value, transforms.attr(type))) {
    refuse(option, value, "give a shardwise.transforms." + std::string(type));
  }
  to = read(value);
}

}  // namespace

ImageTransform image_transform(nb::handle record) {
  ImageTransform to;
  take(record, "random_resized_crop", "RandomResizedCrop", &random_resized_crop,
       to.random_resized_crop);
  take(record, "resize", to.resize);
  take(record, "resize_shorter_side", to.resize_shorter_side);
  take(record, "padding", "Padding", &padding, to.padding);
  take(record, "centre_crop", to.centre_crop);
  take(record, "random_crop", to.random_crop);
  take(record, "horizontal_flip", to.horizontal_flip);
  take(record, "vertical_flip", to.vertical_flip);
  take(record, "colour_jitter", "ColourJitter", &colour_jitter, to.colour_jitter);
  take(record, "grayscale", to.grayscale);
  take(record, "normalize", "Normalize", &normalize, to.normalize);
  take(record, "random_erasing", "RandomErasing", &random_erasing, to.random_erasing);
  take(record, "fill", to.fill);
  take(record, "filter", kFilters, to.filter);
  take(record, "type", kTypes, to.type);
  take(record, "layout", kLayouts, to.layout);
  return to;
}

ImageDecoding image_decoding(nb::handle record) {
  ImageDecoding to;
  take(record, "max_pixels", to.max_pixels);
  take(record, "strict", to.strict);
  take(record, "apply_orientation", to.apply_orientation);
  take(record, "scaling", kScalings, to.scaling);
  return to;
}

Column::VideoClip video_clip(nb::handle record) {
  Column::VideoClip to;
  take(record, "frames", to.frames);
  take(record, "every", to.every);
  take(record, "start", kStarts, to.start);
  take(record, "begin_seconds", to.begin_seconds);
  take(record, "end_seconds", to.end_seconds);
  take(record, "refuse_short", to.refuse_short);
  take(record, "max_pixels", to.max_pixels);
  take(record, "max_frames", to.max_frames);
  return to;
}

Column::AudioClip audio_clip(nb::handle record) {
  Column::AudioClip to;
  take(record, "sample_rate", to.sample_rate);
  take(record, "channels", to.channels);
  take(record, "seconds", to.seconds);
  take(record, "start", kStarts, to.start);
  take(record, "begin_seconds", to.begin_seconds);
  take(record, "end_seconds", to.end_seconds);
  take(record, "fixed_length", to.fixed_length);
  take(record, "max_samples", to.max_samples);
  return to;
}

Loader::ByLength by_length(nb::handle record) {
  Loader::ByLength to;
  take(record, "field", to.field);
  take(record, "column", to.column);
  take(record, "unit", to.unit);
  take(record, "window", to.window);
  take(record, "max_tokens", to.max_tokens);
  take(record, "pack", to.pack);
  take(record, "pack_to", to.pack_to);
  take(record, "padding", to.padding);
  return to;
}

Loader::Mix image_mix(nb::handle record) {
  Loader::Mix to;
  take(record, "column", to.column);
  take(record, "mixup_alpha", to.mixup_alpha);
  take(record, "cutmix_alpha", to.cutmix_alpha);
  take(record, "probability", to.probability);
  return to;
}

std::string shown(nb::handle value) {
  return nb::cast<std::string>(nb::module_::import_("reprlib").attr("repr")(value));
}

DType parse_dtype(std::string_view name) {
  std::string choices;
  for (int i = 0; i <= static_cast<int>(DType::kComplex128); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (to_string(dtype) == name) return dtype;
    choices += (i == 0 ? "" : ", ") + std::string(to_string(dtype));
  }
  throw InvalidArgument("no column has values of this type", in_quotes(std::string(name)),
                        "choose one of: " + choices);
}

}  // namespace shardwise::python
