#include "console.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/fork.h"
#include "base/spelling.h"
#include "base/text.h"

namespace shardwise::tools {
namespace {

constexpr std::size_t kUsualWidth = 80;
constexpr std::size_t kLargestWidth = 10'000;

const char* name_of_program = "shardwise";
LongMutex console_mutex;  // a LongMutex, as writing to a stopped terminal may block for long
Colours colours = Colours::kAuto;
bool bar_is_drawn SHARDWISE_GUARDED_BY(console_mutex) = false;
/// Whether the results on the terminal end within a line.
bool is_in_line SHARDWISE_GUARDED_BY(console_mutex) = false;

void wipe() SHARDWISE_REQUIRES(console_mutex) {
  if (bar_is_drawn) std::fputs("\r\033[K", stderr);
  bar_is_drawn = false;
}

/// Returns shardwise-train's name of an option of shardwise; empty if it has no such option.
std::string_view name_in_trainer(std::string_view option) {
  if (option == "--batch") return "--batch-size";
  if (option == "--global-batch") return "--global-batch-size";
  return option == "--prefetch" ? "" : option;
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

/// The parameters of the escape sequence that begins a style.
const char* code_of(Style style) {
  switch (style) {
    case Style::kError:
      return "1;31";
    case Style::kWarning:
      return "1;33";
    case Style::kNote:
      return "1;36";
    case Style::kHead:
      break;
  }
  return "1";
}

std::optional<std::size_t> asked_width() {
  const char* const text = std::getenv("COLUMNS");
  if (text == nullptr) return std::nullopt;
  const std::optional<std::int64_t> columns = parse_int64(text);
  if (!columns || *columns < 1 || *columns > static_cast<std::int64_t>(kLargestWidth)) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(*columns);
}

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool is_dumb_terminal() {
  const char* const kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) == "dumb";
}

std::size_t terminal_width(int fd) {
  if (const auto width = asked_width()) return *width;
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth;
  return size.ws_col;
}

void set_colours(Colours chosen) { colours = chosen; }

bool has_colours(int fd) {
  if (colours != Colours::kAuto) return colours == Colours::kAlways;
  if (is_set("NO_COLOR")) return false;
  if (is_set("CLICOLOR_FORCE")) return std::string_view(std::getenv("CLICOLOR_FORCE")) != "0";
  return is_terminal(fd) && !is_dumb_terminal();
}

std::string styled(std::string_view text, Style style, int fd) {
  if (!has_colours(fd)) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", code_of(style), text);
}

void set_program_name(const char* name) {
  name_of_program = name;
  const bool is_trainer = std::string_view(name) == "shardwise-train";
  detail::spell_for(detail::Face::kCommand, is_trainer ? name_in_trainer : nullptr);
}
const char* program_name() { return name_of_program; }

void print_message(std::string_view line) {
  const Lock lock(console_mutex);
  wipe();
  // Not fmt::print(), which throws: a message that cannot be written is not an error.
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stderr);
}

void draw_bar(std::string_view bar) {
  const Lock lock(console_mutex);
  if (is_in_line) return;
  std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(bar.size()), bar.data());
  std::fflush(stderr);
  bar_is_drawn = true;
}

bool can_draw_now() {
  const pid_t group = ::tcgetpgrp(STDERR_FILENO);  // -1 if it is not the controlling terminal
  pollfd terminal{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  return (group < 0 || group == ::getpgrp()) && ::poll(&terminal, 1, 0) == 1;
}

ssize_t write_results(int fd, std::string_view bytes) {
  const Lock lock(console_mutex);
  wipe();
  std::fflush(stderr);
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  if (written > 0) is_in_line = bytes[static_cast<std::size_t>(written) - 1] != '\n';
  return written;
}

void clear_bar() {
  const Lock lock(console_mutex);
  wipe();
  std::fflush(stderr);
}

void say(std::string_view kind, std::string_view text) {
  const Style style = kind == "error"     ? Style::kError
                      : kind == "warning" ? Style::kWarning
                                          : Style::kNote;
  const std::string label = styled(fmt::format("{}:", kind), style, STDERR_FILENO);
  print_message(fmt::format("{}: {} {}", program_name(), label, text));
}

}  // namespace shardwise::tools
