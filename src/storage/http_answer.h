#pragma once

#include <chrono>
#include <cstdint>
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

/// Nothing if `text` is none, or contradicts itself.
std::optional<ContentRange> parse_content_range(std::string_view text);

/// What the status line and the headers of an answer say.
struct HttpAnswer {
  int status = 0;
  std::optional<std::uint64_t> length;  ///< Content-Length
  std::optional<ContentRange> range;
  bool has_bad_length = false;  ///< a Content-Length or Content-Range that is none
  bool is_chunked = false;
  bool accepts_ranges = false;
  std::string etag;           ///< if it is a strong one
  std::string last_modified;  ///< as sent
  std::optional<std::chrono::seconds> retry_after;
  std::string bucket_region;  ///< what S3 says of where the bucket is
  bool is_complete = false;   ///< the empty line came

  /// Takes one header line, or a status line, which forgets all before it.
  void take_line(std::string_view line);

  /// "", or what tells the file's versions apart.
  const std::string& validator() const { return etag.empty() ? last_modified : etag; }
  bool has_validator(std::string_view text) const { return text == etag || text == last_modified; }
  /// REQUIRES: 200 or 206.
  SourceFile file() const;
};

}  // namespace shardwise
