#include "index/query_functions.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

namespace shardwise::sqlite {
namespace {

std::optional<std::string_view> text_of(sqlite3_value* value) {
  const unsigned char* const text = sqlite3_value_text(value);
  if (text == nullptr) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(text),
                          static_cast<std::size_t>(sqlite3_value_bytes(value)));
}

std::string_view blob_of(sqlite3_value* value) {
  const auto* const bytes = static_cast<const char*>(sqlite3_value_blob(value));
  return {bytes, bytes == nullptr ? 0 : static_cast<std::size_t>(sqlite3_value_bytes(value))};
}

/// True for a byte of UTF-8 that is not the first of its character.
bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// The place of `needle`, from `from` on. Cost: O(text + needle), by memmem()'s two-way search.
std::size_t find(std::string_view text, std::string_view needle, std::size_t from = 0) {
  const void* const found =
      ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

/// The place of `needle` in `text`, from 1 on; 0: it is not there. In characters, if both are text.
sqlite3_int64 place_of(std::string_view text, std::string_view needle, bool is_text) {
  if (needle.empty()) return 1;
  std::size_t at = find(text, needle);
  // What begins within a character is found at the start alone.
  if (is_text && continues(needle[0]) && at != 0) at = std::string_view::npos;
  if (at == std::string_view::npos) return 0;
  if (!is_text || at == 0) return static_cast<sqlite3_int64>(at) + 1;
  return 1 + std::count_if(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                           [](char byte) { return !continues(byte); });
}

void instr(sqlite3_context* context, sqlite3_value** arguments) {
  const int text_type = sqlite3_value_type(arguments[0]);
  const int needle_type = sqlite3_value_type(arguments[1]);
  if (text_type == SQLITE_NULL || needle_type == SQLITE_NULL) return;
  const bool is_text = text_type != SQLITE_BLOB || needle_type != SQLITE_BLOB;
  const auto bytes_of = [&](sqlite3_value* value) {
    return is_text ? text_of(value).value_or(std::string_view()) : blob_of(value);
  };
  const std::string_view text = bytes_of(arguments[0]), needle = bytes_of(arguments[1]);
  sqlite3_result_int64(context, place_of(text, needle, is_text));
}

void replace(sqlite3_context* context, sqlite3_value** arguments) {
  const auto text = text_of(arguments[0]), pattern = text_of(arguments[1]);
  if (!text || !pattern) return;
  if (pattern->empty() || pattern->front() == '\0') {
    return sqlite3_result_value(context, arguments[0]);
  }
  const auto with = text_of(arguments[2]);
  if (!with) return;
  const auto most = static_cast<std::size_t>(
      sqlite3_limit(sqlite3_context_db_handle(context), SQLITE_LIMIT_LENGTH, -1));
  std::string result;
  for (std::size_t from = 0;;) {
    const std::size_t at = std::min(find(*text, *pattern, from), text->size());
    result += text->substr(from, at - from);
    if (at == text->size()) break;
    result += *with;
    if (result.size() > most) break;
    from = at + pattern->size();
  }
  if (result.size() > most) return sqlite3_result_error_toobig(context);
  sqlite3_result_text64(context, result.data(), result.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

/// Bytes of the character that `text` begins with. REQUIRES: it is not empty.
std::size_t first_character(std::string_view text) {
  std::size_t size = 1;
  if (static_cast<unsigned char>(text[0]) < 0xC0) return size;
  while (size < text.size() && continues(text[size])) ++size;
  return size;
}

/// Bytes of the character that `text` ends with. REQUIRES: it is not empty.
std::size_t last_character(std::string_view text) {
  std::size_t size = 1;
  while (size < text.size() && continues(text[text.size() - size])) ++size;
  return first_character(text.substr(text.size() - size)) == size ? size : 1;
}

enum Side : std::uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };

void trim(sqlite3_context* context, int num_arguments, sqlite3_value** arguments, Side side) {
  auto text = text_of(arguments[0]);
  const auto given =
      num_arguments == 1 ? std::optional<std::string_view>(" ") : text_of(arguments[1]);
  if (!text || !given) return;
  std::unordered_set<std::string_view> characters;
  for (std::string_view rest = given->substr(0, given->find('\0')); !rest.empty();) {
    const std::size_t size = first_character(rest);
    characters.insert(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  while ((side & kLeft) != 0 && !text->empty()) {
    const std::size_t size = first_character(*text);
    if (!characters.contains(text->substr(0, size))) break;
    text->remove_prefix(size);
  }
  while ((side & kRight) != 0 && !text->empty()) {
    const std::size_t size = last_character(*text);
    if (!characters.contains(text->substr(text->size() - size))) break;
    text->remove_suffix(size);
  }
  sqlite3_result_text64(context, text->data(), text->size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

/// Runs what may find no memory.
template <class Body>
void guarded(sqlite3_context* context, const Body& body) noexcept {
  try {
    body();
  } catch (const std::bad_alloc&) {
    sqlite3_result_error_nomem(context);
  }
}

using Function = void (*)(sqlite3_context*, int, sqlite3_value**);

template <Side kSide>
void trim_at(sqlite3_context* context, int num_arguments, sqlite3_value** arguments) {
  guarded(context, [&] { trim(context, num_arguments, arguments, kSide); });
}

}  // namespace

void add_query_functions(sqlite3* db) {
  const auto add = [&](const char* name, int num_arguments, Function function) {
    constexpr int kFlags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    if (sqlite3_create_function_v2(db, name, num_arguments, kFlags, nullptr, function, nullptr,
                                   nullptr, nullptr) != SQLITE_OK) {
      throw std::bad_alloc();
    }
  };
  add("instr", 2, [](sqlite3_context* context, int, sqlite3_value** arguments) {
    guarded(context, [&] { instr(context, arguments); });
  });
  add("replace", 3, [](sqlite3_context* context, int, sqlite3_value** arguments) {
    guarded(context, [&] { replace(context, arguments); });
  });
  for (const int num_arguments : {1, 2}) {
    add("trim", num_arguments, trim_at<kBoth>);
    add("ltrim", num_arguments, trim_at<kLeft>);
    add("rtrim", num_arguments, trim_at<kRight>);
  }
}

}  // namespace shardwise::sqlite
