#include "shardwise/libtorch/decode.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/ascii.h"
#include "base/text.h"
#include "libtorch/decode_internal.h"
#include "libtorch/npy_header.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch {
namespace detail {

std::string decode_action(std::string_view field, std::string_view type) {
  return "cannot decode field " + in_quotes(field) + " as " + std::string(type);
}

void throw_bad_field(std::string_view action, std::string_view reason, const std::string& where) {
  std::string what(action);
  what.append(" (").append(escaped(reason)).append(")");
  throw BadField(what, where, "mend the member, or leave the sample out");
}

void require_size(const ImageSize& size) {
  constexpr std::int64_t kMost = 1 << 20;
  const bool is_size =
      size.height > 0 && size.width > 0 && size.height <= kMost && size.width <= kMost;
  if (size.empty() || is_size) return;
  throw InvalidArgument("a size that no image can have",
                        std::to_string(size.height) + " x " + std::to_string(size.width),
                        "give height and width from 1 to 1,048,576, or neither");
}

void decode_rgb_field(const Sample& sample, std::string_view field, const ImageOptions& options,
                      RgbImage& scratch) {
  const std::string_view bytes = sample[field];
  try {
    decode_rgb(bytes, options.max_pixels, scratch);
  } catch (const DecodeFailure& failure) {
    throw_bad_field(decode_action(field, "an image"), failure.what(), sample.describe());
  }
}

}  // namespace detail

namespace {

using detail::decode_action;
using detail::DecodeFailure;

/// Calls `work`, turning a DecodeFailure into a BadField. `where` is asked only then.
template <class Work, class Where>
auto translated(std::string_view action, Where&& where, Work&& work) {
  try {
    return work();
  } catch (const DecodeFailure& failure) {
    detail::throw_bad_field(action, failure.what(), where());
  }
}

torch::Tensor image_of(std::string_view bytes, const ImageOptions& options) {
  detail::require_size(options.resize);
  thread_local detail::RgbImage scratch;
  detail::decode_rgb(bytes, options.max_pixels, scratch);
  const bool as_stored = options.resize.empty();
  const auto height =
      as_stored ? static_cast<std::int64_t>(scratch.height()) : options.resize.height;
  const auto width = as_stored ? static_cast<std::int64_t>(scratch.width()) : options.resize.width;
  auto image = torch::empty({3, height, width}, torch::kUInt8);
  detail::write_planes(scratch, static_cast<std::size_t>(height), static_cast<std::size_t>(width),
                       image.data_ptr<std::uint8_t>());
  return image;
}

/// The tensor type that holds the bytes as they are; uint16 and uint32 are widened afterwards.
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

/// Copies items and turns the bytes of each number round.
void copy_swapped(const char* from, std::size_t num_bytes, std::size_t number_bytes, char* to) {
  for (std::size_t at = 0; at < num_bytes; at += number_bytes) {
    std::reverse_copy(from + at, from + at + number_bytes, to + at);
  }
}

torch::Tensor npy_of(std::string_view bytes) {
  const detail::NpyHeader header = detail::parse_npy_header(bytes);
  std::vector<std::int64_t> shape = header.shape;
  if (header.fortran_order) std::reverse(shape.begin(), shape.end());
  auto array = torch::empty(shape, scalar_type(header));
  const std::size_t num_bytes = header.num_items * header.item_bytes;
  const char* data = bytes.data() + header.data_offset;
  auto* to = static_cast<char*>(array.data_ptr());
  const std::size_t number_bytes = header.kind == 'c' ? header.item_bytes / 2 : header.item_bytes;
  if (header.big_endian && number_bytes > 1) {
    copy_swapped(data, num_bytes, number_bytes, to);
  } else if (header.kind == 'b') {
    // Any byte but 0 is true; a bool that is neither 0 nor 1 would be undefined behaviour.
    std::transform(data, data + num_bytes, to, [](char c) { return static_cast<char>(c != 0); });
  } else if (num_bytes > 0) {
    std::memcpy(to, data, num_bytes);
  }
  if (header.kind == 'u' && header.item_bytes == 2) array = array.to(torch::kInt32) & 0xFFFF;
  if (header.kind == 'u' && header.item_bytes == 4) {
    array = array.to(torch::kInt64).bitwise_and(torch::Scalar(std::int64_t{0xFFFFFFFF}));
  }
  if (!header.fortran_order) return array;
  std::vector<std::int64_t> reversed(shape.size());
  for (std::size_t i = 0; i < reversed.size(); ++i) {
    reversed[i] = static_cast<std::int64_t>(reversed.size() - 1 - i);
  }
  return array.permute(reversed).contiguous();
}

nlohmann::json json_of(std::string_view bytes, const JsonOptions& options) {
  if (bytes.size() > options.max_bytes) {
    throw DecodeFailure("JSON: " + std::to_string(bytes.size()) +
                        " bytes are more than the limit of " + std::to_string(options.max_bytes));
  }
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json&) {
    const bool opens = event == nlohmann::json::parse_event_t::object_start ||
                       event == nlohmann::json::parse_event_t::array_start;
    if (opens && static_cast<std::size_t>(depth) >= options.max_depth) {
      throw DecodeFailure("JSON: nested deeper than " + std::to_string(options.max_depth));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(bytes.begin(), bytes.end(), watch);
  } catch (const nlohmann::json::exception& e) {
    throw DecodeFailure(std::string("JSON: ") + e.what());
  }
}

}  // namespace

