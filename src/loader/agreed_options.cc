#include "loader/agreed_options.h"

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/text.h"
#include "loader/column_maker.h"
#include "loader/fields.h"

namespace shardwise::detail {
namespace {

using Memory = decltype(Loader::Options::memory);

std::string text(const std::string& value) { return "'" + escaped(value) + "'"; }
std::string text(bool value) { return value ? "true" : "false"; }
template <class Number>
requires std::integral<Number> || std::floating_point<Number> std::string text(Number value) {
  std::array<char, 64> digits{};  // the shortest text that reads back as this number
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}
template <Choice Enum>
std::string text(Enum value) {
  return std::string(choice_name(value));
}
template <class Value, std::size_t kSize>
std::string text(const std::array<Value, kSize>& values) {
  std::string all;
  for (const Value& value : values) all += (all.empty() ? "" : " ") + text(value);
  return all;
}
std::string text(const ImageTransform::Size& size) {
  if (size == ImageTransform::Size::by_group()) return "by group";
  const auto& [height, width] = size;
  return text(height) + "x" + text(width);
}
std::string text(const ImageTransform::Range& range) {
  const auto& [least, most] = range;
  return text(least) + " to " + text(most);
}

template <class Value>
std::string text(const std::optional<Value>& value);
std::string text(const std::vector<Loader::ByGroup::Group>& groups);

/// Lists the fields that differ from their defaults.
template <HasFields Owner>
std::string text(const Owner& owner) {
  std::string all;
  visit_fields<Owner>([&](const auto& field) {
    const std::string own = text(owner.*field.member);
    if (own == text(Owner{}.*field.member)) return;
    all += (all.empty() ? "" : ", ") + std::string(field.name) + "=" + own;
  });
  return "{" + all + "}";
}
template <class Value>
std::string text(const std::optional<Value>& value) {
  return value ? text(*value) : "none";
}
std::string text(const std::vector<Loader::ByGroup::Group>& groups) {
  std::string all;
  for (const Loader::ByGroup::Group& group : groups) all += text(group);
  return "[" + all + "]";
}

/// Returns e.g. "'label': integer 'cls', int64".
std::string text(const Column& column) {
  const ColumnMaker& maker = *column.maker();
  std::string all =
      text(column.name()) + ": " + maker.describe() + ", " + std::string(to_string(maker.dtype()));
  if (maker.layout() != ColumnMaker::Layout::kFixed) return all;
  all += " of shape";  // a shape may be [], a scalar
  for (const std::int64_t size : maker.row_shape()) all += " " + text(size);
  return all;
}

std::string text(const std::vector<Column>& columns) {
  std::string all;
  for (const Column& column : columns) all += (all.empty() ? "" : "; ") + text(column);
  return all;
}

}  // namespace

Record agreed_options(const Loader::Options& options) {
  Record all;
  visit_fields<Loader::Options>([&]<class Value>(const Field<Loader::Options, Value>& field) {
    if (field.text.may_differ) return;
    // Omit the order: the sampler's token describes it.
    if constexpr (!std::is_same_v<Value, Order> && !std::is_same_v<Value, Memory>) {
      const bool is_used = field.name != "batch_size" || options.global_batch_size == 0;
      all.emplace_back(field.key(), is_used ? text(options.*field.member) : "not used");
    }
  });
  return all;
}

std::string text_of(const ImageTransform& transform) { return text(transform); }
std::string text_of(const ImageDecoding& decoding) { return text(decoding); }
std::string text_of(const Column::VideoClip& clip) { return text(clip); }
std::string text_of(const Column::AudioClip& clip) { return text(clip); }

}  // namespace shardwise::detail
