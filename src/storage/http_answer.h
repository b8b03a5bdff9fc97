#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// A parsed Content-Range, e.g. "bytes 0-99/1000".
struct ContentRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;               ///< half-open; equals `begin` for "bytes */1000"
  std::optional<std::uint64_t> total;  ///< size of the whole file; nullopt for "*"
};

/// Parses a Content-Range header; returns nullopt if it is malformed or contradictory.
std::optional<ContentRange> parse_content_range(std::string_view text);

/// Returns the address with rel="next" from a Link header (RFC 8288); may be empty.
std::string parse_next_link(std::string_view text);

/// True for a strong ETag: quoted, without W/. A strong ETag identifies the exact bytes, and may be
/// sent back in If-Match.
bool is_strong_etag(std::string_view text);

/// The status line and the headers of an HTTP response.
struct HttpAnswer {
  int status = 0;
  std::optional<std::uint64_t> length;  ///< Content-Length
  std::optional<ContentRange> range;
  bool has_bad_length = false;  ///< Content-Length or Content-Range is malformed
  bool is_chunked = false;
  bool accepts_ranges = false;
  std::string etag;           ///< set only for a strong ETag
  std::string weak_etag;      ///< an ETag that may stay the same when the bytes change
  std::string last_modified;  ///< as sent
  /// The file's version that a redirect names: the Hub's X-Linked-Etag, or its X-Xet-Hash in
  /// quotes. May be empty.
  std::string linked_etag;
  /// The `linked_etag` of a previous redirect. It identifies the file's version, because ETags may
  /// differ between the nodes of a CDN. A new status line does not reset it.
  std::string version;
  std::string content_encoding;  ///< in lower case; empty for "identity"
  /// Encoding in which Google stores the file, if it was sent decompressed.
  std::string stored_encoding;
  std::optional<std::time_t> date;  ///< time by the server's clock
  std::optional<std::chrono::seconds> retry_after;
  std::string bucket_region;  ///< region of the bucket, from S3's header
  std::string next_page;      ///< address of the next page of a listing, from the Link header
  bool is_complete = false;   ///< all header lines have arrived

  /// Parses a header line or a status line. A status line discards all previous lines.
  void take_line(std::string_view line);

  /// Returns the file's version, see Fetcher::Stat::validator; empty if it is unknown.
  std::string validator() const;
  /// Returns the value for If-Range; empty if parts of this file cannot be combined safely.
  const std::string& range_validator() const {
    if (!version.empty()) return version;
    return etag.empty() ? last_modified : etag;
  }
  /// Returns the file's properties. REQUIRES: status 200 or 206.
  Fetcher::Stat file() const;
};

}  // namespace shardwise
