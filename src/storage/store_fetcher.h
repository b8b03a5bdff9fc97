#pragma once

#include <cstdint>
#include <span>

#include "shardwise/storage/fetcher.h"
#include "storage/http_client.h"

namespace shardwise {

/// Fetches the files of a store over http(s). Derived classes know addresses and credentials.
class StoreFetcher : public Fetcher {
 public:
  explicit StoreFetcher(const Fetchers::Options& options) : client_(options) {}

  Stat stat(const Request& request) final { return client_.stat(target_of(request), request); }
  Stat fetch(const Request& request, Sink& sink) final {
    return client_.fetch(target_of(request), request, sink);
  }
  void fetch_parts(std::span<Part> parts) final {
    client_.fetch_parts(parts, [this](const Request& request) { return target_of(request); });
  }
  std::uint64_t max_gap_bytes() final { return client_.max_gap_bytes(); }

 protected:
  /// Returns the target of the request. REQUIRES: `request` outlives the target.
  virtual HttpTarget target_of(const Request& request) = 0;

  HttpClient client_;
};

}  // namespace shardwise
