#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/compression.h"
#include "shardwise/base/error.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {

/// A regular file in a tar archive. `name` is bytes, valid during the visit only.
struct TarMember {
  std::string_view name;
  std::uint64_t header_offset = 0;  ///< of the 512-byte header right before the data
  std::uint64_t data_offset = 0;
  std::uint64_t size_bytes = 0;
};

/// A link, device or FIFO in a tar archive. Its views are valid during the visit only.
struct TarOther {
  enum class Type : std::uint8_t { kHardLink, kSymbolicLink, kSpecial };

  Type type = Type::kSpecial;
  std::string_view name;
  std::string_view target;  ///< of a link, as it stands in the archive; it is never followed
  std::uint64_t header_offset = 0;
};

/// Something that strict scanning throws and lenient scanning skips.
struct TarProblem {
  ErrorCode code = ErrorCode::kCorruptShard;
  std::uint64_t offset = 0;  ///< of the header concerned
  std::string member;        ///< its name, as far as it is known
  std::string what;
};

struct TarScanReport {
  std::uint64_t num_members = 0;  ///< regular files visited
  std::uint64_t num_directories = 0;
  std::uint64_t num_links = 0;       ///< symbolic and hard
  std::uint64_t num_special = 0;     ///< devices and FIFOs
  std::uint64_t num_archives = 1;    ///< more than one: archives were concatenated
  std::uint64_t trailing_bytes = 0;  ///< after the end marker, neither zero nor another archive
  bool end_marker = false;
  Hash128 header_hash;  ///< of every header block, special ones and their bodies included
  std::vector<TarProblem> skipped;  ///< lenient scans only
};

struct TarScanOptions {
  bool lenient = false;
  /// The archive is what a compressed file expands to: error texts then say so of offsets.
  bool expanded = false;
  /// Sends every entry through libarchive, also those that the direct path for plain ones could
  /// read. The result is the same; tests compare the two.
  bool libarchive_only = false;
  /// Called for links, devices and FIFOs, between the visits of the members around them.
  std::function<void(const TarOther&)> visit_other = nullptr;
  /// Called at least once in some 4 MiB of archive gone through, zeros too, and once in some
  /// thousand entries, with the offset that was reached. An exception from it ends the scan.
  std::function<void(std::uint64_t offset)> tick = nullptr;
};

/// Finds every regular file of an uncompressed tar archive in memory, without touching its data.
///
/// Reads v7, ustar (prefix), old GNU, GNU long names and links, pax (path, linkpath, size), star,
/// base-256 and blank-padded numbers, signed checksums; archives without an end marker that end at
/// a member boundary; archives one after another. Plain headers are read directly; from the first
/// header that is anything else the rest of the archive goes through libarchive, and each of its
/// entries is compared with the raw headers: where the two disagree in type, name, target, size or
/// place, the error says both.
///
/// An archive that readers interpret in several ways is an error, never one of the ways: pax global
/// headers with a path, linkpath, size or sparse map; a body behind a link, a directory or a device
/// that could be read as members; a directory with data. Unknown types are refused like sparse
/// members, since some readers take them for files. Names are bytes, whatever the locale.
///
/// @param shard  for error texts.
/// Threads: safe concurrently.
/// Cost: O(headers); memory O(1), special headers above 1 MiB refused.
/// Errors: CorruptShard (malformed, truncated, sizes past the end, no tar at all); Unsupported
///   (compressed data, sparse members, unknown types). Exceptions of `visit`, `visit_other` and
///   `tick` pass through.
SHARDWISE_EXPORT TarScanReport scan_tar(std::string_view archive, const std::string& shard,
                                        const TarScanOptions& options,
                                        const std::function<void(const TarMember&)>& visit);

/// How a shard is compressed, by its first 512 bytes: an uncompressed tar is one whatever its first
/// member is called.
SHARDWISE_EXPORT Compression shard_compression(std::string_view first_bytes) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::scan_tar;
using detail::shard_compression;
using detail::TarMember;
using detail::TarOther;
using detail::TarProblem;
using detail::TarScanOptions;
using detail::TarScanReport;
}  // namespace shardwise
