#include "ingest/column_reader.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/ascii.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

/// What the virtual tables `samples` and `members` call their own columns.
constexpr std::array<std::string_view, 10> kReserved = {
    "sample", "key", "shard", "members", "bytes", "member", "field", "offset", "size", "rowid"};

bool starts_name(char c) { return is_letter(c) || c == '_'; }

bool is_identifier(std::string_view text) {
  return !text.empty() && text.size() <= 64 && starts_name(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return starts_name(c) || is_digit(c); });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

/// A field as a whole.
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
  if (looks_numeric) {  // from_chars also reads "inf" and "nan", which SQL has no number for
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.real);
    if (error == std::errc() && end == text.data() + text.size() && value.real - value.real == 0) {
      value.type = ValueType::kReal;
      return value;
    }
  }
  value.bytes = field;
  value.type = is_utf8(field) && field.find('\0') == std::string_view::npos ? ValueType::kText
                                                                            : ValueType::kBlob;
  if (value.type == ValueType::kText) value.bytes = text;
  return value;
}

/// True if `path` is `$` and any number of `.name`, `."name"`, `[N]`, `[#]` and `[#-N]`. SQLite
/// itself looks no further than the document at hand goes.
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

constexpr std::string_view kExtract = "SELECT json_extract(?1, ?2) WHERE json_valid(?1)";

}  // namespace

Column parse_column(std::string_view text) {
  const std::string where = in_quotes(text);
  Column column;
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
        "a column that names no field", where,
        "write FIELD, FIELD:JSONPATH, or NAME=FIELD:JSONPATH; cls or json:$.width");
  }
  if (path != std::string_view::npos) {
    column.json_path = rest.substr(path + 1);
    if (!is_json_path(column.json_path)) {
      throw InvalidArgument("a malformed JSON path", where,
                            "write it as in SQLite, json:$.size.width or json:$.tags[0]");
    }
    if (column.json_path.find('\n') != std::string::npos) {
      throw InvalidArgument("a line break in a JSON path", where, "leave it out");
    }
  }
  if (column.name.empty()) {
    const std::string_view last =
        column.json_path.empty()
            ? std::string_view(column.field)
            : std::string_view(column.json_path).substr(column.json_path.rfind('.') + 1);
    if (!is_identifier(last)) {
      throw InvalidArgument("a column whose name is none in SQL", where,
                            "name it: NAME=" + std::string(rest));
    }
    column.name = to_lower(last);
  }
  if (std::find(kReserved.begin(), kReserved.end(), column.name) != kReserved.end()) {
    throw InvalidArgument("a column with a name that the index uses itself", where,
                          "name it otherwise: NAME=" + std::string(rest));
  }
  return column;
}

std::string to_string(const Column& column) {
  return column.name + "=" + column.field + (column.json_path.empty() ? "" : ":") +
         column.json_path;
}

ColumnReader::ColumnReader(const std::vector<Column>& columns)
    : columns_(columns), db_(sqlite::Database::in_memory()), extract_(db_.prepare(kExtract)) {}

std::optional<MetadataValue> ColumnReader::read(std::size_t column, std::string_view field) {
  const std::string& path = columns_[column].json_path;
  if (path.empty()) return whole_field(field);
  if (!is_utf8(field) || field.find('\0') != std::string_view::npos) return std::nullopt;
  extract_.reset();
  extract_.bind(1, field).bind(2, path);
  if (!extract_.step()) return std::nullopt;
  return extract_.value(0);
}

}  // namespace shardwise
