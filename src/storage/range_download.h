#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// A large file that is fetched in parts by several concurrent requests.
struct RangeDownload {
  const Fetchers& fetchers;
  /// The request for the whole file. It has a validator, which every part must match.
  const Fetcher::Request& request;
  std::uint64_t size_bytes = 0;  ///< size of the file
  int num_connections = 1;
  /// Writes bytes that have arrived. Several threads call it concurrently.
  std::function<void(std::uint64_t offset, std::string_view bytes)> write;
  /// Reports that all bytes before `end` are written. Called by the thread that called
  /// download_ranges(), with increasing `end`.
  std::function<void(std::uint64_t end)> advance;
  /// Returns the offsets of bytes to fetch first, most urgent first. Several threads call it
  /// concurrently.
  std::function<std::vector<std::uint64_t>()> wanted;
};

/// Fetches the file from front to back, except that parts that `wanted` names come first. Returns
/// when all bytes are written. If the call throws, no request is running any more.
/// Errors: BadPart if the server sends a part of this file incorrectly; a single request for the
///   whole file may work. Otherwise the error of the part that failed first, as Fetcher; errors of
///   `write` and `advance`.
void download_ranges(const RangeDownload& what);

}  // namespace shardwise
