#include "shardwise/loader/columns.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/ascii.h"
#include "base/assert.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/expanding_reader.h"
#include "base/json.h"
#include "base/mapped_read.h"
#include "base/text.h"
#include "data/field_cursor.h"
#include "data/sample_access.h"
#include "decode/field_kind.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/field_bytes.h"
#include "loader/value_column.h"

namespace shardwise::columns {
namespace {

using detail::ColumnMaker;
using detail::FieldChoice;
using detail::FieldKind;
using detail::RowInput;
using detail::RowOutput;
using detail::RowSlots;
using detail::ValueKind;
using Layout = ColumnMaker::Layout;

constexpr std::size_t kMaxRun = detail::FieldCursor::kMaxRun;

/// Copies field i to `to(i)`. Returns false if a field cannot be read.
template <class To>
bool copy(std::span<const std::string_view> fields, const To& to) {
  SHARDWISE_ASSERT(fields.size() <= kMaxRun);
  std::array<MappedCopy, kMaxRun> copies;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    copies[i] = {to(i), fields[i].data(), fields[i].size()};
  }
  return copy_mapped(std::span(copies.data(), fields.size()), Look::kOnceATick);
}

/// The bytes of a field. kBytes returns fields as stored, so the index knows the sizes. Text and
/// JSON are decompressed, so they are ragged if a field's name may be that of a compressed file.
class BytesColumn final : public ColumnMaker {
 public:
  BytesColumn(FieldChoice fields, Content content)
      : ColumnMaker(DType::kUInt8, content != Content::kBytes && detail::any_compressed(fields)
                                       ? Layout::kRagged
                                       : Layout::kSized),
        fields_(std::move(fields)),
        content_(content) {}

  [[nodiscard]] std::string describe() const override {
    const char* const kind = content_ == Content::kBytes  ? "bytes "
                             : content_ == Content::kText ? "text "
                                                          : "json ";
    return kind + fields_.describe();
  }
  [[nodiscard]] Content content() const override { return content_; }
  [[nodiscard]] bool takes_long() const override { return layout() == Layout::kRagged; }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::size_t place = fields_.in(input.sample);
    std::span<std::byte> to = output.slot;
    if (layout() == Layout::kRagged) {
      const detail::FieldBytes bytes(input, place);
      to = resized(output, bytes.size());
      bytes.copy(to);
    } else {
      detail::SampleAccess::copy(input.sample, place, to);
      input.add_bytes(to.size());
    }
    const std::string_view text(reinterpret_cast<const char*>(to.data()), to.size());
    if (is_good(text)) return;
    if (content_ == Content::kText) {
      detail::throw_bad_field(input.sample, place, "text", "the text is not UTF-8");
    }
    detail::throw_bad_field(input.sample, place, "JSON", json_fault(text)->text());
  }
  [[nodiscard]] bool makes_from_fields() const override { return layout() == Layout::kSized; }
  [[nodiscard]] bool make_from_fields(std::span<const std::string_view> fields,
                                      const RowSlots& slots) const override {
    if (!copy(fields, [&](std::size_t i) { return slots[i].data(); })) return false;
    if (content_ == Content::kBytes) return true;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::span<const std::byte> row = slots[i];
      if (!is_good({reinterpret_cast<const char*>(row.data()), row.size()})) return false;
    }
    return true;
  }

 private:
  static std::span<std::byte> resized(RowOutput& output, std::size_t size) {
    const auto count = static_cast<std::int64_t>(size);
    return output.ragged->resize(std::span(&count, 1), 1);
  }
  [[nodiscard]] bool is_good(std::string_view text) const {
    if (content_ == Content::kBytes) return true;
    return content_ == Content::kText ? is_utf8(text) : !json_fault(text);
  }

  const FieldChoice fields_;
  const Content content_;
};

class TokensColumn final : public ColumnMaker {
 public:
  TokensColumn(FieldChoice fields, DType dtype)
      : ColumnMaker(required(dtype), Layout::kRagged), fields_(std::move(fields)) {}

  [[nodiscard]] std::string describe() const override { return "tokens " + fields_.describe(); }
  [[nodiscard]] bool takes_long() const override { return detail::any_compressed(fields_); }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::size_t place = fields_.in(input.sample);
    const detail::FieldBytes bytes(input, place);
    const std::size_t size_bytes = bytes.size();
    const std::size_t value_bytes = size_of(dtype());
    if (size_bytes % value_bytes != 0) {
      detail::throw_bad_field(input.sample, place, "tokens",
                              "the field has " + counted(size_bytes, "byte") +
                                  ", which is not a multiple of " + std::to_string(value_bytes) +
                                  ", the size of " + std::string(to_string(dtype())));
    }
    const auto count = static_cast<std::int64_t>(size_bytes / value_bytes);
    bytes.copy(output.ragged->resize(std::span(&count, 1), value_bytes));
  }

 private:
  static DType required(DType dtype) {
    if (dtype == DType::kUInt16 || dtype == DType::kInt32 || dtype == DType::kUInt32 ||
        dtype == DType::kInt64) {
      return dtype;
    }
    throw InvalidArgument("tokens cannot be of this type", to_string(dtype),
                          "choose uint16, int32, uint32 or int64");
  }

  const FieldChoice fields_;
};

/// Parses up to 18 digits without a sign, the usual case. For other texts use parse_int64().
std::optional<std::int64_t> parse_digits(std::string_view text) noexcept {
  if (text.empty() || text.size() > 18) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    value = 10 * value + (c - '0');
  }
  return value;
}

