// Fetches many parts of files at a time.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/host_gate.h"
#include "storage/http_client.h"

// Each part gets one attempt. The states of a part:
//
//   kWaiting --> kRunning --> kOver
//       ^------------'           after a redirect
//
// A part whose redirect is unknown waits while another part of the same file finds the redirect. A
// host that has never redirected is an exception: then all parts start at once.
//
// This class reports no errors except Cancelled. The caller then uses fetch() for each missing
// part, which handles or reports the failure.

namespace shardwise {

class HttpClient::Parts {
 public:
  Parts(HttpClient& client, std::span<Fetcher::Part> parts, const TargetOf& target_of);
  /// Errors: Cancelled.
  void run();

 private:
  enum class State : std::uint8_t { kWaiting, kRunning, kOver };
  struct Item {
    Item(Fetcher::Part& which, HttpTarget target, SeenVersions& versions)
        : part(which),
          asked(std::move(target)),
          now(asked),
          origin(parse_url(now.url).origin()),
          download(std::in_place, part.request, *part.sink, versions, std::chrono::hours(1)) {}

    void go_to(HttpTarget target) {
      now = std::move(target);
      origin = parse_url(now.url).origin();
    }

    Fetcher::Part& part;
    const HttpTarget asked;
    HttpTarget now;                        // `asked`, or where it was redirected to
    std::string origin;                    // origin of `now`
    std::optional<HttpDownload> download;  // empty if the part is over, to free its buffer
    State state = State::kWaiting;
    int num_redirects = 0;
    bool was_known = false;   // `now` comes from an earlier request
    bool is_finding = false;  // finds the redirect for other parts of the file
    std::unique_ptr<HostGate::Turn> turn;
  };

  static bool may_be_redirected(const Item& item);
  bool start(std::size_t number, bool may_block);
  bool start_any();
  void end(HttpExchanges::Ended ended);
  void take_redirect(Item& item, const HttpResult& result);

  HttpClient& client_;
  HttpExchanges exchanges_;
  std::deque<Item> items_;
  std::set<std::string> finding_;  // URLs whose redirect is being found
  // Time at which run() stops waiting for hosts that refuse requests.
  const HostGate::Clock::time_point deadline_;
};

HttpClient::Parts::Parts(HttpClient& client, std::span<Fetcher::Part> parts,
                         const TargetOf& target_of)
    : client_(client),
      exchanges_(client.pool_, client.options_),
      deadline_(HostGate::Clock::now() + client.options_.retry_for) {
  for (Fetcher::Part& part : parts) {
    const Fetcher::Range& range = part.request.range;
    if (!range.end || *range.end <= range.begin) continue;
    try {
      items_.emplace_back(part, target_of(part.request).renewed(), client.versions_);
    } catch (const Cancelled&) {
      throw;
    } catch (const Error&) {  // fetch() throws the error
    }
  }
}

/// True if the part may be redirected, and other parts of the file may then skip the redirect.
bool HttpClient::Parts::may_be_redirected(const Item& item) {
  return item.asked.follows_redirects && item.num_redirects == 0 && !item.was_known &&
         !item.part.request.validator.empty();
}

/// Starts a part. Returns false if it must wait.
/// @param may_block  wait for the HostGate.
bool HttpClient::Parts::start(std::size_t number, bool may_block) {
  Item& item = items_[number];
  const Fetcher::Request& request = item.part.request;
  if (item.num_redirects == 0 && !item.was_known) {
    if (auto known = client_.where_known(item.asked, request)) {
      item.go_to(*std::move(known));
      item.was_known = true;
    }
  }
  if (may_be_redirected(item) && finding_.contains(item.asked.url)) return false;
  const int limit = client_.options_.max_connections_per_host;
  const int max = limit > 0 ? std::min(limit, kMaxTransfersPerHost) : kMaxTransfersPerHost;
  HostGate& gate = HostGate::of_process();
  if (may_block) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - HostGate::Clock::now());
    if (left.count() <= 0) {  // fetch() throws the error
      item.state = State::kOver;
      return true;
    }
    item.turn = gate.enter(item.origin, max, request, left);
  } else {
    item.turn = gate.try_enter(item.origin, max);
  }
  if (!item.turn) return false;
  item.state = State::kRunning;
  bool is_started = false;
  try {
    is_started =
        exchanges_.start(number, item.now, query_for(item.now, item.download->next_query()),
                         request, *item.download);
  } catch (const Cancelled&) {
    throw;
  } catch (const Error&) {  // the request cannot be signed; fetch() throws the error
  }
  if (!is_started) {
    item.state = State::kOver;
    item.turn.reset();
    return true;
  }
  if (may_be_redirected(item)) {
    const Lock lock(client_.mutex_);
    const auto host = client_.hosts_.find(item.origin);
    const bool is_direct =
        host != client_.hosts_.end() && host->second.has_answered && !host->second.has_redirected;
    item.is_finding = !is_direct && finding_.insert(item.asked.url).second;
  }
  return true;
}

/// Starts all parts that need not wait. Returns false if all parts are over.
bool HttpClient::Parts::start_any() {
  bool is_left = false;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].state == State::kWaiting) start(i, false);
    is_left = is_left || items_[i].state != State::kOver;
  }
  if (!is_left || exchanges_.num_running() > 0) return is_left;
  for (std::size_t i = 0; i < items_.size() && exchanges_.num_running() == 0; ++i) {
    if (items_[i].state == State::kWaiting) start(i, true);
  }
  return exchanges_.num_running() > 0;
}

void HttpClient::Parts::take_redirect(Item& item, const HttpResult& result) {
  if (++item.num_redirects > client_.options_.max_redirects) return;
  try {
    item.go_to(client_.redirected(item.now, result, item.part.request));
    item.state = State::kWaiting;
  } catch (const Error&) {  // fetch() throws the error
  }
}

void HttpClient::Parts::end(HttpExchanges::Ended ended) {
  Item& item = items_[ended.id];
  item.state = State::kOver;
  HttpResult& result = ended.result;
  const std::unique_ptr<HostGate::Turn> turn = std::move(item.turn);
  if (!ended.error) {
    client_.note(result, item.now, item.origin, *turn);
    if (item.asked.follows_redirects && result.is_redirect()) {
      take_redirect(item, result);
    } else if (item.num_redirects > 0 && result.has_file()) {
      client_.redirects_.keep(item.asked.url, {.to = item.now.url, .version = item.now.version});
    }
  }
  if (item.state == State::kWaiting) return;
  if (std::exchange(item.is_finding, false)) finding_.erase(item.asked.url);
  try {
    if (ended.error) std::rethrow_exception(ended.error);
    item.part.is_complete = item.download->finish(result);
  } catch (const Cancelled&) {
    throw;
  } catch (const Error&) {  // fetch() throws the error if it occurs again
  }
  if (!item.part.is_complete && item.was_known) client_.redirects_.drop(item.asked.url);
  item.download.reset();
}

void HttpClient::Parts::run() {
  while (start_any()) {
    if (auto ended = exchanges_.wait(kCancelInterval)) end(*std::move(ended));
    if (exchanges_.has_failed()) return;
  }
}

void HttpClient::fetch_parts(std::span<Fetcher::Part> parts, const TargetOf& target_of) {
  Parts(*this, parts, target_of).run();
}

}  // namespace shardwise
