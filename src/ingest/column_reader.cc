#include "ingest/column_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/ascii.h"
#include "base/json.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "shardwise/index/query.h"

namespace shardwise {
namespace {

/// Column names that the virtual tables `samples` and `members` use themselves.
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

/// Returns a text if the bytes are UTF-8, otherwise a blob.
MetadataValue of_bytes(std::string_view bytes) {
  MetadataValue value;
  value.bytes = bytes;
  value.type = is_utf8(bytes) && bytes.find('\0') == std::string_view::npos ? ValueType::kText
                                                                            : ValueType::kBlob;
  return value;
}

/// Returns the value of a whole field. An integer that SQL cannot represent is returned as text.
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
  // from_chars also accepts "inf" and "nan", which are not numbers in SQL.
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

/// True if `path` is `$` followed by any number of `.name`, `."name"`, `[N]`, `[#]` and `[#-N]`.
/// SQLite checks only the part of a path that it follows in a document.
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

constexpr double kTwoTo63 = 9223372036854775808.0;  // integers below this are integers in SQL

/// Returns the key in a path, which may be quoted. Escapes inside quotes are JSON escapes.
std::string key_of(std::string_view written) {
  if (!written.starts_with('"')) return std::string(written);
  try {
    JsonReader reader(written);
    reader.next();
    return std::string(reader.text());
  } catch (const JsonFault&) {
    return std::string(written.substr(1, written.size() - 2));
  }
}

/// Appends JSON without the whitespace between its tokens.
void append_without_blanks(std::string& out, std::string_view json) {
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') out += json[i++];
    if (in_string || trimmed({&c, 1}).size() == 1) out += json[i];
  }
}

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
        "write FIELD, FIELD:JSONPATH, or NAME=FIELD:JSONPATH, e.g. cls or json:$.width");
  }
  if (path != std::string_view::npos) {
    column.json_path = rest.substr(path + 1);
    if (!is_json_path(column.json_path)) {
      throw InvalidArgument("the JSON path of the column is malformed", where,
                            "write it as in SQLite, e.g. json:$.size.width or json:$.tags[0]");
    }
    if (column.json_path.find('\n') != std::string::npos) {
      throw InvalidArgument("the JSON path of the column has a line break", where,
                            "remove the line break");
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
    throw InvalidArgument("the index reserves this column name", where,
                          "give the column another name: NAME=" + std::string(rest));
  }
  return column;
}

std::string to_string(const Index::Column& column) {
  return column.name + "=" + column.field + (column.json_path.empty() ? "" : ":") +
         column.json_path;
}

std::vector<ColumnReader::Step> ColumnReader::steps_of(std::string_view path) {
  std::vector<Step> steps;
  for (std::string_view rest = path.substr(std::min<std::size_t>(path.size(), 1)); !rest.empty();) {
    const bool is_key = rest[0] == '.';
    rest.remove_prefix(1);
    std::size_t size = rest.find(']');
    if (is_key) {
      size =
          rest[0] == '"' ? rest.find('"', 1) + 1 : std::min(rest.find_first_of(".["), rest.size());
      steps.push_back({.key = key_of(rest.substr(0, size))});
    } else {
      std::string_view number = rest.substr(0, size++);
      Step step{.is_from_end = number.starts_with('#')};
      number.remove_prefix(number.starts_with("#-") ? 2 : number.starts_with('#') ? 1 : 0);
      // "[#]" is the position after the last element. A number that is too large matches no
      // element.
      step.number = number.empty() ? 0 : parse_int64(number).value_or(INT64_MAX);
      steps.push_back(std::move(step));
    }
    rest.remove_prefix(size);
  }
  return steps;
}

ColumnReader::ColumnReader(const std::vector<Index::Column>& columns) : columns_(columns) {
  for (const Index::Column& column : columns) steps_.push_back(steps_of(column.json_path));
}

std::optional<std::string> ColumnReader::too_large(std::size_t column,
                                                   std::string_view field) const {
  if (!columns_[column].json_path.empty() || field.size() <= kMaxBlobValueBytes) {
    return std::nullopt;
  }
  const bool is_text = is_utf8(field) && field.find('\0') == std::string_view::npos;
  if (is_text && (field.size() <= kMaxTextValueBytes || !json_fault(field))) return std::nullopt;
  return std::string(is_text ? "a text of more than 64 KiB"
                             : "a value of more than 4 KiB other than text") +
         " cannot be a metadata column";
}

MetadataValue ColumnReader::read(std::size_t column, std::string_view field) {
  if (columns_[column].json_path.empty()) return whole_field(field);
  found_ = {};
  JsonReader reader(field);
  find(reader, reader.next(), steps_[column]);
  reader.next();  // throws JsonFault if the text continues after the value
  return found_;
}

void ColumnReader::find(JsonReader& reader, JsonReader::Token token, std::span<const Step> steps) {
  using Token = JsonReader::Token;
  if (steps.empty()) return take(reader, token);
  const Step& step = steps.front();
  if (token == Token::kObject && step.key) {
    while (reader.next() == Token::kKey) {
      const bool is_wanted = reader.text() == *step.key;
      const Token value = reader.next();
      if (is_wanted) {
        found_ = {};  // the last of repeated keys counts
        find(reader, value, steps.subspan(1));
      } else {
        reader.skip();
      }
    }
  } else if (token == Token::kArray && !step.key) {
    std::int64_t wanted = step.number;
    if (step.is_from_end) {
      JsonReader ahead = reader;
      std::int64_t size = 0;
      for (; ahead.next() != Token::kEndOfArray; ++size) ahead.skip();
      wanted = size - step.number;
    }
    std::int64_t number = 0;
    for (Token value = reader.next(); value != Token::kEndOfArray; value = reader.next()) {
      if (number++ == wanted) {
        find(reader, value, steps.subspan(1));
      } else {
        reader.skip();
      }
    }
  } else {
    reader.skip();
  }
}

void ColumnReader::take(JsonReader& reader, JsonReader::Token token) {
  found_ = {};
  switch (token) {
    case JsonReader::Token::kTrue:
    case JsonReader::Token::kFalse:
      found_.type = ValueType::kInteger;
      found_.integer = token == JsonReader::Token::kTrue ? 1 : 0;
      break;
    case JsonReader::Token::kNumber:
      take_number(reader);
      break;
    case JsonReader::Token::kString:
      text_ = reader.text();
      found_ = of_bytes(text_);
      break;
    case JsonReader::Token::kObject:
    case JsonReader::Token::kArray:
      reader.skip();
      text_.clear();
      append_without_blanks(text_, reader.token());
      found_ = of_bytes(text_);
      break;
    default:
      break;  // null stays null
  }
}

void ColumnReader::take_number(const JsonReader& reader) {
  if (const auto integer = reader.integer()) {
    found_.type = ValueType::kInteger;
    found_.integer = *integer;
    return;
  }
  found_.type = ValueType::kReal;
  found_.real = reader.real();
  if (reader.is_whole() && std::abs(found_.real) >= kTwoTo63) {
    text_ = reader.token();  // keep the digits as text, because a double would round them
    found_ = of_bytes(text_);
  }
}

}  // namespace shardwise
