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
  /// Check every byte against the hashes that the index was built with.
  bool full = false;
  /// Number of threads of verify_shards(). 0 means the calling thread only; empty means one per
  /// core, or up to 16 if shards are remote.
  std::optional<unsigned> threads = {};
  CancelToken cancel = {};
  /// Access to remote shards. Null means that remote shards are an error.
  RemoteAccess remote = nullptr;
  /// Called with the progress of one shard, or in verify_shards() of all shards.
  ProgressCallback progress = {};
};

/// Prefix of the report of a shard that could not be read, e.g. because it belongs to another user
/// or its server is unreachable. The shard may be unchanged.
inline constexpr std::string_view kNotVerified = "not verified: ";

/// Checks a shard against the index: its size and time, each header, and each member's offset,
/// size, key and field. A full check also covers the content of the shard and of each member.
///
/// @return  the first difference, with its offset and member, or nothing if the shard is as
///   indexed. If the shard could not be read, kNotVerified followed by the reason.
/// Effects: headers of a compressed shard are written to a temporary file, in the system's
///   directory for temporary files.
/// Threads: safe concurrently.
/// Cost: reads the headers, or in a full check every byte.
/// Errors: OutOfRange. CorruptIndex. Cancelled. InvalidArgument for a full check if the index has
///   no hashes.
SHARDWISE_EXPORT std::optional<std::string> verify_shard(const Index& index, std::uint64_t shard,
                                                         const VerifyOptions& options = {});

/// Checks all shards against the index, and reports the result of verify_shard() for each, in
/// order. Unless VerifyOptions::threads is set, up to 16 remote shards are checked at a time. A
/// full check then handles fewer at a time, so that temporary files take at most 1 GiB, or the size
/// of one shard if that is larger.
///
/// @param report  called on this thread, never concurrently with `options.progress`. An exception
///   from it ends the call.
/// Errors: those of verify_shard().
SHARDWISE_EXPORT void verify_shards(
    const Index& index, const VerifyOptions& options,
    const std::function<void(std::uint64_t shard, const std::optional<std::string>& problem)>&
        report);

/// Checks a copy of a shard at `path`. If the shard is compressed, the copy may be compressed or
/// expanded. The copy's time is ignored. A full check of an expanded copy ignores bytes that are
/// neither header nor member. See verify_shard().
SHARDWISE_EXPORT std::optional<std::string> verify_copy(const Index& index, std::uint64_t shard,
                                                        const std::string& path,
                                                        const VerifyOptions& options = {});

}  // namespace shardwise
