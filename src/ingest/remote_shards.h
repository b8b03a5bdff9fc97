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

/// Number of concurrent requests for states. More than one, because most time is spent waiting for
/// the network.
inline constexpr unsigned kAskedAtOnce = 16;

/// Access to remote shards, for building and verifying indexes. make_remote_access() in
/// data/make_remote_access.h returns the standard implementation.
///
/// Threads: all calls are safe concurrently.
/// Errors: every call that names a shard may throw these. Their texts contain the URL.
/// - NotFound if the source does not have the shard; with `drop_missing` the shard is then
///   excluded.
/// - StaleIndex if the shard is not the version that `state` describes.
/// - Cancelled, and any error of fetching.
class SHARDWISE_EXPORT RemoteShards {
 public:
  virtual ~RemoteShards();

  /// True if pipe: URLs from a user may be run as commands. pipe: URLs in descriptors are never
  /// run.
  virtual bool runs_commands() const { return false; }

  /// Returns the URLs of all files whose URL begins with `url`, sorted bytewise.
  /// Errors: Unsupported if the scheme cannot list files; the default implementation always throws
  ///   it.
  virtual std::vector<std::string> list(const std::string& url);

  /// Properties of a shard that are known before it is read.
  struct State {
    std::optional<std::uint64_t> size_bytes = {};
    std::string validator = {};  ///< changes whenever the shard changes; empty if unknown
    bool has_ranges = false;     ///< the server supports requests for byte ranges
  };
  virtual State state(const std::string& url) = 0;
  /// Like state(), for a file of which the caller has a copy. If the source cannot be reached
  /// within a few seconds, returns nullopt and the reason.
  virtual std::optional<State> state_if_reached(const std::string& url, std::string& why);

  /// Passes the bytes from `begin` to `end` (or to the shard's end) to `take`, in order. All bytes
  /// are of the version that the state's validator names. If `take` throws, reading stops and the
  /// exception is rethrown.
  virtual void read(const std::string& url, const State& state, std::uint64_t begin,
                    std::optional<std::uint64_t> end,
                    const std::function<void(std::string_view)>& take) = 0;

  /// A copy of a shard on the local disk. The file may be removed when this object is destroyed.
  struct Copy {
    std::string path;
    std::shared_ptr<void> hold;
  };
  /// True if copy() makes copies. In that case whole shards are fetched.
  virtual bool makes_copies() const { return false; }
  /// Makes a local copy of a shard. Returns nullopt if this implementation makes no copies. Shards
  /// are then read in one pass, and nothing is stored.
  virtual std::optional<Copy> copy(const std::string& url, const State& state) = 0;
  /// Called after the copy at `path` of a compressed shard was read to its end. The implementation
  /// may now store the shard's expanded bytes.
  virtual void keep_expanded(const std::string& url, const State& state, const std::string& path,
                             Compression compression, std::uint64_t expanded_bytes) = 0;
};

/// Wraps `remote` so that each shard's state is requested once and then reused. If `remote` already
/// does so, returns `remote` itself. This call requests the states of the remote URLs in `shards`,
/// up to kAskedAtOnce concurrently, until a server fails. Other states are requested when they are
/// needed. If a request fails, each later use of that state throws the same error.
/// Errors: Cancelled.
SHARDWISE_EXPORT RemoteAccess remembering_states(RemoteAccess remote,
                                                 std::span<const std::string> shards);

}  // namespace shardwise::detail

namespace shardwise {
using detail::remembering_states;
using detail::RemoteShards;
}  // namespace shardwise
