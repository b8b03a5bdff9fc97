#include "loader/value_column.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error_types.h"
#include "base/json.h"
#include "base/spelling.h"
#include "base/text.h"
#include "data/sample_access.h"
#include "loader/bad_field.h"
#include "loader/field_bytes.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/columns.h"

namespace shardwise::detail {
namespace {

using Layout = ColumnMaker::Layout;

constexpr std::string_view kPathBegin = ":$";

/// Returns e.g. "an integer".
std::string_view type_of(ValueKind kind) {
  constexpr std::string_view kTypes[] = {"an integer", "a number", "a text", "JSON"};
  return kTypes[static_cast<std::size_t>(kind)];
}

DType dtype_of(ValueKind kind) {
  return kind == ValueKind::kInteger  ? DType::kInt64
         : kind == ValueKind::kNumber ? DType::kFloat64
                                      : DType::kUInt8;
}

std::string text_of(const MissingValue& missing) {
  if (const auto* integer = std::get_if<std::int64_t>(&missing)) return std::to_string(*integer);
  if (const auto* text = std::get_if<std::string>(&missing)) return in_quotes(*text);
  char digits[64];  // the shortest text that reads back as this number
  return {digits, std::to_chars(digits, digits + sizeof digits, std::get<double>(missing)).ptr};
}

std::string remedy_without_value(const std::string& first) {
  return first + ", give a value for such samples with `missing`, or leave the sample out with " +
         spelled("max_bad");
}

/// Whether the path has a semicolon outside of quotes. A person would read it as the end of the
/// path.
bool has_semicolon(std::string_view path) {
  bool is_quoted = false;
  for (const char c : path) {
    if (c == '"') is_quoted = !is_quoted;
    if (c == ';' && !is_quoted) return true;
  }
  return false;
}

/// Returns a copy of the field's bytes, because the shard may be truncated meanwhile.
std::string copy_of(const RowInput& input, std::size_t place) {
  const FieldBytes field(input, place);
  std::string bytes(field.size(), '\0');
  field.copy(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

template <class Number>
requires std::is_arithmetic_v<Number>
void write(Number value, RowOutput& output) {
  std::memcpy(output.slot.data(), &value, sizeof value);
}
void write(std::string_view bytes, RowOutput& output) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  const auto to = output.ragged->resize(std::span(&count, 1), 1);
  if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

/// Writes the value. Returns false if it is of another kind.
bool write(const MetadataValue& value, ValueKind kind, RowOutput& output) {
  using Type = MetadataValue::Type;
  const bool is_integer = value.type == Type::kInteger;
  const bool is_bytes = value.type == Type::kText || value.type == Type::kBlob;
  switch (kind) {
    case ValueKind::kInteger:
      if (is_integer) write(value.integer, output);
      return is_integer;
    case ValueKind::kNumber:
      if (!is_integer && value.type != Type::kReal) return false;
      write(is_integer ? static_cast<double>(value.integer) : value.real, output);
      return true;
    case ValueKind::kText:  // a text with a NUL is a blob in SQL
      if (!is_bytes || !is_utf8(value.bytes)) return false;
      write(value.bytes, output);
      return true;
    case ValueKind::kJson:
      break;
  }
  return false;
}

/// A column with one value a sample.
class ValueColumn : public ColumnMaker {
 public:
  ValueColumn(ValueKind kind, MissingValue missing)
      : ColumnMaker(dtype_of(kind),
                    dtype_of(kind) == DType::kUInt8 ? Layout::kRagged : Layout::kFixed),
        kind_(kind),
        missing_(std::move(missing)) {
    if (const auto* text = std::get_if<std::string>(&missing_)) require_text(*text);
  }

  [[nodiscard]] std::string describe() const override {
    constexpr const char* kNames[] = {"integer ", "number ", "text ", "json "};
    return kNames[static_cast<std::size_t>(kind_)] + source() +
           (has_missing() ? ", or " + text_of(missing_) : "");
  }

  [[nodiscard]] Content content() const override {
    return kind_ == ValueKind::kText   ? Content::kText
           : kind_ == ValueKind::kJson ? Content::kJson
                                       : Content::kValues;
  }

 protected:
  /// Returns where the values come from, e.g. "'json' at '$.caption'".
  [[nodiscard]] virtual std::string source() const = 0;

  [[nodiscard]] bool has_missing() const noexcept { return missing_.index() != 0; }
  /// Writes the row of a sample without a value. REQUIRES: has_missing().
  void write_missing(RowOutput& output) const {
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (!std::is_same_v<T, std::monostate>) write(value, output);
        },
        missing_);
  }
  const ValueKind kind_;

 private:
  void require_text(const std::string& missing) const {
    const auto fault = kind_ == ValueKind::kJson ? json_fault(missing) : std::nullopt;
    if (!fault && is_utf8(missing)) return;
    throw InvalidArgument("the value for missing fields is not " + std::string(type_of(kind_)),
                          fault ? escaped(fault->text()) : in_quotes(missing),
                          kind_ == ValueKind::kJson ? "write JSON, e.g. null" : "give UTF-8");
  }

  const MissingValue missing_;
};

class FieldValueColumn final : public ValueColumn {
 public:
  FieldValueColumn(ValueKind kind, ValueFields fields, MissingValue missing)
      : ValueColumn(kind, std::move(missing)), from_(std::move(fields)) {}

  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] const FieldChoice* fields() const override { return &from_.fields; }
  void make(const RowInput& input, RowOutput& output) const override {
    const auto place = SampleAccess::find(input.sample, from_.fields.names());
    if (!place && has_missing()) return write_missing(output);
    const std::size_t at = place ? *place : from_.fields.in(input.sample);  // throws NotFound
    return from_.path ? make_at_path(input, at, output) : make_whole(input, at, output);
  }

