#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "console.h"

namespace shardwise::tools {

/// Thrown when the reader of standard output has gone away, as in `shardwise ls ... | head`: the
/// program then ends quietly, since the reader has all that it wanted.
struct ReaderGone {};

/// Makes sure that descriptors 0 to 2 are taken, so that no file of ours becomes "standard output"
/// when the program is started with that closed. Writing to it then fails.
void hold_standard_descriptors();

/// Standard output, buffered. One thread. Nothing is written by the destructor: flush() reports the
/// errors of what was written before it.
///
/// Errors: ReaderGone; an Error when the disk is full or the descriptor is closed; Cancelled when
/// Ctrl-C comes while a slow reader holds a write up.
class Output {
 public:
  explicit Output(int fd = STDOUT_FILENO) : fd_(fd) {}

  void write(std::string_view bytes);
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
    if (buffer_.size() >= kFlushBytes) flush();
  }
  void flush();
  /// Forgets what was not written yet.
  void drop() noexcept { buffer_.clear(); }

  bool is_terminal() const;
  /// Columns to fill where it is a terminal.
  std::size_t width() const;

 private:
  static constexpr std::size_t kFlushBytes = 256 * 1024;

  void write_through(std::string_view bytes);

  int fd_;
  std::string buffer_;
};

/// Appends `text`, which must be UTF-8, as a JSON string.
void append_json_string(std::string& out, std::string_view text);

/// Appends `"<name>":"<bytes>"`, or `"<name>_hex":"<hexadecimal>"` for what is not UTF-8: names in
/// archives are bytes, and JSON holds only text.
void append_json_name(std::string& out, std::string_view name, std::string_view bytes);

/// One line of JSON. Paths that are not UTF-8 get U+FFFD for what is not.
std::string json_text(const nlohmann::ordered_json& json);

/// "1 shard", "2,000 shards".
std::string counted(std::uint64_t count, std::string_view singular);
/// "1 shard is", "2,000 shards are": with the verb of one or of many.
std::string counted(std::uint64_t count, std::string_view singular, std::string_view verb_of_one,
                    std::string_view verb_of_many);

}  // namespace shardwise::tools
