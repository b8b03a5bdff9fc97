#include "ingest/column_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "shardwise/index/query.h"

namespace shardwise {
namespace {

/// Names of columns that the virtual tables `samples` and `members` have of their own.
constexpr std::array<std::string_view, 10> kReserved = {
    "sample", "key", "shard", "members", "bytes", "member", "field", "offset", "size", "rowid"};

bool starts_name(char c) { return is_letter(c) || c == '_'; }

bool is_identifier(std::string_view text) {
  return !text.empty() && text.size() <= 64 && starts_name(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return starts_name(c) || is_digit(c); });
}

bool is_whole_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

/// A text if the bytes are UTF-8, else a blob.
MetadataValue of_bytes(std::string_view bytes) {
  MetadataValue value;
  value.bytes = bytes;
  value.type = is_utf8(bytes) && bytes.find('\0') == std::string_view::npos ? ValueType::kText
                                                                            : ValueType::kBlob;
  return value;
}

/// The value of a field as a whole. An integer that SQL cannot represent stays a text.
MetadataValue whole_field(std::string_view field) {
  MetadataValue value;
  const std::string_view text = trimmed(field);
  if (const auto integer = parse_int64(text)) {
    value.type = ValueType::kInteger;
    value.integer = *integer;
    return value;
  }
  const bool looks_numeric =
      !text.empty() && (is_digit(text[0]) || text[0] == '-' || text[0] == '.');
  // from_chars also reads "inf" and "nan", which are no numbers in SQL.
  if (looks_numeric && !is_whole_number(text)) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.real);
    if (error == std::errc() && end == text.data() + text.size() && value.real - value.real == 0) {
      value.type = ValueType::kReal;
      return value;
    }
  }
  value = of_bytes(field);
  if (value.type == ValueType::kText) value.bytes = text;
  return value;
}

/// True if `path` is `$` and any number of `.name`, `."name"`, `[N]`, `[#]` and `[#-N]`. SQLite
/// itself checks a path only as far as it matches the document.
bool is_json_path(std::string_view path) {
  if (!path.starts_with('$')) return false;
  path.remove_prefix(1);
  const auto take = [&](std::size_t size) {
    const std::string_view taken = path.substr(0, size);
    path.remove_prefix(taken.size());
    return taken;
  };
  while (!path.empty()) {
    const char kind = take(1)[0];
    if (kind == '.' && path.starts_with('"')) {
      const std::size_t end = path.find('"', 1);
      if (end == std::string_view::npos) return false;
      take(end + 1);
    } else if (kind == '.') {
      if (take(path.find_first_of(".[")).empty()) return false;
    } else if (kind == '[') {
      const std::size_t end = path.find(']');
      if (end == std::string_view::npos) return false;
      std::string_view number = take(end);
      take(1);
      if (number == "#") continue;
      if (number.starts_with("#-")) number.remove_prefix(2);
      if (number.empty() || !std::all_of(number.begin(), number.end(), is_digit)) return false;
    } else {
      return false;
    }
  }
  return true;
}

constexpr std::string_view kValid = "SELECT json_valid(?1)";
constexpr std::string_view kExtract = "SELECT json_extract(?1, ?2) WHERE json_valid(?1)";
constexpr double kTwoTo63 = 9223372036854775808.0;  // integers below it are integers in SQL
constexpr std::string_view kWrite = "SELECT json_extract(?1, ?2, ?2)";

}  // namespace

