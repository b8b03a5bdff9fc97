#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"
#include "storage/http_exchange.h"

namespace shardwise {

/// Puts one range of a file together from as many answers as it takes. Checks each answer against
/// its own headers and the answers before. One thread.
///
///     begin           position        end
///       |== taken ======|-- wanted -----|
class HttpDownload : public HttpBody {
 public:
  HttpDownload(const Fetcher::Request& request, Fetcher::Sink& sink)
      : request_(request), sink_(sink), position_(request.range.begin) {}

  /// The request for what is still wanted: everything, if the answers name no version.
  HttpQuery next_query();
  /// Sends no If-Match from now on; the answers are still checked for the wanted version.
  void stop_matching() noexcept { matches_ = false; }
  /// Takes the result of an exchange. True if everything has arrived.
  bool finish(const HttpResult& result);
  /// Discards what was taken, to ask for all of it again. False if the sink cannot do that.
  bool start_over();
  /// True if the last exchange delivered bytes.
  bool has_progress() const noexcept { return has_progress_; }
  std::uint64_t position() const noexcept { return position_; }
  const Fetcher::Stat& file() const noexcept { return file_; }

  void begin(const HttpAnswer& answer) override;
  bool write(std::string_view bytes) override;

 private:
  void begin_whole(const HttpAnswer& answer);
  void begin_part(const HttpAnswer& answer);
  /// Discards what was taken. Errors: FetchError, if the sink cannot do so.
  void restart(std::string_view why);
  void flush();

  const Fetcher::Request& request_;
  Fetcher::Sink& sink_;
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
