#include "storage/backoff.h"

#include <algorithm>
#include <random>
#include <thread>

#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise {

using std::chrono::milliseconds;

namespace {

// The largest Retry-After that is obeyed; equals the maximum of Fetchers::Options::retry_for.
constexpr std::chrono::seconds kMaxRetryAfter = std::chrono::hours(24 * 30);
// Failure::tell is called after this many failures, or after this long without progress.
constexpr int kManyFailures = 3;
constexpr std::chrono::seconds kLongSilence{2};

}  // namespace

bool is_cancelled(const Fetcher::Request& request) noexcept {
  return request.cancel.is_cancelled();
}

void check_cancelled(const Fetcher::Request& request) {
  if (!is_cancelled(request)) return;
  throw Cancelled("the fetch was cancelled", in_quotes(redacted_url(request.url)), "");
}

void Backoff::reached(std::uint64_t bytes) noexcept {
  if (bytes <= max_bytes_) return;
  max_bytes_ = bytes;
  heard_ = Clock::now();
  if (failing_since_) {
    const std::chrono::duration<double> time = heard_ - *failing_since_;
    const double least = time.count() * static_cast<double>(options_.low_speed_bytes_per_second);
    if (static_cast<double>(bytes - bytes_when_it_failed_) < least) return;
  }
  failing_since_.reset();
  failures_ = 0;
}

milliseconds Backoff::budget() const noexcept {
  return std::min(options_.retry_for, request_.retry_for.value_or(options_.retry_for));
}

milliseconds Backoff::time_left() const noexcept {
  if (!failing_since_) return budget();
  const auto left = budget() - (Clock::now() - *failing_since_);
  return std::max(std::chrono::duration_cast<milliseconds>(left), milliseconds(0));
}

Backoff::Clock::duration Backoff::delay(std::optional<std::chrono::seconds> retry_after) const {
  const milliseconds max = options_.retry_max_delay;
  milliseconds ceiling = std::min(options_.retry_base_delay, max);
  for (int i = 1; i < failures_ && ceiling < max; ++i) ceiling = std::min(ceiling * 2, max);
  std::random_device random;
  milliseconds chosen(std::uniform_int_distribution<milliseconds::rep>(0, ceiling.count())(random));
  // Compare in seconds, because a server's Retry-After may overflow milliseconds.
  if (retry_after) chosen = std::max<milliseconds>(chosen, std::min(*retry_after, kMaxRetryAfter));
  return chosen;
}

bool Backoff::wait_for_next(const Failure& failure) {
  const auto now = Clock::now();
  if (!failing_since_) {
    failing_since_ = now;
    bytes_when_it_failed_ = max_bytes_;
  }
  ++failures_;
  const milliseconds timeout = std::min(budget(), failure.timeout.value_or(options_.retry_for));
  const Clock::duration left = timeout - (now - *failing_since_);
  if (left <= left.zero() || failures_ > options_.max_retries) return false;
  const Clock::duration wait = std::min(delay(failure.retry_after), left);
  const bool is_long = now - heard_ >= kLongSilence || wait >= kLongSilence;
  if (failure.tell && (failures_ >= kManyFailures || is_long)) {
    failure.tell(std::chrono::duration_cast<milliseconds>(left));
  }
  const auto end = now + wait;
  for (;;) {
    check_cancelled(request_);
    const auto rest = end - Clock::now();
    if (rest <= rest.zero()) return true;
    std::this_thread::sleep_for(std::min<Clock::duration>(rest, milliseconds(50)));
  }
}

bool Backoff::wait_after_wrong(std::string_view what) {
  if (what == wrong_) return false;
  wrong_ = what;
  return wait_for_next({});
}

}  // namespace shardwise
