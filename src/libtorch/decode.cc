#include "shardwise/libtorch/decode.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "base/json.h"
#include "base/text.h"
#include "libtorch/decode_internal.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch {
namespace detail {

std::string decode_action(std::string_view field, std::string_view type) {
  return "cannot decode field " + in_quotes(field) + " as " + std::string(type);
}

void throw_bad_field(std::string_view action, std::string_view reason, const std::string& where) {
  std::string what(action);
  what.append(" (").append(escaped(reason)).append(")");
  throw BadField(what, where, "repair the member, or leave the sample out");
}

void require_size(const ImageSize& size) {
  constexpr std::int64_t kMax = 1 << 20;
  const bool is_size =
      size.height > 0 && size.width > 0 && size.height <= kMax && size.width <= kMax;
  if (size.empty() || is_size) return;
  throw InvalidArgument("the size of the image is out of range",
                        std::to_string(size.height) + "x" + std::to_string(size.width) + " (HxW)",
                        "give height and width from 1 to 1,048,576, or neither");
}

}  // namespace detail

namespace {

using detail::decode_action;
using detail::DecodeFailure;
using detail::FieldKind;

/// Calls `work`. Converts a DecodeFailure to a BadField at the place that where() returns.
template <class Work, class Where>
auto translated(std::string_view action, Where&& where, Work&& work) {
  try {
    return work();
  } catch (const DecodeFailure& failure) {
    detail::throw_bad_field(action, failure.what(), where());
  }
}

torch::Tensor image_of(std::string_view bytes, const DecodeOptions& options) {
  detail::require_size(options.resize);
  thread_local detail::RgbImage scratch;
  detail::decode_rgb(bytes, {.max_pixels = options.max_pixels}, scratch);
  const bool as_stored = options.resize.empty();
  const auto height =
      as_stored ? static_cast<std::int64_t>(scratch.height()) : options.resize.height;
  const auto width = as_stored ? static_cast<std::int64_t>(scratch.width()) : options.resize.width;
  const detail::Box window{.height = static_cast<std::size_t>(height),
                           .width = static_cast<std::size_t>(width)};
  detail::require_resizable(scratch.height(), window, options.max_pixels);
  auto image = torch::empty({3, height, width}, torch::kUInt8);
  detail::write_pixels(scratch.view(), {.height = window.height, .width = window.width},
                       image.data_ptr<std::uint8_t>());
  return image;
}

/// Returns the tensor type for the same bytes. uint16 and uint32 are widened later.
torch::ScalarType scalar_type(const detail::NpyHeader& header) {
  switch (header.kind) {
    case 'b':
      return torch::kBool;
    case 'f':
      return header.item_bytes == 2 ? torch::kHalf
                                    : (header.item_bytes == 4 ? torch::kFloat : torch::kDouble);
    case 'c':
      return header.item_bytes == 8 ? torch::kComplexFloat : torch::kComplexDouble;
    default:
      break;
  }
  switch (header.item_bytes) {
    case 1:
      return header.kind == 'u' ? torch::kUInt8 : torch::kInt8;
    case 2:
      return torch::kInt16;
    case 4:
      return torch::kInt32;
    default:
      return torch::kInt64;
  }
}

torch::Tensor npy_of(std::string_view bytes) {
  const detail::NpyHeader header = detail::parse_npy_header(bytes);
  if (header.kind == 'u' && header.item_bytes == 8) {
    throw DecodeFailure("npy: LibTorch has no type uint64");
  }
  auto array = torch::empty(header.shape, scalar_type(header));
  detail::write_npy(header, bytes, static_cast<std::byte*>(array.data_ptr()));
  if (header.kind == 'u' && header.item_bytes == 2) array = array.to(torch::kInt32) & 0xFFFF;
  if (header.kind == 'u' && header.item_bytes == 4) {
    array = array.to(torch::kInt64).bitwise_and(torch::Scalar(std::int64_t{0xFFFFFFFF}));
  }
  return array;
}

nlohmann::json json_of(std::string_view bytes, const DecodeOptions& options) {
  if (bytes.size() > options.max_json_bytes) {
    throw DecodeFailure("JSON: " + counted(bytes.size(), "byte") + " exceed the limit of " +
                        human_count(options.max_json_bytes) + " (max_json_bytes)");
  }
  if (const auto fault = json_fault(bytes, options.max_json_depth)) {
    // Escaped, because the text may contain a NUL, at which what() would end.
    throw DecodeFailure("JSON: " + escaped(fault->text()));
  }
  try {
    return nlohmann::json::parse(bytes.begin(), bytes.end());
  } catch (const nlohmann::json::exception& e) {
    throw DecodeFailure(std::string("JSON: ") + e.what());
  }
}

}  // namespace

torch::Tensor decode_image(const Sample& sample, std::string_view field,
                           const DecodeOptions& options) {
  const std::string_view bytes = sample[field];
  return translated(
      decode_action(field, "an image"), [&] { return sample.describe(); },
      [&] { return image_of(bytes, options); });
}

torch::Tensor decode_image(std::string_view bytes, const DecodeOptions& options,
                           std::string_view where) {
  return translated(
      "cannot decode an image", [&] { return std::string(where); },
      [&] { return image_of(bytes, options); });
}

torch::Tensor decode_npy(const Sample& sample, std::string_view field) {
  const std::string_view bytes = sample[field];
  return translated(
      decode_action(field, "an array"), [&] { return sample.describe(); },
      [&] { return npy_of(bytes); });
}

torch::Tensor decode_npy(std::string_view bytes, std::string_view where) {
  return translated(
      "cannot decode an array", [&] { return std::string(where); }, [&] { return npy_of(bytes); });
}

nlohmann::json decode_json(const Sample& sample, std::string_view field,
                           const DecodeOptions& options) {
  const std::string_view bytes = sample[field];
  return translated(
      decode_action(field, "JSON"), [&] { return sample.describe(); },
      [&] { return json_of(bytes, options); });
}

nlohmann::json decode_json(std::string_view bytes, const DecodeOptions& options,
                           std::string_view where) {
  return translated(
      "cannot decode JSON", [&] { return std::string(where); },
      [&] { return json_of(bytes, options); });
}

std::string decode_text(const Sample& sample, std::string_view field) {
  const std::string_view bytes = sample[field];
  if (!is_utf8(bytes)) {
    detail::throw_bad_field(decode_action(field, "text"), "the text is not UTF-8",
                            sample.describe());
  }
  return std::string(bytes);
}

Value decode(const Sample& sample, std::string_view field, const DecodeOptions& options) {
  switch (detail::field_kind(field)) {
    case FieldKind::kImage:
      return decode_image(sample, field, options);
    case FieldKind::kInteger:
      return sample.integer(field);
    case FieldKind::kText:
      return decode_text(sample, field);
    case FieldKind::kJson:
      return std::make_shared<const nlohmann::json>(decode_json(sample, field, options));
    case FieldKind::kNpy:
      return decode_npy(sample, field);
    case FieldKind::kBytes:
      break;
  }
  return Bytes{sample.copy(field)};
}

std::map<std::string, Value> decode(const Sample& sample, const DecodeOptions& options) {
  std::map<std::string, Value> values;
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    const std::string_view name = sample.field(i).name;
    values.emplace(name, decode(sample, name, options));
  }
  return values;
}

}  // namespace shardwise::libtorch
