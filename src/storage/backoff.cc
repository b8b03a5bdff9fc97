#include "storage/backoff.h"

#include <algorithm>
#include <random>
#include <thread>

#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise {

using std::chrono::milliseconds;

bool is_cancelled(const Fetcher::Request& request) noexcept {
  return request.cancel.is_cancelled();
}

void check_cancelled(const Fetcher::Request& request) {
  if (!is_cancelled(request)) return;
  throw Cancelled("the fetch was cancelled", in_quotes(redacted_url(request.url)), "");
}

milliseconds Backoff::delay(std::optional<std::chrono::seconds> retry_after) const {
  const milliseconds most = options_.retry_max_delay;
  milliseconds ceiling = std::min(options_.retry_base_delay, most);
  for (int i = 1; i < failures_ && ceiling < most; ++i) ceiling = std::min(ceiling * 2, most);
  std::random_device random;
  milliseconds chosen(std::uniform_int_distribution<milliseconds::rep>(0, ceiling.count())(random));
  // Compared in seconds: a server may ask for more than a count of milliseconds can hold.
  if (retry_after) {
    const bool too_long = *retry_after > std::chrono::ceil<std::chrono::seconds>(most);
    chosen = std::max(chosen, too_long ? most : std::min<milliseconds>(*retry_after, most));
  }
  return chosen;
}

bool Backoff::wait_for_next(std::optional<std::chrono::seconds> retry_after) {
  ++failures_;
  if (failures_ > options_.max_retries || attempts_ >= options_.max_attempts) return false;
  const auto end = std::chrono::steady_clock::now() + delay(retry_after);
  for (;;) {
    check_cancelled(request_);
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) return true;
    std::this_thread::sleep_for(
        std::min<std::chrono::steady_clock::duration>(left, milliseconds(50)));
  }
}

}  // namespace shardwise
