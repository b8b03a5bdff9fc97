#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// "bytes 0-99/1000"
struct ContentRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;               ///< half-open; begin == end for "bytes */1000"
  std::optional<std::uint64_t> total;  ///< of the whole file; nothing for "*"
};

/// Parses a Content-Range header; returns nothing if `text` is none, or contradicts itself.
std::optional<ContentRange> parse_content_range(std::string_view text);

/// The address with rel="next" in a Link header (RFC 8288); empty if there is none.
std::string parse_next_link(std::string_view text);

/// True for an ETag that names bytes, and can be sent back as it is: in quotes, without W/.
bool is_strong_etag(std::string_view text);

/// The status line and the headers of an answer.
struct HttpAnswer {
  int status = 0;
  std::optional<std::uint64_t> length;  ///< Content-Length
  std::optional<ContentRange> range;
  bool has_bad_length = false;  ///< a malformed Content-Length or Content-Range
  bool is_chunked = false;
  bool accepts_ranges = false;
  std::string etag;           ///< if it is a strong one
  std::string weak_etag;      ///< an ETag that may stay while bytes change
  std::string last_modified;  ///< as sent
  /// The version that a redirect names of the file behind it: the Hub's X-Linked-Etag, or its
  /// X-Xet-Hash in quotes. Empty means none.
  std::string linked_etag;
  /// The `linked_etag` of a redirect before this answer. It is the file's version, since the ETags
  /// of a CDN's nodes may differ. Another status line does not reset it.
  std::string version;
  std::string content_encoding;     ///< in lower case; empty: none, or "identity"
  std::string stored_encoding;      ///< that of the file at Google's, which sent it expanded
  std::optional<std::time_t> date;  ///< the server's clock
  std::optional<std::chrono::seconds> retry_after;
  std::string bucket_region;  ///< the bucket's region, as S3 says it
  std::string next_page;      ///< where Link says that the next page of a list is
  bool is_complete = false;   ///< the empty line has arrived

  /// Takes one header line, or a status line, which discards all before it.
  void take_line(std::string_view line);

  /// Tells the file's versions apart, see Fetcher::Stat::validator; "" if nothing does.
  std::string validator() const;
  /// The value for If-Range; "" if the answer has nothing by which parts may be put together.
  const std::string& range_validator() const {
    if (!version.empty()) return version;
    return etag.empty() ? last_modified : etag;
  }
  /// REQUIRES: 200 or 206.
  Fetcher::Stat file() const;
};

}  // namespace shardwise