 protected:
  [[nodiscard]] std::string source() const override { return from_.describe(); }

 private:
  void make_whole(const RowInput& input, std::size_t place, RowOutput& output) const {
    if (kind_ == ValueKind::kInteger) return write(integer_of(input, place), output);
    const std::string bytes = copy_of(input, place);
    if (kind_ == ValueKind::kNumber) {
      if (write(whole_field_value(bytes), kind_, output)) return;
      from_.refuse(input.sample, place, type_of(kind_), "it is " + in_quotes(bytes.substr(0, 40)));
    }
    if (!is_utf8(bytes)) throw_bad_field(input.sample, place, "text", "it is not UTF-8");
    if (kind_ == ValueKind::kJson) {
      if (const auto fault = json_fault(bytes)) {
        throw_bad_field(input.sample, place, "JSON", fault->text());
      }
    }
    write(std::string_view(bytes), output);
  }

  void make_at_path(const RowInput& input, std::size_t place, RowOutput& output) const {
    std::string json, bytes;
    const auto found = from_.find(input, place, json);
    if (!found) {
      if (has_missing()) return write_missing(output);
      from_.throw_no_value(input.sample, place);
    }
    const bool is_scalar = (*found)[0] != '"' && (*found)[0] != '{' && (*found)[0] != '[';
    if (kind_ == ValueKind::kJson) {
      append_without_blanks(bytes, *found);
      return write(std::string_view(bytes), output);
    }
    const MetadataValue value = json_value(*found, bytes);
    // A whole number beyond 64 bits is a text in SQL, but not in JSON.
    const bool is_beyond = is_scalar && value.type == MetadataValue::Type::kText;
    if (!is_beyond && write(value, kind_, output)) return;
    from_.refuse(input.sample, place, type_of(kind_),
                 shown_json(*found) + (is_beyond ? ", which exceeds 64 bits" : ""));
  }

  const ValueFields from_;
};

class MetadataColumn final : public ValueColumn {
 public:
  MetadataColumn(ValueKind kind, std::string column, MissingValue missing)
      : ValueColumn(kind, std::move(missing)), column_(std::move(column)) {}

  [[nodiscard]] bool reads_whole_fields() const override { return false; }
  void require_data(const MixedDataset& data) const override {
    for (std::size_t part = 0; part < data.num_parts(); ++part) {
      static_cast<void>(data.part(part).values(column_, {}));  // throws if there is no such column
    }
  }
  [[nodiscard]] bool makes_rows() const override { return layout() == Layout::kFixed; }
  [[nodiscard]] bool make_rows(std::span<const Sample> samples, const RowSlots& slots,
                               std::size_t& /*bytes*/) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      RowOutput output{slots[i], nullptr, dtype(), {}};
      const auto value = SampleAccess::metadata(samples[i], column_);
      if (value && value->type == MetadataValue::Type::kNull && has_missing()) {
        write_missing(output);
      } else if (!value || !write(*value, kind_, output)) {
        return false;
      }
    }
    return true;
  }
  void make(const RowInput& input, RowOutput& output) const override {
    const auto found = SampleAccess::metadata(input.sample, column_);
    if (!found) {
      throw NotFound("the index has no column " + in_quotes(column_), input.sample.describe(),
                     "build the index with this column, or attach a table with " +
                         spelled("`shardwise attach`"));
    }
    const MetadataValue& value = *found;
    if (value.type == MetadataValue::Type::kNull) {
      if (has_missing()) return write_missing(output);
      throw NotFound("the sample has no value in the metadata column " + in_quotes(column_),
                     input.sample.describe(), remedy_without_value("select other samples"));
    }
    if (write(value, kind_, output)) return;
    throw BadField("the value in the metadata column " + in_quotes(column_) + " is not " +
                       std::string(type_of(kind_)) + ": " + shown(value),
                   input.sample.describe(), remedy_for_kind());
  }

 protected:
  [[nodiscard]] std::string source() const override { return "metadata " + in_quotes(column_); }

 private:
  static std::string shown(const MetadataValue& value) {
    if (value.type == MetadataValue::Type::kInteger) return std::to_string(value.integer);
    if (value.type == MetadataValue::Type::kReal) {
      const std::string text = text_of(value.real);
      const bool looks_whole = text.find_first_not_of("-0123456789") == std::string::npos;
      return looks_whole ? text + ".0" : text;
    }
    return in_quotes(value.bytes.substr(0, 40));
  }
  static std::string remedy_for_kind() {
    return "choose the type of its values, or leave the sample out with " + spelled("max_bad");
  }

  const std::string column_;
};

}  // namespace

