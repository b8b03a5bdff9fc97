#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/compression.h"
#include "shardwise/base/export.h"
#include "shardwise/ingest/remote_access.h"

namespace shardwise::detail {

/// Concurrent requests, where most of the time is spent waiting for the network.
inline constexpr unsigned kAskedAtOnce = 16;

/// Access to remote shards, for building and verifying indexes. make_remote_access() of
/// data/make_remote_access.h makes the standard implementation.
///
/// Threads: all calls are safe concurrently.
/// Errors: every call that names a shard may throw these; the text names the URL.
/// - NotFound if its source does not have it; `drop_missing` leaves it out.
/// - StaleIndex if the shard is not the one that `state` describes.
/// - Cancelled, and any error of fetching.
class SHARDWISE_EXPORT RemoteShards {
 public:
  virtual ~RemoteShards();

  /// True if pipe: URLs that a user gives may be run. URLs in descriptors are never run.
  virtual bool runs_commands() const { return false; }

  /// Returns the URLs of all files whose URL begins with `url`, bytewise sorted.
  /// Errors: Unsupported if the scheme cannot list; the default implementation always throws it.
  virtual std::vector<std::string> list(const std::string& url);

  /// The properties of a shard before it is read.
  struct State {
    std::optional<std::uint64_t> size_bytes = {};
    std::string validator = {};  ///< changes when the shard does; empty if unknown
    bool has_ranges = false;     ///< true if ranges can be requested
  };
  virtual State state(const std::string& url) = 0;

  /// Passes the bytes from `begin` to `end`, or to the end of the shard, to `take`, in order. All
  /// bytes are of the version that the state's validator names. An exception from `take` ends the
  /// read.
  virtual void read(const std::string& url, const State& state, std::uint64_t begin,
                    std::optional<std::uint64_t> end,
                    const std::function<void(std::string_view)>& take) = 0;

  /// A shard's copy on disk, which exists while this object lives.
  struct Copy {
    std::string path;
    std::shared_ptr<void> hold;
  };
  /// True if copy() makes copies; whole shards are fetched then.
  virtual bool makes_copies() const { return false; }
  /// Makes a local copy of a shard. Returns nothing if shards are not copied: they are read in one
  /// pass then, and nothing is kept.
  virtual std::optional<Copy> copy(const std::string& url, const State& state) = 0;
  /// Called after the copy of a compressed shard at `path` was read to its end. Its expanded bytes
  /// may be kept now.
  virtual void keep_expanded(const std::string& url, const State& state, const std::string& path,
                             Compression compression, std::uint64_t expanded_bytes) = 0;
};

/// Wraps `remote` so that each shard's state is requested once and remembered, for work that needs
/// it several times. If `remote` remembers already, it is returned.
/// The states of the remote URLs in `shards` are requested now, kAskedAtOnce at a time, until a
/// server fails. The other states are requested when they are needed. A failed request throws the
/// same error each time its state is needed.
/// Errors: Cancelled.
SHARDWISE_EXPORT RemoteAccess remembering_states(RemoteAccess remote,
                                                 std::span<const std::string> shards);

}  // namespace shardwise::detail

namespace shardwise {
using detail::remembering_states;
using detail::RemoteShards;
}  // namespace shardwise
