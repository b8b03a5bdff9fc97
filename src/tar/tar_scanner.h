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

/// A regular file in a tar archive.
/// Lifetime: `name` (any bytes) is valid only during the visit.
struct TarMember {
  std::string_view name;
  std::uint64_t header_offset = 0;  ///< offset of the 512-byte header directly before the data
  std::uint64_t data_offset = 0;
  std::uint64_t size_bytes = 0;
};

/// A link, device or FIFO in a tar archive.
/// Lifetime: the views are valid only during the visit.
struct TarOther {
  enum class Type : std::uint8_t { kHardLink, kSymbolicLink, kSpecial };

  Type type = Type::kSpecial;
  std::string_view name;
  std::string_view target;  ///< a link's target as written in the archive; never followed
  std::uint64_t header_offset = 0;
};

/// A problem that strict scanning throws and lenient scanning skips.
struct TarProblem {
  ErrorCode code = ErrorCode::kCorruptShard;
  std::uint64_t offset = 0;  ///< offset of the header concerned
  std::string member;        ///< the member's name, if known
  std::string what;
};

struct TarScanReport {
  std::uint64_t num_members = 0;  ///< regular files visited
  std::uint64_t num_directories = 0;
  std::uint64_t num_links = 0;       ///< symbolic and hard links
  std::uint64_t num_special = 0;     ///< devices and FIFOs
  std::uint64_t num_archives = 1;    ///< more than 1 for concatenated archives
  std::uint64_t trailing_bytes = 0;  ///< bytes after the end marker that are neither zero nor an
                                     ///< archive
  bool end_marker = false;
  Hash128 header_hash;  ///< over all header blocks, including special headers and their bodies
  std::vector<TarProblem> skipped;  ///< filled by lenient scans only
};

struct TarScanOptions {
  bool lenient = false;
  /// True if the archive was expanded from a compressed file. Error texts then state that offsets
  /// refer to the expanded archive.
  bool expanded = false;
  /// Read every entry through libarchive, even entries that can be read directly. The result is the
  /// same. Tests compare both ways.
  bool libarchive_only = false;
  /// Called for links, devices and FIFOs, in archive order with the members.
  std::function<void(const TarOther&)> visit_other = nullptr;
  /// Called with the current offset: at the latest after 1,024 entries, or at the first entry or
  /// zero block after 4 MiB. An exception from it ends the scan.
  std::function<void(std::uint64_t offset)> tick = nullptr;
};

/// Finds every regular file of an uncompressed tar archive in memory, without reading the files'
/// data.
///
/// Formats: v7, ustar (prefix), old GNU, GNU long names and links, pax (path, linkpath, size),
/// star, base-256 and blank-padded numbers, signed checksums. An archive may lack the end marker if
/// it ends at a member boundary. Concatenated archives are read one after another.
///
/// Plain headers are read directly. From the first header that is not plain, libarchive reads the
/// rest of the archive, and each entry is compared with the raw headers. If they disagree in type,
/// name, target, size or position, the error shows both values.
///
/// An archive that readers interpret differently is an error:
/// - pax global headers with a path, linkpath, size or sparse map;
/// - a directory with data;
/// - a body after a link, directory or device that could be read as members.
/// Unknown types are refused like sparse members, because some readers treat them as files. Names
/// are bytes, independent of the locale.
///
/// @param shard  for error texts.
/// Threads: safe concurrently.
/// Cost: O(headers); memory O(1).
/// Errors: CorruptShard (malformed, truncated, sizes past the end, not a tar, special headers above
///   1 MiB); Unsupported (compressed data, sparse members, unknown types). The call throws
///   exceptions of `visit`, `visit_other` and `tick`.
SHARDWISE_EXPORT TarScanReport scan_tar(std::string_view archive, const std::string& shard,
                                        const TarScanOptions& options,
                                        const std::function<void(const TarMember&)>& visit);

/// Detects the compression of a shard by its first 512 bytes. An uncompressed tar is recognised
/// even if the name of its first member begins like the magic of a compressed file.
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
