#include "storage/retry_notes.h"

#include <atomic>

#include "base/spelling.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

std::atomic<RetryHook> the_hook{nullptr};

/// Returns e.g. "15 min", "1 h 40 min" or "20 s".
std::string shown_time(std::chrono::milliseconds time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  if (seconds < 100) return std::to_string(seconds) + " s";
  const auto minutes = (seconds + 59) / 60;
  if (minutes < 100) return std::to_string(minutes) + " min";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

}  // namespace

std::string retry_note(const std::string& url, const std::string& reason,
                       std::chrono::milliseconds left) {
  return in_quotes(url) + " cannot be fetched now (" + reason + "); retrying for at most " +
         shown_time(left) + " (" + spelled("Fetchers::Options::retry_for") + ")";
}

void set_retry_hook(RetryHook hook) noexcept { the_hook = hook; }
RetryHook retry_hook() noexcept { return the_hook; }

}  // namespace shardwise::detail
