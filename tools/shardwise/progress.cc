#include "progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "console.h"

namespace shardwise::tools {
namespace {

constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::seconds kLineInterval{10};
/// The remaining time is estimated only after this many seconds.
constexpr double kShortestSeconds = 1;
constexpr std::size_t kSmallestBar = 10;
constexpr std::size_t kLargestBar = 40;

double fraction(const ProgressState& state) {
  if (state.total == 0) return 0;
  return std::min(1.0, static_cast<double>(state.done) / static_cast<double>(state.total));
}

std::string rate(const ProgressState& state) {
  const auto per_second =
      static_cast<std::uint64_t>(static_cast<double>(state.done) / std::max(state.seconds, 1e-3));
  if (state.unit == Unit::kBytes) return human_bytes(per_second) + "/s";
  return human_count(per_second) + " samples/s";
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::ceil(seconds));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string time_left(const ProgressState& state) {
  const double part = fraction(state);
  if (part <= 0 || state.seconds < kShortestSeconds) return "-:-- left";
  return clock_text(state.seconds * (1 - part) / part) + " left";
}

}  // namespace

std::string progress_bar(std::string_view verb, const ProgressState& state, std::size_t width) {
  const std::string right =
      fmt::format("{:3.0f} %  {}  {}{}{}", std::floor(100 * fraction(state)), rate(state),
                  time_left(state), state.detail.empty() ? "" : "  ", state.detail);
  const std::size_t taken = verb.size() + right.size() + 5;
  std::string line = fmt::format("{} ", verb);
  if (taken + kSmallestBar < width) {
    const std::size_t cells = std::min(kLargestBar, width - taken - 1);
    const auto full = static_cast<std::size_t>(fraction(state) * static_cast<double>(cells));
    std::string bar(full, '=');
    if (full < cells) bar += '>';
    bar.resize(cells, ' ');
    line += "[" + bar + "] ";
  }
  line += right;
  if (line.size() >= width) line.resize(width == 0 ? 0 : width - 1);
  return line;
}

std::string progress_line(std::string_view verb, const ProgressState& state) {
  return fmt::format("{}: {:.0f} %, {}, {}{}{}", verb, std::floor(100 * fraction(state)),
                     rate(state), time_left(state), state.detail.empty() ? "" : ", ", state.detail);
}

Progress::Progress(std::string verb, Unit unit, bool quiet)
    : verb_(std::move(verb)),
      unit_(unit),
      terminal_(is_terminal(STDERR_FILENO) && !is_dumb_terminal()),
      quiet_(quiet) {
  if (!terminal_) next_ += kLineInterval;
}

Progress::~Progress() { clear(); }

void Progress::update(std::uint64_t done, std::uint64_t total,
                      const std::function<std::string()>& detail) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  if (!first_update_) first_update_ = now;
  if (now < next_) return;
  const ProgressState state{.done = done,
                            .total = total,
                            .unit = unit_,
                            .seconds = std::chrono::duration<double>(now - *first_update_).count(),
                            .detail = detail()};
  if (terminal_) {
    next_ = now + kBarInterval;
    drawn_ = true;
    draw_bar(progress_bar(verb_, state, terminal_width(STDERR_FILENO)));
  } else {
    next_ = now + kLineInterval;
    print_message(progress_line(verb_, state));
  }
}

ProgressCallback Progress::of_bytes() {
  return
      [this](const auto& at) { update(at.bytes_done, at.num_bytes, [] { return std::string(); }); };
}

void Progress::clear() {
  if (!drawn_) return;
  clear_bar();
  drawn_ = false;
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace shardwise::tools
