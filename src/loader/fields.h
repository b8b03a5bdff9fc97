#pragma once

#include <array>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "base/fields.h"
#include "shardwise/loader/image_transform.h"
#include "shardwise/loader/loader.h"
#include "shardwise/loader/media_columns.h"

// The options of a loader and of its columns, and its statistics, as lists of named fields. The
// names are the keyword arguments and the record keys in Python.

namespace shardwise {

constexpr std::array<std::string_view, 2> choices(std::type_identity<ImageTransform::Filter>) {
  return {"bilinear", "bicubic"};
}
constexpr std::array<std::string_view, 5> choices(std::type_identity<ImageTransform::Type>) {
  return {"uint8", "float32", "float16", "bfloat16", "uint16"};
}
constexpr std::array<std::string_view, 2> choices(std::type_identity<ImageTransform::Layout>) {
  return {"channels_first", "channels_last"};
}
constexpr std::array<std::string_view, 3> choices(std::type_identity<ImageDecoding::Scaling>) {
  return {"exact", "not_smaller", "fast"};
}
constexpr std::array<std::string_view, 3> choices(std::type_identity<Column::ClipStart>) {
  return {"first", "centre", "random"};
}

constexpr auto fields(std::type_identity<ImageTransform::RandomResizedCrop>) {
  using detail::field;
  using Crop = ImageTransform::RandomResizedCrop;
  return std::tuple{field("size", &Crop::size), field("scale", &Crop::scale),
                    field("ratio", &Crop::ratio)};
}
constexpr auto fields(std::type_identity<ImageTransform::Padding>) {
  using detail::field;
  using Padding = ImageTransform::Padding;
  return std::tuple{field("top", &Padding::top), field("left", &Padding::left),
                    field("bottom", &Padding::bottom), field("right", &Padding::right)};
}
constexpr auto fields(std::type_identity<ImageTransform::ColourJitter>) {
  using detail::field;
  using Jitter = ImageTransform::ColourJitter;
  return std::tuple{field("probability", &Jitter::probability),
                    field("brightness", &Jitter::brightness), field("contrast", &Jitter::contrast),
                    field("saturation", &Jitter::saturation), field("hue", &Jitter::hue)};
}
constexpr auto fields(std::type_identity<ImageTransform::Normalize>) {
  using detail::field;
  using Normalize = ImageTransform::Normalize;
  return std::tuple{field("mean", &Normalize::mean), field("std", &Normalize::std)};
}
constexpr auto fields(std::type_identity<ImageTransform::RandomErasing>) {
  using detail::field;
  using Erasing = ImageTransform::RandomErasing;
  return std::tuple{field("probability", &Erasing::probability), field("scale", &Erasing::scale),
                    field("ratio", &Erasing::ratio), field("value", &Erasing::value)};
}
constexpr auto fields(std::type_identity<ImageTransform>) {
  using detail::field;
  using T = ImageTransform;
  return std::tuple{
      field("random_resized_crop", &T::random_resized_crop, {.value = "RandomResizedCrop"}),
      field("resize", &T::resize),
      field("resize_shorter_side", &T::resize_shorter_side),
      field("padding", &T::padding, {.value = "Padding"}),
      field("centre_crop", &T::centre_crop),
      field("random_crop", &T::random_crop),
      field("horizontal_flip", &T::horizontal_flip),
      field("vertical_flip", &T::vertical_flip),
      field("colour_jitter", &T::colour_jitter, {.value = "ColourJitter"}),
      field("grayscale", &T::grayscale),
      field("normalize", &T::normalize, {.value = "Normalize"}),
      field("random_erasing", &T::random_erasing, {.value = "RandomErasing"}),
      field("fill", &T::fill),
      field("filter", &T::filter),
      field("type", &T::type),
      field("layout", &T::layout)};
}
constexpr auto fields(std::type_identity<ImageDecoding>) {
  using detail::field;
  return std::tuple{field("max_pixels", &ImageDecoding::max_pixels),
                    field("strict", &ImageDecoding::strict),
                    field("apply_orientation", &ImageDecoding::apply_orientation),
                    field("scaling", &ImageDecoding::scaling)};
}
constexpr auto fields(std::type_identity<Column::VideoClip>) {
  using detail::field;
  using Clip = Column::VideoClip;
  return std::tuple{field("frames", &Clip::frames),
                    field("every", &Clip::every),
                    field("start", &Clip::start),
                    field("begin_seconds", &Clip::begin_seconds),
                    field("end_seconds", &Clip::end_seconds),
                    field("refuse_short", &Clip::refuse_short),
                    field("max_pixels", &Clip::max_pixels),
                    field("max_frames", &Clip::max_frames)};
}
constexpr auto fields(std::type_identity<Column::AudioClip>) {
  using detail::field;
  using Clip = Column::AudioClip;
  return std::tuple{field("sample_rate", &Clip::sample_rate),
                    field("channels", &Clip::channels),
                    field("seconds", &Clip::seconds),
                    field("start", &Clip::start),
                    field("begin_seconds", &Clip::begin_seconds),
                    field("end_seconds", &Clip::end_seconds),
                    field("fixed_length", &Clip::fixed_length),
                    field("max_samples", &Clip::max_samples)};
}
constexpr auto fields(std::type_identity<Loader::ByLength>) {
  using detail::field;
  using Rule = Loader::ByLength;
  return std::tuple{field("field", &Rule::field),
                    field("column", &Rule::column),
                    field("unit", &Rule::unit),
                    field("window", &Rule::window),
                    field("max_tokens", &Rule::max_tokens),
                    field("pack", &Rule::pack),
                    field("pack_to", &Rule::pack_to),
                    field("padding", &Rule::padding)};
}
constexpr std::array<std::string_view, 2> choices(std::type_identity<Loader::ByGroup::Leftovers>) {
  return {"hold_over", "smaller_batch"};
}
constexpr auto fields(std::type_identity<Loader::ByGroup::Group>) {
  using detail::field;
  using Group = Loader::ByGroup::Group;
  return std::tuple{field("key", &Group::key), field("batch_size", &Group::batch_size),
                    field("size", &Group::size)};
}
constexpr auto fields(std::type_identity<Loader::ByGroup>) {
  using detail::field;
  using Rule = Loader::ByGroup;
  return std::tuple{field("expression", &Rule::expression), field("groups", &Rule::groups),
                    field("window", &Rule::window), field("leftovers", &Rule::leftovers)};
}
constexpr auto fields(std::type_identity<Loader::Mix>) {
  using detail::field;
  using Mix = Loader::Mix;
  return std::tuple{field("column", &Mix::column), field("mixup_alpha", &Mix::mixup_alpha),
                    field("cutmix_alpha", &Mix::cutmix_alpha),
                    field("probability", &Mix::probability)};
}
/// Errors about ranks whose options differ use these names.
constexpr auto fields(std::type_identity<Loader::Options>) {
  using detail::field;
  using Options = Loader::Options;
  return std::tuple{
      field("columns", &Options::columns, {.key = "set of columns"}),
      field("order", &Options::order),
      field("batch_size", &Options::batch_size, {.key = "batch size"}),
      field("global_batch_size", &Options::global_batch_size, {.key = "global batch size"}),
      field("replicas", &Options::replicas, {.key = "number of replicas"}),
      field("by_length", &Options::by_length, {.key = "rule of batches by length"}),
      field("by_group", &Options::by_group, {.key = "rule of batches by group"}),
      field("mix", &Options::mix, {.key = "mixup"}),
      field("threads", &Options::threads, {.most = 1024, .may_differ = true}),
      field("max_bad", &Options::max_bad, {.key = "limit of bad samples"}),
      field("prefetch", &Options::prefetch, {.most = 65536, .may_differ = true}),
      field("max_bytes_ahead", &Options::max_bytes_ahead, {.may_differ = true}),
      field("max_expanded_bytes", &Options::max_expanded_bytes, {.key = "limit of expanded bytes"}),
      field("fetch_threads", &Options::fetch_threads, {.most = 1024, .may_differ = true}),
      field("memory", &Options::memory, {.may_differ = true})};
}
/// The names are the keys of "stages" in the output of `shardwise epoch --json`. Times are in
/// seconds.
constexpr auto fields(std::type_identity<Loader::Stats>) {
  using detail::field;
  using Stats = Loader::Stats;
  return std::tuple{
      field("batches", &Stats::batches),
      field("samples", &Stats::samples),
      field("bad_samples", &Stats::bad_samples),
      field("bytes_made", &Stats::bytes_made),
      field("bytes_read", &Stats::bytes_read),
      field("planning", &Stats::planning, {.key = "planning_seconds"}),
      field("opening", &Stats::opening, {.key = "opening_seconds"}),
      field("reading", &Stats::reading, {.key = "reading_seconds"}),
      field("decoding", &Stats::decoding, {.key = "decoding_seconds"}),
      field("transforming", &Stats::transforming, {.key = "transforming_seconds"}),
      field("functions", &Stats::functions),
      field("collating", &Stats::collating, {.key = "collating_seconds"}),
      field("idle", &Stats::idle, {.key = "idle_seconds"}),
      field("elapsed", &Stats::elapsed),
      field("waited", &Stats::waited),
      field("batches_ready", &Stats::batches_ready),
      field("mean_ready", &Stats::mean_ready, {.adds_up = false}),
      field("sample_times", &Stats::sample_times),
      field("slowest_time", &Stats::slowest_time, {.key = "slowest_seconds", .adds_up = false}),
      field("slowest_sample", &Stats::slowest_sample, {.key = "slowest_sample", .adds_up = false}),
      field("forgiven", &Stats::forgiven),
      field("threads", &Stats::threads, {.adds_up = false}),
      field("fetch_threads", &Stats::fetch_threads, {.adds_up = false}),
      field("prefetch", &Stats::prefetch, {.adds_up = false}),
      field("cores", &Stats::cores, {.adds_up = false})};
}

}  // namespace shardwise
