#include "storage/known_redirects.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/url.h"

namespace shardwise {
namespace {

constexpr std::size_t kMaxKnown = 4096;
constexpr std::chrono::minutes kKeptFor{10};
/// A redirect is dropped this long before its URL expires.
constexpr std::chrono::seconds kMargin{30};

/// Returns the number that a URL's query has under `name`.
std::optional<std::int64_t> parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view part = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (!part.starts_with(name) || part.substr(name.size(), 1) != "=") continue;
    const std::string_view value = part.substr(name.size() + 1);
    std::int64_t number = 0;
    const auto [last, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && last == value.data() + value.size() && number >= 0) return number;
  }
  return std::nullopt;
}

std::chrono::system_clock::time_point end_of(const std::string& url) {
  const auto now = std::chrono::system_clock::now();
  constexpr std::int64_t kMaxSeconds = std::int64_t{7} * 24 * 3600;
  const std::string query = parse_url(url).query.value_or("");
  if (const auto time = parameter(query, "Expires")) {
    const auto end = std::chrono::system_clock::time_point(
        std::chrono::seconds(std::min<std::int64_t>(*time, 1LL << 33)));
    return std::min<std::chrono::system_clock::time_point>(
               end, now + std::chrono::seconds(kMaxSeconds)) -
           kMargin;
  }
  if (const auto seconds = parameter(query, "X-Amz-Expires")) {
    return now + std::chrono::seconds(std::min(*seconds, kMaxSeconds)) - kMargin;
  }
  return now + kKeptFor;
}

}  // namespace

std::optional<KnownRedirects::Redirect> KnownRedirects::find(const std::string& url) {
  const Lock lock(mutex_);
  const auto found = by_url_.find(url);
  if (found == by_url_.end()) return std::nullopt;
  if (std::chrono::system_clock::now() < found->second.end) return found->second.redirect;
  by_url_.erase(found);
  return std::nullopt;
}

void KnownRedirects::keep(const std::string& url, const Redirect& redirect) {
  const auto end = end_of(redirect.to);
  const Lock lock(mutex_);
  if (by_url_.size() >= kMaxKnown) by_url_.clear();
  by_url_.insert_or_assign(url, Known{redirect, end});
}

void KnownRedirects::drop(const std::string& url) {
  const Lock lock(mutex_);
  by_url_.erase(url);
}

}  // namespace shardwise
