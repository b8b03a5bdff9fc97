#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// A large file that is to be fetched in parts, by several requests at a time.
struct RangeDownload {
  const Fetchers& fetchers;
  /// Of the whole file. It has a validator, which all parts must have.
  const Fetcher::Request& request;
  std::uint64_t size_bytes = 0;  ///< of the file
  int num_connections = 1;
  /// Takes bytes that came. Called by several threads at once.
  std::function<void(std::uint64_t offset, std::string_view bytes)> write;
  /// Says that all bytes before `end` were written. Called on the calling thread, with ever more.
  std::function<void(std::uint64_t end)> advance;
  /// The bytes that are wanted first, the most urgent one first. Called by several threads at once.
  std::function<std::vector<std::uint64_t>()> wanted;
};

/// Fetches the parts from front to back, but those first that hold what is wanted, and returns when
/// all were written. Where it fails, all its requests have ended.
/// Errors: BadPart, if the server does not send parts of this file as it should: one request for
///   the whole may work. Otherwise as Fetcher, of the part that failed first; what `write` and
///   `advance` throw.
void download_ranges(const RangeDownload& what);

}  // namespace shardwise
