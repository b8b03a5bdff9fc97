#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The first fault in a text that is not valid JSON.
struct SHARDWISE_EXPORT JsonFault {
  std::string what;        ///< e.g. "'NaN' where a value belongs"; quoted bytes are not escaped
  std::size_t offset = 0;  ///< offset of the wrong byte

  /// Returns e.g. "'NaN' where a value belongs, at offset 17", without escaping.
  [[nodiscard]] std::string text() const;
};

/// Reads a JSON text from front to back, one token at a time. All data of users is read by it, so
/// columns, loader, descriptors and Python agree on which texts are valid (see the table in
/// docs/caveats.md). Files of the library itself and answers of services are not.
///
/// It accepts RFC 8259 in UTF-8, with an optional byte order mark. It refuses NaN, numbers beyond
/// the range of a double, lone surrogates, NUL, and more than kMaxJsonDepth nested arrays and
/// objects. If a key occurs twice in an object, the reader returns both occurrences, and the caller
/// must use the last one.
///
/// A copy is cheap, and continues from the same token independently.
/// Lifetime: the text must outlive the reader and its copies.
/// Threads: one.
/// Cost: linear; only text() allocates, for strings with escapes.
class SHARDWISE_EXPORT JsonReader {
 public:
  enum class Token : std::uint8_t {
    kObject,  ///< beginning of an object; then keys and values follow, and then kEndOfObject
    kEndOfObject,
    kArray,  ///< beginning of an array; then values follow, and then kEndOfArray
    kEndOfArray,
    kKey,
    kString,
    kNumber,
    kTrue,
    kFalse,
    kNull,
    kEnd  ///< end of the text; every later call returns it again
  };

  static constexpr std::size_t kMaxJsonDepth = 500;

  /// @param max_depth  maximum number of nested arrays and objects; at most kMaxJsonDepth.
  explicit JsonReader(std::string_view text, std::size_t max_depth = kMaxJsonDepth) noexcept
      : text_(text), max_depth_(std::min(max_depth, kMaxJsonDepth)) {}

  /// Moves to the next token.
  /// Errors: JsonFault.
  Token next();
  /// Moves to the end of the value that the last token began. If that value is a scalar, it does
  /// nothing.
  /// REQUIRES: next() returned the beginning of a value.
  /// Errors: JsonFault.
  void skip();

  /// Returns the last token as written. A key or string includes its quotes.
  std::string_view token() const noexcept { return text_.substr(begin_, at_ - begin_); }
  /// Offsets of the last token in the text.
  std::size_t begin() const noexcept { return begin_; }
  std::size_t end() const noexcept { return at_; }

  /// Returns the characters of the last key or string.
  /// Lifetime: until the next call of a method. If the string has no escapes, as long as the JSON
  ///   text.
  std::string_view text();
  /// Returns the last number if it has no point and no exponent, and fits in the type.
  std::optional<std::int64_t> integer() const noexcept;
  std::optional<std::uint64_t> whole() const noexcept;
  /// True if the last number has no point and no exponent.
  bool is_whole() const noexcept { return is_whole_; }
  /// Returns the nearest double, which is finite.
  double real() const noexcept;

 private:
  enum class Expect : std::uint8_t {
    kValue,
    kValueOrEnd,
    kKey,
    kKeyOrEnd,
    kColon,
    kCommaOrEnd,
    kNothing
  };

  [[noreturn]] static void fail(std::size_t offset, std::string what);
  /// Throws the fault at the current position.
  [[noreturn]] void refuse(std::string_view where) const;
  void begin_text();
  void skip_blanks() noexcept;
  bool has(char c) const noexcept { return at_ < text_.size() && text_[at_] == c; }
  bool in_object() const noexcept { return depth_ > 0 && is_object_[depth_ - 1]; }
  Token value();
  Token open(bool is_object);
  Token close();
  Token ended(Token token) noexcept;
  Token word(std::string_view word, Token token);
  void read_string();
  void read_escape();
  unsigned read_hex();
  void read_number();

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;
  std::size_t max_depth_;
  std::size_t depth_ = 0;
  std::bitset<kMaxJsonDepth> is_object_;  // for each depth: true for an object, false for an array
  Expect expect_ = Expect::kValue;
  bool has_escapes_ = false;
  bool is_whole_ = false;
  std::string unescaped_;
};

/// Returns the first fault of `text` by the rules of JsonReader, or nothing if `text` is one valid
/// JSON value.
SHARDWISE_EXPORT std::optional<JsonFault> json_fault(
    std::string_view text, std::size_t max_depth = JsonReader::kMaxJsonDepth);

}  // namespace shardwise::detail

namespace shardwise {
using detail::json_fault;
using detail::JsonFault;
using detail::JsonReader;
}  // namespace shardwise
