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

/// What is wrong with a text that is not JSON.
struct SHARDWISE_EXPORT JsonFault {
  std::string what;        ///< "'NaN' where a value belongs"; bytes of the text are not escaped
  std::size_t offset = 0;  ///< of the byte that is wrong

  /// "'NaN' where a value belongs, at offset 17"; not escaped either.
  [[nodiscard]] std::string text() const;
};

/// Reads a JSON text from front to back, a token at a time. It is the only reader of the library,
/// so that columns, loader, descriptors and Python agree on what JSON is (docs/caveats.md has the
/// table): RFC 8259 in UTF-8, perhaps with a byte order mark; no NaN, no number beyond the range of
/// a double, no lone surrogate, no NUL, and at most kMaxJsonDepth arrays and objects in each other.
/// A key may come twice in an object: the last one counts, and it is for the caller to see to that.
///
/// Cheap to copy: a copy reads on by itself. The text must live as long. One thread.
/// Cost: some 2 ns a byte; memory is taken only by text() for strings with escapes.
class SHARDWISE_EXPORT JsonReader {
 public:
  enum class Token : std::uint8_t {
    kObject,  ///< its beginning; keys and values follow, then kEndOfObject
    kEndOfObject,
    kArray,  ///< its beginning; values follow, then kEndOfArray
    kEndOfArray,
    kKey,
    kString,
    kNumber,
    kTrue,
    kFalse,
    kNull,
    kEnd  ///< of the text; so says every call from then on
  };

  static constexpr std::size_t kMaxJsonDepth = 500;

  /// @param max_depth  of arrays and objects in each other; at most kMaxJsonDepth.
  explicit JsonReader(std::string_view text, std::size_t max_depth = kMaxJsonDepth) noexcept
      : text_(text), max_depth_(std::min(max_depth, kMaxJsonDepth)) {}

  /// Moves to the next token. Throws JsonFault.
  Token next();
  /// Moves to the end of the value that the last token began; to itself if that is all of it.
  /// REQUIRES: next() returned the beginning of a value. Throws JsonFault.
  void skip();

  /// The last token as it is written; of a key or string with its quotes.
  std::string_view token() const noexcept { return text_.substr(begin_, at_ - begin_); }
  /// Where it begins and ends in the text.
  std::size_t begin() const noexcept { return begin_; }
  std::size_t end() const noexcept { return at_; }

  /// The characters of the key or string that was read last; valid until the next call, and, if
  /// it has no escapes, as long as the text.
  std::string_view text();
  /// The number that was read last, if it is whole (no point, no exponent) and fits.
  std::optional<std::int64_t> integer() const noexcept;
  std::optional<std::uint64_t> whole() const noexcept;
  /// True if it has no point and no exponent.
  bool is_whole() const noexcept { return is_whole_; }
  /// The nearest double. Finite.
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
  /// Refuses what lies at the present place.
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
  std::bitset<kMaxJsonDepth> is_object_;  // of what is open; else it is an array
  Expect expect_ = Expect::kValue;
  bool has_escapes_ = false;
  bool is_whole_ = false;
  std::string unescaped_;
};

/// What is wrong with `text` as JSON, as JsonReader says it; nothing if it is one value.
SHARDWISE_EXPORT std::optional<JsonFault> json_fault(
    std::string_view text, std::size_t max_depth = JsonReader::kMaxJsonDepth);

}  // namespace shardwise::detail

namespace shardwise {
using detail::json_fault;
using detail::JsonFault;
using detail::JsonReader;
}  // namespace shardwise
