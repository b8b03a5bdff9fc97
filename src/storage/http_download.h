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

/// Remembers the versions that servers named lately, by URL. It tells a file that was replaced from
/// a server whose nodes name several versions.
/// Threads: internally synchronised.
class SeenVersions {
 public:
  /// Takes what an answer says of the file.
  /// Errors: StaleIndex, if the request wants another version.
  void take(const Fetcher::Request& request, const Fetcher::Stat& file, const HttpAnswer& answer);

 private:
  struct Seen {
    Fetcher::Stat file;
    std::chrono::steady_clock::time_point when;
  };
  Mutex mutex_;
  std::map<std::string, Seen> by_url_ SHARDWISE_GUARDED_BY(mutex_);
};

/// Puts one range of a file together from as many answers as it takes. Checks each answer against
/// its own headers and the answers before. One thread.
///
///     begin           position        end
///       |== taken ======|-- wanted -----|
class HttpDownload : public HttpBody {
 public:
  /// @param max_without_length  how long an answer may take that says no length.
  HttpDownload(const Fetcher::Request& request, Fetcher::Sink& sink, SeenVersions& versions,
               std::chrono::milliseconds max_without_length)
      : request_(request),
        sink_(sink),
        versions_(versions),
        max_without_length_(max_without_length),
        position_(request.range.begin) {}

  /// The request for what is still wanted: everything, if the answers name no version.
  HttpQuery next_query();
  /// Sends no If-Match from now on; the answers are still checked for the wanted version. False if
  /// it was called before.
  bool stop_matching() noexcept { return std::exchange(matches_, false); }
  /// Takes the result of an exchange. True if everything has arrived.
  bool finish(const HttpResult& result);
  /// Discards what was taken, to ask for all of it again. False if the sink cannot do that.
  bool start_over();
  /// True if the last exchange delivered bytes.
  bool has_progress() const noexcept { return has_progress_; }
  /// True if an answer without a length took too long.
  bool is_endless() const noexcept { return is_endless_; }
  std::uint64_t position() const noexcept { return position_; }
  const Fetcher::Stat& file() const noexcept { return file_; }

  void begin(const HttpAnswer& answer) override;
  bool write(std::string_view bytes) override;

 private:
  void begin_whole(const HttpAnswer& answer);
  void begin_part(const HttpAnswer& answer);
  void require_it_may_end();
  /// Discards what was taken. Errors: FetchError, if the sink cannot do so.
  void restart(std::string_view why);
  void flush();

  const Fetcher::Request& request_;
  Fetcher::Sink& sink_;
  SeenVersions& versions_;
  const std::chrono::milliseconds max_without_length_;
  std::chrono::steady_clock::time_point began_;  ///< this answer
  bool is_endless_ = false;
  std::uint64_t position_;
  std::optional<std::uint64_t> end_;  ///< where this answer ends
  bool has_begun_ = false;            ///< this answer
  bool has_progress_ = false;
  bool was_restarted_ = false;  ///< the part that arrived is void: ask for the whole
  bool matches_ = true;         ///< If-Match is sent, where the validator permits that
  std::string validator_;       ///< of the answers so far, for If-Range
  Fetcher::Stat file_;
  std::string buffer_;  ///< taken, and not yet in the sink
};

}  // namespace shardwise