torch::Tensor decode_image(const Sample& sample, std::string_view field,
                           const ImageOptions& options) {
  const std::string_view bytes = sample[field];
  return translated(
      decode_action(field, "an image"), [&] { return sample.describe(); },
      [&] { return image_of(bytes, options); });
}

torch::Tensor decode_image(std::string_view bytes, const ImageOptions& options,
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
                           const JsonOptions& options) {
  const std::string_view bytes = sample[field];
  return translated(
      decode_action(field, "JSON"), [&] { return sample.describe(); },
      [&] { return json_of(bytes, options); });
}

nlohmann::json decode_json(std::string_view bytes, const JsonOptions& options,
                           std::string_view where) {
  return translated(
      "cannot decode JSON", [&] { return std::string(where); },
      [&] { return json_of(bytes, options); });
}

std::string decode_text(const Sample& sample, std::string_view field) {
  const std::string_view bytes = sample[field];
  if (!is_utf8(bytes)) {
    detail::throw_bad_field(decode_action(field, "text"), "it is not UTF-8", sample.describe());
  }
  return std::string(bytes);
}

FieldKind field_kind(std::string_view field) noexcept {
  struct Row {
    std::string_view name;
    FieldKind kind;
  };
  static constexpr std::array<Row, 19> kRows = {{
      {"jpg", FieldKind::kImage},     {"jpeg", FieldKind::kImage},
      {"png", FieldKind::kImage},     {"ppm", FieldKind::kImage},
      {"pgm", FieldKind::kImage},     {"pnm", FieldKind::kImage},
      {"cls", FieldKind::kInteger},   {"cls2", FieldKind::kInteger},
      {"class", FieldKind::kInteger}, {"count", FieldKind::kInteger},
      {"index", FieldKind::kInteger}, {"inx", FieldKind::kInteger},
      {"id", FieldKind::kInteger},    {"txt", FieldKind::kText},
      {"text", FieldKind::kText},     {"transcript", FieldKind::kText},
      {"json", FieldKind::kJson},     {"jsn", FieldKind::kJson},
      {"npy", FieldKind::kNpy},
  }};
  const std::size_t dot = field.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? field : field.substr(dot + 1);
  const auto equal = [](char a, char b) { return to_lower(a) == b; };
  for (const Row& row : kRows) {
    if (std::equal(last.begin(), last.end(), row.name.begin(), row.name.end(), equal))
      return row.kind;
  }
  return FieldKind::kBytes;
}

Value decode(const Sample& sample, std::string_view field, const DecodeOptions& options) {
  switch (field_kind(field)) {
    case FieldKind::kImage:
      return decode_image(sample, field, options.image);
    case FieldKind::kInteger:
      return sample.integer(field);
    case FieldKind::kText:
      return decode_text(sample, field);
    case FieldKind::kJson:
      return std::make_shared<const nlohmann::json>(decode_json(sample, field, options.json));
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
