#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"
#include "storage/http_exchange.h"

namespace shardwise {

/// Puts one range of a file together from as many answers as it takes, and holds each answer to
/// what it says and to those before. One thread.
///
///     begin           position        end
///       |== taken ======|-- wanted -----|
class HttpDownload : public HttpBody {
 public:
  HttpDownload(const Fetcher::Request& request, Fetcher::Sink& sink)
      : request_(request), sink_(sink), position_(request.range.begin) {}

  /// Asks for what is still wanted. If the answers can tell no version, all of it is.
  HttpQuery next_query();
  /// Asks no more for the wanted version alone: the answers are still held to it.
  void stop_matching() noexcept { matches_ = false; }
  /// Takes what an exchange left. True if all is there.
  bool finish(const HttpResult& result);
  /// True if the last exchange delivered bytes.
  bool has_progress() const noexcept { return has_progress_; }
  std::uint64_t position() const noexcept { return position_; }
  const Fetcher::Stat& file() const noexcept { return file_; }

  void begin(const HttpAnswer& answer) override;
  bool write(std::string_view bytes) override;

 private:
  void begin_whole(const HttpAnswer& answer);
  void begin_part(const HttpAnswer& answer);
  /// Forgets what was taken. Errors: FetchError, if the sink cannot.
  void restart(std::string_view why);
  void flush();

  const Fetcher::Request& request_;
  Fetcher::Sink& sink_;
  std::uint64_t position_;
  std::optional<std::uint64_t> end_;  ///< where this answer ends
  bool has_begun_ = false;            ///< this answer
  bool has_progress_ = false;
  bool was_restarted_ = false;  ///< the part that came is void: ask for the whole
  bool matches_ = true;         ///< the wanted version alone is asked for, where that can be said
  std::string validator_;       ///< of the answers so far, for If-Range
  Fetcher::Stat file_;
  std::string buffer_;  ///< taken, and not yet in the sink
};

}  // namespace shardwise