Index::Column parse_column(std::string_view text) {
  const std::string where = in_quotes(text);
  Index::Column column;
  std::string_view rest = text;
  if (const std::size_t equals = rest.find('=');
      equals != std::string_view::npos && is_identifier(rest.substr(0, equals))) {
    column.name = to_lower(rest.substr(0, equals));
    rest.remove_prefix(equals + 1);
  }
  const std::size_t path = rest.find(":$");
  column.field = to_lower(rest.substr(0, path));
  if (column.field.empty() || column.field.find_first_of("/\n") != std::string::npos) {
    throw InvalidArgument(
        "the column names no field", where,
        "write FIELD, FIELD:JSONPATH, or NAME=FIELD:JSONPATH, as cls or json:$.width");
  }
  if (path != std::string_view::npos) {
    column.json_path = rest.substr(path + 1);
    if (!is_json_path(column.json_path)) {
      throw InvalidArgument("the JSON path of the column is malformed", where,
                            "write it as in SQLite, json:$.size.width or json:$.tags[0]");
    }
    if (column.json_path.find('\n') != std::string::npos) {
      throw InvalidArgument("the JSON path of the column has a line break", where, "leave it out");
    }
  }
  if (column.name.empty()) {
    const std::string_view last =
        column.json_path.empty()
            ? std::string_view(column.field)
            : std::string_view(column.json_path).substr(column.json_path.rfind('.') + 1);
    if (!is_identifier(last)) {
      throw InvalidArgument("the name of the column is not valid in SQL", where,
                            "give the column a name: NAME=" + std::string(rest));
    }
    column.name = to_lower(last);
  }
  if (std::find(kReserved.begin(), kReserved.end(), column.name) != kReserved.end()) {
    throw InvalidArgument("the index has a column of its own with this name", where,
                          "give the column another name: NAME=" + std::string(rest));
  }
  return column;
}

std::string to_string(const Index::Column& column) {
  return column.name + "=" + column.field + (column.json_path.empty() ? "" : ":") +
         column.json_path;
}

ColumnReader::ColumnReader(const std::vector<Index::Column>& columns)
    : columns_(columns),
      db_(sqlite::Database::in_memory()),
      extract_(db_.prepare(kExtract)),
      write_(db_.prepare(kWrite)),
      valid_(db_.prepare(kValid)) {}

std::optional<std::string> ColumnReader::too_large(std::size_t column, std::string_view field) {
  if (!columns_[column].json_path.empty() || field.size() <= kMaxBlobValueBytes) {
    return std::nullopt;
  }
  const bool is_text = is_utf8(field) && field.find('\0') == std::string_view::npos;
  if (is_text) {
    if (field.size() <= kMaxTextValueBytes) return std::nullopt;
    valid_.reset();
    valid_.bind(1, field);
    if (valid_.step() && valid_.integer(0) != 0) return std::nullopt;
  }
  return std::string(is_text ? "a text above 64 KiB" : "a value above 4 KiB that is no text") +
         " cannot be a metadata column";
}

std::optional<MetadataValue> ColumnReader::read(std::size_t column, std::string_view field) {
  const std::string& path = columns_[column].json_path;
  if (path.empty()) return whole_field(field);
  if (!is_utf8(field) || field.find('\0') != std::string_view::npos) return std::nullopt;
  extract_.reset();
  extract_.bind(1, field).bind(2, path);
  if (!extract_.step()) return std::nullopt;
  MetadataValue value = extract_.value(0);
  // json_extract rounds large numbers and cuts texts at a NUL: such values are taken as written.
  if (value.type == ValueType::kReal && std::abs(value.real) >= kTwoTo63) {
    const std::string_view written = as_written(field, path);
    if (is_whole_number(written) || std::isinf(value.real)) return of_bytes(written);
  } else if (value.type == ValueType::kText) {
    if (field.find("\\u0000") == std::string_view::npos) return of_bytes(value.bytes);
    const std::string_view written = as_written(field, path);
    if (written.find("\\u0000") == std::string_view::npos) return of_bytes(value.bytes);
    const auto json = nlohmann::json::parse(written, nullptr, false);
    if (json.is_string()) {
      text_ = json.get<std::string>();
      return of_bytes(text_);
    }
    value.bytes = written;
    if (written.starts_with('"')) value.type = ValueType::kBlob;  // with lone surrogates, too
  }
  return value;
}

std::string_view ColumnReader::as_written(std::string_view field, const std::string& path) {
  // Given the path twice, SQLite returns an array of both values, "[7,7]".
  write_.reset();
  write_.bind(1, field).bind(2, path);
  if (!write_.step()) return {};
  const std::string_view twice = write_.value(0).bytes;
  return twice.size() < 3 ? std::string_view() : twice.substr(1, (twice.size() - 3) / 2);
}

}  // namespace shardwise
