#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/fork.h"
#include "shardwise/storage/fetcher.h"
#include "storage/http_exchange.h"

namespace shardwise {

/// Remembers, per URL, the versions that servers named recently. With them, a replaced file can be
/// distinguished from a server whose nodes name different versions of the same file.
/// Threads: internally synchronised.
class SeenVersions {
 public:
  /// Records the file's version in a response.
  /// Errors: StaleIndex if the request asks for another version.
  void take(const Fetcher::Request& request, const Fetcher::Stat& file, const HttpAnswer& answer);

 private:
  struct Seen {
    Fetcher::Stat file;
    std::chrono::steady_clock::time_point when;
  };
  Mutex mutex_;
  std::map<std::string, Seen> by_url_ SHARDWISE_GUARDED_BY(mutex_);
};

/// Assembles one range of a file from as many responses as needed. Checks each response for
/// consistency with its headers and with previous responses.
/// Threads: one.
///
///     begin           position        end
///       |== taken ======|-- wanted -----|
class HttpDownload : public HttpBody {
 public:
  /// @param max_without_length  time limit of a response without a length.
  HttpDownload(const Fetcher::Request& request, Fetcher::Sink& sink, SeenVersions& versions,
               std::chrono::milliseconds max_without_length)
      : request_(request),
        sink_(sink),
        versions_(versions),
        max_without_length_(max_without_length),
        position_(request.range.begin) {}

  /// Returns the query for the missing bytes, or for the whole range if the responses name no
  /// version.
  HttpQuery next_query();
  /// Stops sending If-Match. Responses are still checked for the requested version. Returns false
  /// if this was called before.
  bool stop_matching() noexcept { return std::exchange(matches_, false); }
  /// Processes the result of an exchange. Returns true if everything has arrived.
  bool finish(const HttpResult& result);
  /// Discards the received bytes, so that all are requested again. Returns false if the sink cannot
  /// restart.
  bool start_over();
  /// True if the last exchange delivered bytes.
  bool has_progress() const noexcept { return has_progress_; }
  /// True if a response without a length exceeded its time limit.
  bool is_endless() const noexcept { return is_endless_; }
  std::uint64_t position() const noexcept { return position_; }
  const Fetcher::Stat& file() const noexcept { return file_; }

  void begin(const HttpAnswer& answer) override;
  bool write(std::string_view bytes) override;

 private:
  void begin_whole(const HttpAnswer& answer);
  void begin_part(const HttpAnswer& answer);
  void require_it_may_end();
  /// Discards the received bytes. Errors: FetchError if the sink cannot restart.
  void restart(std::string_view why);
  void flush();

  const Fetcher::Request& request_;
  Fetcher::Sink& sink_;
  SeenVersions& versions_;
  const std::chrono::milliseconds max_without_length_;
  std::chrono::steady_clock::time_point began_;  ///< start of the current response
  bool is_endless_ = false;
  std::uint64_t position_;
  std::optional<std::uint64_t> end_;  ///< end of the current response
  bool has_begun_ = false;            ///< the current response's body has begun
  bool has_progress_ = false;
  /// The received part is of another version: request the whole range.
  bool was_restarted_ = false;
  bool matches_ = true;    ///< send If-Match if the validator permits it
  std::string validator_;  ///< value of If-Range, from the responses so far
  Fetcher::Stat file_;
  std::string buffer_;  ///< received bytes that are not yet in the sink
};

}  // namespace shardwise
