#include "index/field_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/ascii.h"
#include "base/text.h"
#include "index/sqlite.h"

namespace shardwise::detail {
namespace {

using Token = JsonReader::Token;

constexpr double kTwoTo63 = 9223372036854775808.0;  // integers below this are integers in SQL

bool is_whole_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

/// Returns a text if the bytes are UTF-8, otherwise a blob.
MetadataValue of_bytes(std::string_view bytes) {
  MetadataValue value;
  value.bytes = bytes;
  value.type = sqlite::is_text(bytes) ? ValueType::kText : ValueType::kBlob;
  return value;
}

MetadataValue of_integer(std::int64_t integer) {
  MetadataValue value;
  value.type = ValueType::kInteger;
  value.integer = integer;
  return value;
}

/// Returns the number that the reader has just read.
MetadataValue of_number(const JsonReader& reader, std::string& bytes) {
  if (const auto integer = reader.integer()) return of_integer(*integer);
  MetadataValue value;
  value.type = ValueType::kReal;
  value.real = reader.real();
  if (!reader.is_whole() || std::abs(value.real) < kTwoTo63) return value;
  bytes = reader.token();  // keep the digits as text, because a double would round them
  return of_bytes(bytes);
}

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

}  // namespace

MetadataValue whole_field_value(std::string_view field) {
  const std::string_view text = trimmed(field);
  if (const auto integer = parse_int64(text)) return of_integer(*integer);
  const bool looks_numeric =
      !text.empty() && (is_digit(text[0]) || text[0] == '-' || text[0] == '.');
  MetadataValue value;
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

MetadataValue json_value(std::string_view json, std::string& bytes) {
  JsonReader reader(json);
  switch (reader.next()) {
    case Token::kTrue:
      return of_integer(1);
    case Token::kFalse:
      return of_integer(0);
    case Token::kNumber:
      return of_number(reader, bytes);
    case Token::kString:
      bytes = reader.text();
      return of_bytes(bytes);
    case Token::kObject:
    case Token::kArray:
      bytes.clear();
      append_without_blanks(bytes, json);
      return of_bytes(bytes);
    default:
      return {};
  }
}

void append_without_blanks(std::string& out, std::string_view json) {
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') out += json[i++];
    if (in_string || trimmed({&c, 1}).size() == 1) out += json[i];
  }
}

bool JsonPath::is_valid(std::string_view text) {
  if (!text.starts_with('$')) return false;
  text.remove_prefix(1);
  const auto take = [&](std::size_t size) {
    const std::string_view taken = text.substr(0, size);
    text.remove_prefix(taken.size());
    return taken;
  };
  while (!text.empty()) {
    const char kind = take(1)[0];
    if (kind == '.' && text.starts_with('"')) {
      const std::size_t end = text.find('"', 1);
      if (end == std::string_view::npos) return false;
      take(end + 1);
    } else if (kind == '.') {
      if (take(text.find_first_of(".[")).empty()) return false;
    } else if (kind == '[') {
      const std::size_t end = text.find(']');
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

JsonPath::JsonPath(std::string_view text) : text_(text) {
  for (std::string_view rest = text.substr(1); !rest.empty();) {
    const bool is_key = rest[0] == '.';
    rest.remove_prefix(1);
    std::size_t size = rest.find(']');
    if (is_key) {
      size =
          rest[0] == '"' ? rest.find('"', 1) + 1 : std::min(rest.find_first_of(".["), rest.size());
      steps_.push_back({.key = key_of(rest.substr(0, size))});
    } else {
      std::string_view number = rest.substr(0, size++);
      Step step{.is_from_end = number.starts_with('#')};
      number.remove_prefix(number.starts_with("#-") ? 2 : number.starts_with('#') ? 1 : 0);
      // "[#]" is the position after the last element. A number that is too large matches no
      // element.
      step.number = number.empty() ? 0 : parse_int64(number).value_or(INT64_MAX);
      steps_.push_back(std::move(step));
    }
    rest.remove_prefix(size);
  }
}

std::string_view JsonPath::last_key() const noexcept {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->key) return *step->key;
  }
  return {};
}

/// Reads a document, and records where the value at a path begins and ends.
class JsonPath::Search {
 public:
  explicit Search(std::string_view json) : json_(json), reader_(json) {}

  std::optional<std::string_view> run(std::span<const Step> steps) {
    follow(reader_.next(), steps);
    reader_.next();  // throws JsonFault if the text continues after the value
    return found_;
  }

 private:
  /// Consumes the value that begins with `token`. Sets found_ to the value that `steps` lead to
  /// inside it.
  void follow(Token token, std::span<const Step> steps) {
    if (steps.empty()) {
      const std::size_t begin = reader_.begin();
      reader_.skip();
      found_ = json_.substr(begin, reader_.end() - begin);
    } else if (token == Token::kObject && steps.front().key) {
      follow_key(steps);
    } else if (token == Token::kArray && !steps.front().key) {
      follow_number(steps);
    } else {
      reader_.skip();
    }
  }

  void follow_key(std::span<const Step> steps) {
    while (reader_.next() == Token::kKey) {
      const bool is_wanted = reader_.text() == *steps.front().key;
      const Token value = reader_.next();
      if (is_wanted) {
        found_.reset();  // the last of repeated keys counts
        follow(value, steps.subspan(1));
      } else {
        reader_.skip();
      }
    }
  }

  void follow_number(std::span<const Step> steps) {
    std::int64_t wanted = steps.front().number;
    if (steps.front().is_from_end) {
      JsonReader ahead = reader_;
      std::int64_t size = 0;
      for (; ahead.next() != Token::kEndOfArray; ++size) ahead.skip();
      wanted = size - wanted;
    }
    std::int64_t number = 0;
    for (Token value = reader_.next(); value != Token::kEndOfArray; value = reader_.next()) {
      if (number++ == wanted) {
        follow(value, steps.subspan(1));
      } else {
        reader_.skip();
      }
    }
  }

  const std::string_view json_;
  JsonReader reader_;
  std::optional<std::string_view> found_;
};

std::optional<std::string_view> JsonPath::find(std::string_view json) const {
  return Search(json).run(steps_);
}

}  // namespace shardwise::detail