ValueFields::ValueFields(std::string_view text)
    : fields(FieldChoice::readable(text.substr(0, text.find(kPathBegin)))) {
  const std::size_t begin = text.find(kPathBegin);
  if (begin == std::string_view::npos) return;
  const std::string_view written = text.substr(begin + 1);
  if (!JsonPath::is_valid(written)) {
    throw InvalidArgument("the JSON path of a column is malformed", in_quotes(text),
                          "write it as in SQLite, e.g. json:$.size.width or json:$.tags[0]");
  }
  if (has_semicolon(written)) {
    throw InvalidArgument("the JSON path of a column has a semicolon", in_quotes(text),
                          "write the path once, after all fields: json;json.gz:$.width; a key with "
                          "a semicolon needs quotes");
  }
  path.emplace(written);
}

std::string ValueFields::name() const {
  const std::string_view key = path ? path->last_key() : std::string_view();
  return key.empty() ? fields.names().front() : std::string(key);
}

std::string ValueFields::describe() const {
  return fields.describe() + (path ? " at " + in_quotes(path->text()) : "");
}

std::optional<std::string_view> ValueFields::find(const RowInput& input, std::size_t place,
                                                  std::string& json) const {
  json = copy_of(input, place);
  try {
    const auto found = path->find(json);
    return found && *found != "null" ? found : std::nullopt;
  } catch (const JsonFault& fault) {
    throw_bad_field(input.sample, place, "JSON", fault.text());
  }
}

void ValueFields::throw_no_value(const Sample& sample, std::size_t place) const {
  throw NotFound("field " + in_quotes(sample.field(place).name) + " has no value at " +
                     in_quotes(path->text()),
                 sample.describe(), remedy_without_value("correct the path"));
}

void ValueFields::refuse(const Sample& sample, std::size_t place, std::string_view type,
                         const std::string& reason) const {
  throw_bad_field(sample, place, std::string(type) + (path ? " at " + in_quotes(path->text()) : ""),
                  reason);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t n : shape) text += (text.empty() ? "" : ", ") + std::to_string(n);
  return "[" + text + "]";
}

std::string shown_json(std::string_view json) {
  constexpr std::size_t kMax = 40;
  return "it is " + std::string(json.substr(0, kMax)) + (json.size() > kMax ? "..." : "");
}

std::shared_ptr<const ColumnMaker> value_of_fields(ValueKind kind, ValueFields fields,
                                                   MissingValue missing) {
  return std::make_shared<FieldValueColumn>(kind, std::move(fields), std::move(missing));
}

}  // namespace shardwise::detail

namespace shardwise::columns {

using detail::ValueKind;

Column number(const std::string& fields, std::optional<double> missing) {
  detail::ValueFields from(fields);
  std::string name = from.name();
  return {std::move(name), detail::value_of_fields(ValueKind::kNumber, std::move(from),
                                                   detail::missing_value(missing))};
}

template <MetadataType T>
Column metadata(const std::string& column, std::optional<std::type_identity_t<T>> missing) {
  constexpr ValueKind kKind = std::is_same_v<T, std::string> ? ValueKind::kText
                              : std::is_same_v<T, double>    ? ValueKind::kNumber
                                                             : ValueKind::kInteger;
  return {column, std::make_shared<detail::MetadataColumn>(
                      kKind, column, detail::missing_value<T>(std::move(missing)))};
}

template Column metadata<std::int64_t>(const std::string&, std::optional<std::int64_t>);
template Column metadata<double>(const std::string&, std::optional<double>);
template Column metadata<std::string>(const std::string&, std::optional<std::string>);

}  // namespace shardwise::columns