class IntegerColumn final : public ColumnMaker {
 public:
  explicit IntegerColumn(FieldChoice fields)
      : ColumnMaker(DType::kInt64, Layout::kFixed), fields_(std::move(fields)) {}

  [[nodiscard]] std::string describe() const override { return "integer " + fields_.describe(); }
  [[nodiscard]] bool takes_long() const override { return detail::any_compressed(fields_); }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::int64_t value = detail::integer_of(input, fields_.in(input.sample));
    std::memcpy(output.slot.data(), &value, sizeof value);
  }
  [[nodiscard]] bool makes_from_fields() const override { return !takes_long(); }
  [[nodiscard]] bool make_from_fields(std::span<const std::string_view> fields,
                                      const RowSlots& slots) const override {
    constexpr std::size_t kMaxDigits = 32;
    for (const std::string_view field : fields) {
      if (field.size() > kMaxDigits) return false;
    }
    std::array<std::array<char, kMaxDigits>, kMaxRun> texts;
    if (!copy(fields, [&](std::size_t i) { return texts[i].data(); })) return false;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::string_view text(texts[i].data(), fields[i].size());
      auto value = parse_digits(text);
      if (!value) value = parse_int64(trimmed(text));
      if (!value) return false;
      std::memcpy(slots[i].data(), &*value, sizeof *value);
    }
    return true;
  }

 private:
  const FieldChoice fields_;
};

class KeyColumn final : public ColumnMaker {
 public:
  KeyColumn() : ColumnMaker(DType::kUInt8, Layout::kSized) {}

  [[nodiscard]] std::string describe() const override { return "key"; }
  [[nodiscard]] Content content() const override { return Content::kText; }
  [[nodiscard]] bool reads_whole_fields() const override { return false; }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::string_view key = input.sample.key();
    if (!key.empty()) std::memcpy(output.slot.data(), key.data(), key.size());
  }
  [[nodiscard]] bool makes_rows() const override { return true; }
  [[nodiscard]] bool make_rows(std::span<const Sample> samples, const RowSlots& slots,
                               std::size_t& /*bytes*/) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string_view key = samples[i].key();
      if (!key.empty()) std::memcpy(slots[i].data(), key.data(), key.size());
    }
    return true;
  }
};

/// Returns a column of values. The maker WholeFields is faster; it is used for whole fields,
/// without a JSON path and without a value for missing fields.
template <class WholeFields, class T, class... Arguments>
Column values(ValueKind kind, const std::string& fields, std::optional<T> missing,
              Arguments... arguments) {
  detail::ValueFields from(fields);
  std::string name = from.name();
  if (!from.path && !missing) {
    return {std::move(name), std::make_shared<WholeFields>(std::move(from.fields), arguments...)};
  }
  return {std::move(name), detail::value_of_fields(kind, std::move(from),
                                                   detail::missing_value(std::move(missing)))};
}

}  // namespace

Column bytes(const std::string& fields) {
  return {detail::first_name(fields),
          std::make_shared<BytesColumn>(FieldChoice(fields), BytesColumn::Content::kBytes)};
}

Column text(const std::string& fields, std::optional<std::string> missing) {
  return values<BytesColumn>(ValueKind::kText, fields, std::move(missing),
                             BytesColumn::Content::kText);
}

Column json(const std::string& fields, std::optional<std::string> missing) {
  return values<BytesColumn>(ValueKind::kJson, fields, std::move(missing),
                             BytesColumn::Content::kJson);
}

Column tokens(const std::string& fields, DType dtype) {
  detail::ValueFields from(fields);
  std::string name = from.name();
  auto whole = std::make_shared<TokensColumn>(from.fields, dtype);  // checks the type
  if (!from.path) return {std::move(name), std::move(whole)};
  return {std::move(name), detail::json_array(std::move(from), dtype, {}, 1)};
}

Column integer(const std::string& fields, std::optional<std::int64_t> missing) {
  return values<IntegerColumn>(ValueKind::kInteger, fields, missing);
}

Column key(const std::string& name) { return {name, std::make_shared<KeyColumn>()}; }

std::vector<Column> of_fields(const Sample& sample) {
  std::vector<Column> all;
  for (std::size_t place = 0; place < sample.num_fields(); ++place) {
    const std::string name(sample.field(place).name);
    // A list of fields can contain only plain names. A field with another name is read as bytes, by
    // its exact name.
    const bool is_plain = name.find(';') == name.npos && name.find(":$") == name.npos &&
                          !name.empty() && trimmed(name) == name;
    switch (is_plain ? detail::field_kind(without_compression_suffix(name)) : FieldKind::kBytes) {
      case FieldKind::kImage:
        all.push_back(image(name));
        break;
      case FieldKind::kInteger:
        all.push_back(integer(name));
        break;
      case FieldKind::kText:
        all.push_back(text(name));
        break;
      case FieldKind::kJson:
        all.push_back(json(name));
        break;
      case FieldKind::kNpy:
        all.push_back(detail::array_as_stored(sample, place));
        break;
      case FieldKind::kBytes:
        all.emplace_back(name, std::make_shared<BytesColumn>(FieldChoice::exactly(name),
                                                             BytesColumn::Content::kBytes));
        break;
    }
  }
  return all;
}

Batch decode(const Sample& sample, const std::vector<Column>& columns, std::uint64_t seed,
             std::uint64_t epoch) {
  const RowInput input{
      .sample = sample, .seed = seed, .epoch = epoch, .number = sample.index(), .position = {}};
  return detail::make_row(input, columns);
}

Batch decode(const Sample& sample) { return decode(sample, of_fields(sample)); }

}  // namespace shardwise::columns
