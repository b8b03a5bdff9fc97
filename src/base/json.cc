#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/ascii.h"
#include "base/lines.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

/// A number with fewer characters and no exponent fits in a double, because it is below 10^300.
constexpr std::size_t kSmallNumberBytes = 300;

bool is_plain(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

void append_utf8(std::string& out, std::uint32_t c) {
  const auto tail = [&](unsigned shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_high_surrogate(unsigned c) noexcept { return c >= 0xD800 && c < 0xDC00; }
bool is_low_surrogate(unsigned c) noexcept { return c >= 0xDC00 && c < 0xE000; }

/// Parses the four digits of a \u escape that was already checked.
unsigned hex_at(std::string_view digits) noexcept {
  unsigned value = 0;
  std::from_chars(digits.data(), digits.data() + 4, value, 16);
  return value;
}

/// Decodes the escape at the front of `rest`, whose backslash is already removed, into `out`, and
/// removes it from `rest`. REQUIRES: the escape was checked.
void append_escape(std::string& out, std::string_view& rest) {
  constexpr std::string_view kNames = "bfnrt";
  constexpr std::string_view kMeanings = "\b\f\n\r\t";
  const char kind = rest[0];
  rest.remove_prefix(1);
  if (kind != 'u') {
    const std::size_t at = kNames.find(kind);
    out += at == std::string_view::npos ? kind : kMeanings[at];
    return;
  }
  std::uint32_t c = hex_at(rest);
  rest.remove_prefix(4);
  if (is_high_surrogate(c)) {
    c = 0x10000 + ((c - 0xD800) << 10) + (hex_at(rest.substr(2)) - 0xDC00);
    rest.remove_prefix(6);
  }
  append_utf8(out, c);
}

/// Returns the token in quotes, cut to 40 bytes, without escaping.
std::string quoted(std::string_view token) {
  constexpr std::size_t kMax = 40;
  return "'" + std::string(token.substr(0, kMax)) + (token.size() > kMax ? "...'" : "'");
}

/// For a number outside the range of double: true if it is too large, false if it is too small.
bool is_large(std::string_view number) {
  const std::size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, e);
  std::int64_t exponent = 0;
  if (e < number.size()) {
    std::string_view text = number.substr(e + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    if (const auto value = parse_int64(text)) {
      exponent = std::clamp<std::int64_t>(*value, -1'000'000'000, 1'000'000'000);
    } else {
      exponent = text.starts_with('-') ? -1'000'000'000 : 1'000'000'000;
    }
  }
  const std::size_t first = digits.find_first_of("123456789");
  if (first == std::string_view::npos) return false;
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  return point - static_cast<std::int64_t>(first) + exponent > 0;
}

}  // namespace

std::string JsonFault::text() const { return what + ", at offset " + std::to_string(offset); }

void JsonReader::fail(std::size_t offset, std::string what) {
  throw JsonFault{std::move(what), offset};
}

void JsonReader::refuse(std::string_view where) const {
  if (at_ >= text_.size()) fail(text_.size(), "the text ends " + std::string(where));
  constexpr std::size_t kMax = 20;
  const auto goes_on = [](char c) {
    return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '+' || c == '_';
  };
  std::string_view token = text_.substr(at_, kMax);
  std::size_t size = 0;
  while (size < token.size() && goes_on(token[size])) ++size;
  if (size == 0) {  // use one UTF-8 character, or one byte
    for (size = 1; size < std::min<std::size_t>(token.size(), 4); ++size) {
      if (is_utf8(token.substr(0, size))) break;
    }
    if (!is_utf8(token.substr(0, size))) size = 1;
  }
  fail(at_, quoted(token.substr(0, size)) + " " + std::string(where));
}

void JsonReader::begin_text() {
  if (text_.starts_with("\xFF\xFE") || text_.starts_with("\xFE\xFF")) {
    fail(0, "a text in UTF-16 or UTF-32, not UTF-8");
  }
  if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

void JsonReader::skip_blanks() noexcept {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

JsonReader::Token JsonReader::next() {
  if (at_ == 0) begin_text();
  skip_blanks();
  if (expect_ == Expect::kColon) {
    if (!has(':')) refuse("where a colon belongs");
    ++at_;
    skip_blanks();
    expect_ = Expect::kValue;
  } else if (expect_ == Expect::kCommaOrEnd) {
    if (has(in_object() ? '}' : ']')) return close();
    if (!has(','))
      refuse(in_object() ? "where a comma or } belongs" : "where a comma or ] belongs");
    ++at_;
    skip_blanks();
    expect_ = in_object() ? Expect::kKey : Expect::kValue;
  }
  switch (expect_) {
    case Expect::kNothing:
      begin_ = at_;
      if (at_ < text_.size()) refuse("after the value");
      return Token::kEnd;
    case Expect::kKeyOrEnd:
      if (has('}')) return close();
      [[fallthrough]];
    case Expect::kKey:
      if (!has('"')) refuse("where a key belongs");
      read_string();
      expect_ = Expect::kColon;
      return Token::kKey;
    case Expect::kValueOrEnd:
      if (has(']')) return close();
      [[fallthrough]];
    default:
      return value();
  }
}

JsonReader::Token JsonReader::value() {
  begin_ = at_;
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  switch (c) {
    case '{':
      return open(true);
    case '[':
      return open(false);
    case '"':
      read_string();
      return ended(Token::kString);
    case 't':
      return word("true", Token::kTrue);
    case 'f':
      return word("false", Token::kFalse);
    case 'n':
      return word("null", Token::kNull);
    default:
      if (c != '-' && !is_digit(c)) refuse("where a value belongs");
      read_number();
      return ended(Token::kNumber);
  }
}

JsonReader::Token JsonReader::open(bool is_object) {
  if (depth_ == max_depth_) {
    fail(at_, "nested deeper than " + std::to_string(max_depth_));
  }
  is_object_[depth_++] = is_object;
  ++at_;
  expect_ = is_object ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
  return is_object ? Token::kObject : Token::kArray;
}

JsonReader::Token JsonReader::close() {
  const bool was_object = in_object();
  begin_ = at_++;
  --depth_;
  return ended(was_object ? Token::kEndOfObject : Token::kEndOfArray);
}

JsonReader::Token JsonReader::ended(Token token) noexcept {
  expect_ = depth_ == 0 ? Expect::kNothing : Expect::kCommaOrEnd;
  return token;
}

JsonReader::Token JsonReader::word(std::string_view word, Token token) {
  if (!text_.substr(at_).starts_with(word)) refuse("where a value belongs");
  at_ += word.size();
  return ended(token);
}

void JsonReader::skip() {
  if (expect_ != Expect::kKeyOrEnd && expect_ != Expect::kValueOrEnd) return;
  const std::size_t begin = begin_;
  for (const std::size_t outside = depth_ - 1; depth_ > outside;) next();
  begin_ = begin;
}

void JsonReader::read_string() {
  begin_ = at_++;
  has_escapes_ = false;
  bool is_ascii = true;
  for (;;) {
    while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
    if (at_ == text_.size()) fail(at_, "the text ends within a string");
    const char c = text_[at_];
    if (c == '"') break;
    if (c == '\\') {
      read_escape();
    } else if (static_cast<unsigned char>(c) < 0x20) {
      refuse("within a string, where it must be escaped");
    } else {
      is_ascii = false;
      ++at_;
    }
  }
  ++at_;
  if (!is_ascii && !is_utf8(token())) fail(begin_, "a string that is not UTF-8");
}

void JsonReader::read_escape() {
  const std::size_t begin = at_++;
  has_escapes_ = true;
  const char kind = at_ < text_.size() ? text_[at_] : '\0';
  ++at_;
  const auto written = [&] { return quoted(text_.substr(begin, 6)); };
  if (kind != 'u') {
    if (std::string_view("\"\\/bfnrt").find(kind) == std::string_view::npos) {
      fail(begin, quoted(text_.substr(begin, 2)) + " is not an escape");
    }
    return;
  }
  const unsigned c = read_hex();
  if (is_low_surrogate(c)) fail(begin, written() + " is an unpaired surrogate");
  if (!is_high_surrogate(c)) return;
  if (!text_.substr(at_).starts_with("\\u")) fail(begin, written() + " is an unpaired surrogate");
  at_ += 2;
  if (!is_low_surrogate(read_hex())) fail(begin, written() + " is an unpaired surrogate");
}

unsigned JsonReader::read_hex() {
  const std::string_view digits = text_.substr(at_, 4);
  if (digits.size() < 4 || !is_hex(to_lower(digits))) {
    fail(at_ - 2, quoted(text_.substr(at_ - 2, 6)) + " is not an escape");
  }
  at_ += 4;
  return hex_at(digits);
}

void JsonReader::read_number() {
  const auto take_digits = [&] {
    const std::size_t first = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == first) refuse("where a digit belongs");
  };
  if (has('-')) ++at_;
  const bool is_zero = has('0');
  take_digits();
  if (is_zero && at_ - begin_ > (text_[begin_] == '-' ? 2U : 1U)) {
    fail(begin_, quoted(token()) + " begins with 0");
  }
  is_whole_ = true;
  bool has_exponent = false;
  if (has('.')) {
    is_whole_ = false;
    ++at_;
    take_digits();
  }
  if (has('e') || has('E')) {
    is_whole_ = false;
    has_exponent = true;
    ++at_;
    if (has('+') || has('-')) ++at_;
    take_digits();
  }
  if (!has_exponent && at_ - begin_ < kSmallNumberBytes) return;
  double value = 0;
  const auto outcome = std::from_chars(text_.data() + begin_, text_.data() + at_, value);
  if (outcome.ec == std::errc::result_out_of_range && is_large(token())) {
    fail(begin_, quoted(token()) + " is beyond the range of a double");
  }
}

std::string_view JsonReader::text() {
  std::string_view rest = token().substr(1, token().size() - 2);
  if (!has_escapes_) return rest;
  unescaped_.clear();
  while (!rest.empty()) {
    const std::size_t plain = std::min(rest.find('\\'), rest.size());
    unescaped_.append(rest.substr(0, plain));
    rest.remove_prefix(plain);
    if (rest.empty()) break;
    rest.remove_prefix(1);
    append_escape(unescaped_, rest);
  }
  return unescaped_;
}

std::optional<std::int64_t> JsonReader::integer() const noexcept {
  return is_whole_ ? parse_int64(token()) : std::nullopt;
}

std::optional<std::uint64_t> JsonReader::whole() const noexcept {
  std::uint64_t value = 0;
  const std::string_view digits = token();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (!is_whole_ || error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return value;
}

double JsonReader::real() const noexcept {
  double value = 0;  // remains 0 if the number is too small
  std::from_chars(text_.data() + begin_, text_.data() + at_, value);
  return value;
}

std::optional<JsonFault> json_fault(std::string_view text, std::size_t max_depth) try {
  for (JsonReader reader(text, max_depth); reader.next() != JsonReader::Token::kEnd;) continue;
  return std::nullopt;
} catch (const JsonFault& fault) {
  return fault;
}

}  // namespace shardwise::detail
