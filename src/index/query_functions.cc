#include "index/query_functions.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/ascii.h"

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

/// True for a continuation byte of UTF-8.
bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Returns the first position of `needle` at or after `from`. Cost: O(text + needle), by memmem()'s
/// two-way search.
std::size_t find(std::string_view text, std::string_view needle, std::size_t from = 0) {
  const void* const found =
      ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

/// Returns the position of `needle` in `text`, from 1, or 0 if it is not found. The position counts
/// characters if `is_text`, otherwise bytes.
sqlite3_int64 place_of(std::string_view text, std::string_view needle, bool is_text) {
  if (needle.empty()) return 1;
  std::size_t at = find(text, needle);
  // A needle that begins with a continuation byte can match only at the start of the text.
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
  const auto max_bytes = static_cast<std::size_t>(
      sqlite3_limit(sqlite3_context_db_handle(context), SQLITE_LIMIT_LENGTH, -1));
  std::string result;
  for (std::size_t from = 0;;) {
    const std::size_t at = std::min(find(*text, *pattern, from), text->size());
    result += text->substr(from, at - from);
    if (at == text->size()) break;
    result += *with;
    if (result.size() > max_bytes) break;
    from = at + pattern->size();
  }
  if (result.size() > max_bytes) return sqlite3_result_error_toobig(context);
  sqlite3_result_text64(context, result.data(), result.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

/// Length of the first character in bytes. REQUIRES: `text` is not empty.
std::size_t first_character(std::string_view text) {
  std::size_t size = 1;
  if (static_cast<unsigned char>(text[0]) < 0xC0) return size;
  while (size < text.size() && continues(text[size])) ++size;
  return size;
}

/// Length of the last character in bytes. REQUIRES: `text` is not empty.
std::size_t last_character(std::string_view text) {
  std::size_t size = 1;
  while (size < text.size() && continues(text[text.size() - size])) ++size;
  return first_character(text.substr(text.size() - size)) == size ? size : 1;
}

/// Implements LIKE and GLOB without ESCAPE, and polls for cancellation. SQLite itself polls only
/// between rows, but one row may have several patterns, which may each take half a second.
void match(sqlite3_context* context, sqlite3_value** arguments,
           int (*compare)(const char* pattern, const char* text)) {
  static const bool matches_blobs = sqlite3_compileoption_used("LIKE_DOESNT_MATCH_BLOBS") == 0;
  if (static_cast<const CancelToken*>(sqlite3_user_data(context))->is_cancelled()) {
    return sqlite3_result_error_code(context, SQLITE_INTERRUPT);
  }
  const auto is_blob = [](sqlite3_value* v) { return sqlite3_value_type(v) == SQLITE_BLOB; };
  if (!matches_blobs && (is_blob(arguments[0]) || is_blob(arguments[1]))) {
    return sqlite3_result_int(context, 0);
  }
  const int max_bytes =
      sqlite3_limit(sqlite3_context_db_handle(context), SQLITE_LIMIT_LIKE_PATTERN_LENGTH, -1);
  if (sqlite3_value_bytes(arguments[0]) > max_bytes) {
    return sqlite3_result_error(context, "LIKE or GLOB pattern too complex", -1);
  }
  const auto pattern = text_of(arguments[0]), text = text_of(arguments[1]);
  if (!pattern || !text) return;
  // SQLite's texts are NUL-terminated.
  sqlite3_result_int(context, compare(pattern->data(), text->data()) == 0 ? 1 : 0);
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

/// Returns the sum of the widths and precisions that the arguments of printf() request, or a
/// partial sum above `max_bytes`. SQLite's printf() takes time proportional to this sum, even if
/// the result is too long.
sqlite3_int64 asked_width(int num_arguments, sqlite3_value** arguments, sqlite3_int64 max_bytes) {
  std::string_view format = text_of(arguments[0]).value_or(std::string_view());
  format = format.substr(0, format.find('\0'));
  sqlite3_int64 sum = 0;
  int next = 1;
  for (std::size_t at = format.find('%'); at < format.size(); at = format.find('%', at)) {
    sqlite3_int64 number = 0;
    const auto end_number = [&] { sum += std::exchange(number, 0); };
    for (++at; at < format.size(); ++at) {
      const char c = format[at];
      if (is_digit(c)) {
        number = std::min(number * 10 + (c - '0'), max_bytes + 1);
        continue;
      }
      end_number();
      if (c == '*' && next < num_arguments) {
        sum += std::abs(sqlite3_int64{sqlite3_value_int(arguments[next++])});
      } else if (std::string_view("-+ #!,.l*").find(c) == std::string_view::npos) {
        break;
      }
    }
    if (sum > max_bytes) break;
    if (at < format.size() && format[at] != '%' && format[at] != 'n') ++next;
    at = std::min(at + 1, format.size());
  }
  return sum;
}

/// Calls SQLite's own printf(), on a separate connection, because on the query's connection our
/// function has replaced it.
class Printf {
 public:
  Printf() = default;
  ~Printf() {
    sqlite3_finalize(statement_);
    sqlite3_close(db_);
  }
  Printf(const Printf&) = delete;
  Printf& operator=(const Printf&) = delete;

  void run(sqlite3_context* context, int num_arguments, sqlite3_value** arguments) {
    if (num_arguments == 0) return;
    const int max_bytes =
        sqlite3_limit(sqlite3_context_db_handle(context), SQLITE_LIMIT_LENGTH, -1);
    if (asked_width(num_arguments, arguments, max_bytes) > max_bytes) {
      return sqlite3_result_error_toobig(context);
    }
    int code = prepare(num_arguments, max_bytes);
    for (int i = 0; i < num_arguments && code == SQLITE_OK; ++i) {
      code = sqlite3_bind_value(statement_, i + 1, arguments[i]);
    }
    if (code == SQLITE_OK) code = sqlite3_step(statement_);
    if (code != SQLITE_ROW) {
      sqlite3_result_error_code(context, code);
    } else if (const unsigned char* const text = sqlite3_column_text(statement_, 0)) {
      sqlite3_result_text64(context, reinterpret_cast<const char*>(text),
                            static_cast<sqlite3_uint64>(sqlite3_column_bytes(statement_, 0)),
                            SQLITE_TRANSIENT, SQLITE_UTF8);
    }
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }

 private:
  int prepare(int num_arguments, int max_bytes) {
    if (db_ == nullptr) {
      const int code = sqlite3_open(":memory:", &db_);
      if (code != SQLITE_OK) return code;
    }
    sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, max_bytes);
    if (num_arguments == num_arguments_) return SQLITE_OK;
    std::string sql = "SELECT printf(?";
    for (int i = 1; i < num_arguments; ++i) sql += ",?";
    sqlite3_finalize(std::exchange(statement_, nullptr));
    num_arguments_ = 0;
    const int code = sqlite3_prepare_v2(db_, (sql + ")").c_str(), -1, &statement_, nullptr);
    if (code == SQLITE_OK) num_arguments_ = num_arguments;
    return code;
  }

  sqlite3* db_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;  // a statement with num_arguments_ parameters
  int num_arguments_ = 0;
};

/// Runs `body`, and reports a failed allocation to SQLite.
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

constexpr int kFlags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;

void add_printf(sqlite3* db, const char* name) {
  const Function run = [](sqlite3_context* context, int num_arguments, sqlite3_value** arguments) {
    guarded(context, [&] {
      static_cast<Printf*>(sqlite3_user_data(context))->run(context, num_arguments, arguments);
    });
  };
  // SQLite deletes the object, even if the call fails.
  if (sqlite3_create_function_v2(
          db, name, -1, kFlags, std::make_unique<Printf>().release(), run, nullptr, nullptr,
          [](void* own) { delete static_cast<Printf*>(own); }) != SQLITE_OK) {
    throw std::bad_alloc();
  }
}

}  // namespace

void add_query_functions(sqlite3* db, const CancelToken& cancel) {
  const auto add = [&](const char* name, int num_arguments, Function function) {
    if (sqlite3_create_function_v2(db, name, num_arguments, kFlags,
                                   const_cast<CancelToken*>(&cancel), function, nullptr, nullptr,
                                   nullptr) != SQLITE_OK) {
      throw std::bad_alloc();
    }
  };
  add("instr", 2, [](sqlite3_context* context, int, sqlite3_value** arguments) {
    guarded(context, [&] { instr(context, arguments); });
  });
  add("replace", 3, [](sqlite3_context* context, int, sqlite3_value** arguments) {
    guarded(context, [&] { replace(context, arguments); });
  });
  add("like", 2, [](sqlite3_context* context, int, sqlite3_value** arguments) {
    match(context, arguments,
          [](const char* pattern, const char* text) { return sqlite3_strlike(pattern, text, 0); });
  });
  add("glob", 2, [](sqlite3_context* context, int, sqlite3_value** arguments) {
    match(context, arguments, sqlite3_strglob);
  });
  for (const int num_arguments : {1, 2}) {
    add("trim", num_arguments, trim_at<kBoth>);
    add("ltrim", num_arguments, trim_at<kLeft>);
    add("rtrim", num_arguments, trim_at<kRight>);
  }
  for (const char* name : {"printf", "format"}) add_printf(db, name);
}

}  // namespace shardwise::sqlite
