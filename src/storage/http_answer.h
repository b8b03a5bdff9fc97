#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// A range such as "bytes 0-99/1000".
struct ContentRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;               ///< half-open; begin == end for "bytes */1000"
  std::optional<std::uint64_t> total;  ///< of the whole file; nullopt for "*"
};

/// Parses a Content-Range header; returns nullopt if it is malformed or contradictory.
std::optional<ContentRange> parse_content_range(std::string_view text);

/// The address with rel="next" in a Link header (RFC 8288); may be empty.
std::string parse_next_link(std::string_view text);

/// True for a strong ETag: in quotes, without W/. It identifies bytes, and can be sent back
/// unchanged.
bool is_strong_etag(std::string_view text);

/// The status line and the headers of an answer.
struct HttpAnswer {
  int status = 0;
  std::optional<std::uint64_t> length;  ///< Content-Length
  std::optional<ContentRange> range;
  bool has_bad_length = false;  ///< a malformed Content-Length or Content-Range
  bool is_chunked = false;
  bool accepts_ranges = false;
  std::string etag;           ///< only strong ones
  std::string weak_etag;      ///< an ETag that may stay the same while bytes change
  std::string last_modified;  ///< as sent
  /// The file's version named by a redirect: the Hub's X-Linked-Etag, or its X-Xet-Hash in quotes.
  /// May be empty.
  std::string linked_etag;
  /// The `linked_etag` of a redirect before this answer. It is the file's version, since the ETags
  /// of a CDN's nodes may differ. A new status line does not reset it.
  std::string version;
  std::string content_encoding;     ///< lower case; empty also for "identity"
  std::string stored_encoding;      ///< of the file at Google, if it was sent expanded
  std::optional<std::time_t> date;  ///< the server's clock
  std::optional<std::chrono::seconds> retry_after;
  std::string bucket_region;  ///< the bucket's region as S3 names it
  std::string next_page;      ///< address of a list's next page, from the Link header
  bool is_complete = false;   ///< the empty line has arrived

  /// Takes a header line, or a status line, which discards everything before it.
  void take_line(std::string_view line);

  /// The file's version, see Fetcher::Stat::validator; empty if unknown.
  std::string validator() const;
  /// The value for If-Range; empty if parts of this file cannot be combined safely.
  const std::string& range_validator() const {
    if (!version.empty()) return version;
    return etag.empty() ? last_modified : etag;
  }
  /// REQUIRES: status 200 or 206.
  Fetcher::Stat file() const;
};

}  // namespace shardwise
