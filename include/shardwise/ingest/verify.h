#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/progress.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/remote_access.h"

namespace shardwise {

struct VerifyOptions {
  /// Also compare every byte with the hashes that the index was built with.
  bool full = false;
  CancelToken cancel = {};
  /// Brings remote shards; none: they cannot be verified.
  RemoteAccess remote = nullptr;
  /// Called with the progress of this one shard; by verify_shards() with that of all of them.
  ProgressCallback progress = {};
};

/// The report of a shard that could not be read begins so. Such a shard may be as it was indexed:
/// it is another user's file, or its server refuses or is away.
inline constexpr std::string_view kNotVerified = "not verified: ";

/// Holds a shard against the index: its size and time, each header and each member's place, size,
/// key and field; in full also its content and each member's.
///
/// @return  nothing if all is as it was indexed, else what differs, with offset and member; or
///   kNotVerified and why the shard could not be read.
/// Effects: a compressed shard's headers go to a temporary file in the system's directory for them.
/// Threads: safe concurrently.
/// Cost: reads the headers, in full every byte.
/// Errors: OutOfRange; CorruptIndex; Cancelled; InvalidArgument, in full, if the index has no
///   hashes.
SHARDWISE_EXPORT std::optional<std::string> verify_shard(const Index& index, std::uint64_t shard,
                                                         const VerifyOptions& options = {});

/// Holds all shards against the index, and reports on each, in their order, what verify_shard()
/// returns. Of remote shards up to 16 are looked at at a time; in full fewer, so that temporary
/// files take no more than 1 GiB, or a shard.
///
/// @param report  is called on this thread, never beside `options.progress`.
/// Errors: as verify_shard; what `report` throws ends it.
SHARDWISE_EXPORT void verify_shards(
    const Index& index, const VerifyOptions& options,
    const std::function<void(std::uint64_t shard, const std::optional<std::string>& problem)>&
        report);

/// As verify_shard(), for a copy of the shard at `path`: of the file as it is stored, or, if the
/// shard is compressed, of what it expands to. The copy's time is not looked at; nor, in full, what
/// is neither header nor member of an expanded one.
SHARDWISE_EXPORT std::optional<std::string> verify_copy(const Index& index, std::uint64_t shard,
                                                        const std::string& path,
                                                        const VerifyOptions& options = {});

}  // namespace shardwise
