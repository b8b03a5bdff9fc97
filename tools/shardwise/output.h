#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/counted.h"
#include "console.h"

namespace shardwise::tools {

/// Thrown if the reader of standard output has closed the pipe, as in `shardwise ls ... | head`.
/// The program then ends without a message.
struct ReaderGone {};

/// If descriptors 0 to 2 are closed at the start, opens them, so that no other file gets the
/// descriptor of standard output. Writing to that output then fails.
void hold_standard_descriptors();

/// Buffered standard output. The destructor does not write: call flush(), which reports errors of
/// earlier writes.
/// Threads: one.
///
/// Errors: ReaderGone; an Error if the disk is full or the descriptor is closed; Cancelled on
/// Ctrl-C while a slow reader blocks a write.
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
  /// Discards buffered text.
  void drop() noexcept { buffer_.clear(); }

  int fd() const { return fd_; }
  bool is_terminal() const;
  /// `text` in bold where the output has colours: the head of a list.
  std::string head(std::string_view text) const { return styled(text, Style::kHead, fd_); }
  /// Number of columns to use on a terminal.
  std::size_t width() const;

 private:
  static constexpr std::size_t kFlushBytes = 256 * 1024;

  void write_through(std::string_view bytes);

  int fd_;
  std::string buffer_;
};

/// Appends `text`, which must be UTF-8, as a JSON string.
void append_json_string(std::string& out, std::string_view text);

/// Appends `"<name>":"<bytes>"`. If the bytes are not UTF-8, as names in archives may be, appends
/// `"<name>_hex":"<hexadecimal>"`: JSON can contain only text.
void append_json_name(std::string& out, std::string_view name, std::string_view bytes);

/// Returns one line of JSON. In paths, bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace shardwise::tools
