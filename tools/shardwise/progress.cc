#include "progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "base/text.h"
#include "console.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {
namespace {

constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::seconds kLineInterval{10};
/// The bar is drawn again after this time, even if there was no update.
constexpr std::chrono::seconds kIdleInterval{1};
/// The rate and the remaining time are shown only after this many seconds.
constexpr double kShortestSeconds = 1;
constexpr std::size_t kSmallestBar = 10;
constexpr std::size_t kLargestBar = 40;

double fraction(const ProgressState& state) {
  if (state.total == 0) return 0;
  return std::min(1.0, static_cast<double>(state.done) / static_cast<double>(state.total));
}

std::string rate(const ProgressState& state) {
  const bool is_bytes = state.unit == Unit::kBytes;
  if (state.seconds < kShortestSeconds) return is_bytes ? "- MiB/s" : "- samples/s";
  const auto per_second =
      static_cast<std::uint64_t>(static_cast<double>(state.done) / state.seconds);
  return is_bytes ? human_bytes(per_second) + "/s" : human_count(per_second) + " samples/s";
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string time_so_far(double seconds) { return clock_text(std::floor(seconds)) + " so far"; }

std::string time_left(const ProgressState& state) {
  const double part = fraction(state);
  if (state.seconds < kShortestSeconds) return "-:-- left";
  if (part <= 0 || part >= 1) return time_so_far(state.seconds);
  return clock_text(std::ceil(state.seconds * (1 - part) / part)) + " left";
}

/// Cuts `line` so that the cursor behind it is on the same line of a terminal of `width` columns.
std::string cut(std::string line, std::size_t width) {
  if (line.size() >= width) line.resize(width == 0 ? 0 : width - 1);
  return line;
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
  return cut(line + right, width);
}

std::string progress_line(std::string_view verb, const ProgressState& state) {
  return fmt::format("{}: {:.0f} %, {}, {}{}{}", verb, std::floor(100 * fraction(state)),
                     rate(state), time_left(state), state.detail.empty() ? "" : ", ", state.detail);
}

Progress::Progress(std::string verb, Unit unit, bool quiet)
    : verb_(std::move(verb)),
      terminal_(is_terminal(STDERR_FILENO) && !is_dumb_terminal()),
      quiet_(quiet),
      state_{.unit = unit, .detail = ""},
      drawn_at_(terminal_ ? Clock::time_point() : start_) {
  if (!terminal_ || quiet_) return;
  try {
    thread_.start([this] { draw_while_idle(); }, "progress");
  } catch (const Error&) {
    // Without the thread, only updates draw the bar.
  }
}

Progress::~Progress() {
  {
    const Lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
  clear();
}

void Progress::update(std::uint64_t done, std::uint64_t total,
                      const std::function<std::string()>& detail) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  const Lock lock(mutex_);
  if (!first_update_) first_update_ = now;
  const bool is_due = now >= drawn_at_ + (terminal_ ? kBarInterval : kLineInterval);
  if (!is_due && done < total) return;
  state_.done = done;
  state_.total = total;
  state_.detail = detail();
  cleared_ = false;
  if (is_due) draw(now);
}

void Progress::draw_while_idle() try {
  const Lock lock(mutex_);
  Clock::time_point due = start_ + kIdleInterval;
  while (!ended_) {
    changed_.wait_until(mutex_, due);
    const Clock::time_point now = Clock::now();
    due = std::max(due, drawn_at_ + kIdleInterval);
    if (now < due) continue;
    if (!ended_ && !cleared_) draw(now);
    due = now + kIdleInterval;
  }
} catch (const std::bad_alloc&) {
  // The thread that does the work reports it.
}

void Progress::draw(Clock::time_point now) {
  const auto since = [now](Clock::time_point begin) {
    return std::chrono::duration<double>(now - begin).count();
  };
  drawn_at_ = now;
  if (first_update_) state_.seconds = since(*first_update_);
  if (!terminal_) return print_message(progress_line(verb_, state_));
  if (!can_draw_now()) return;
  const std::size_t width = terminal_width(STDERR_FILENO);
  draw_bar(first_update_ ? progress_bar(verb_, state_, width)
                         : cut(verb_ + ": " + time_so_far(since(start_)), width));
}

ProgressCallback Progress::of_bytes() {
  return
      [this](const auto& at) { update(at.bytes_done, at.num_bytes, [] { return std::string(); }); };
}

void Progress::clear() {
  const Lock lock(mutex_);
  cleared_ = true;
  if (terminal_) drawn_at_ = {};
  if (terminal_ && !quiet_) clear_bar();
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace shardwise::tools
