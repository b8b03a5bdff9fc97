#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// A large file to fetch in parts, with several concurrent requests.
struct RangeDownload {
  const Fetchers& fetchers;
  /// The request for the whole file. It has a validator, which all parts must match.
  const Fetcher::Request& request;
  std::uint64_t size_bytes = 0;  ///< of the file
  int num_connections = 1;
  /// Writes bytes that arrived. Called by several threads at once.
  std::function<void(std::uint64_t offset, std::string_view bytes)> write;
  /// Reports that all bytes before `end` are written. Called on the calling thread, with increasing
  /// `end`.
  std::function<void(std::uint64_t end)> advance;
  /// Returns the bytes to fetch first, most urgent first. Called by several threads at once.
  std::function<std::vector<std::uint64_t>()> wanted;
};

/// Fetches the parts from front to back, wanted parts first, and returns when all are written.
/// After a failure no request is running any more.
/// Errors: BadPart if the server does not send parts of this file as it should; one request for the
///   whole may work. Otherwise as Fetcher, of the part that failed first; errors of `write` and
///   `advance`.
void download_ranges(const RangeDownload& what);

}  // namespace shardwise
