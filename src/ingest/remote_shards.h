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

/// Requests at once where most of the time is spent waiting for the network.
inline constexpr unsigned kAskedAtOnce = 16;

/// Access to shards that are no local files, for building and verifying indexes. The standard
/// implementation is made by make_remote_access() of data/make_remote_access.h.
///
/// Threads: all calls are safe concurrently.
/// Errors, of every call that names a shard: NotFound (its source has none of that name:
///   `drop_missing` leaves it out), StaleIndex (it is another than `state` says), Cancelled, and
///   whatever prevents fetching it; the text names the URL.
class SHARDWISE_EXPORT RemoteShards {
 public:
  virtual ~RemoteShards();

  /// True if pipe: URLs that a user gives are to be run. Those in descriptors never are.
  virtual bool runs_commands() const { return false; }

  /// The URLs of all files whose URL begins with `url`, bytewise sorted.
  /// Errors: also Unsupported, where the scheme cannot list; so it is if this is not overridden.
  virtual std::vector<std::string> list(const std::string& url);

  /// The properties of a shard that are known before it is read.
  struct State {
    std::optional<std::uint64_t> size_bytes = {};
    std::string validator = {};  ///< changes when the shard does; empty: nothing is known
    bool has_ranges = false;     ///< parts can be asked for
  };
  virtual State state(const std::string& url) = 0;

  /// Passes the bytes from `begin` to `end`, or to the end of the shard, to `take`, in order. They
  /// are of the shard that has state's validator. An exception from `take` ends the reading.
  virtual void read(const std::string& url, const State& state, std::uint64_t begin,
                    std::optional<std::uint64_t> end,
                    const std::function<void(std::string_view)>& take) = 0;

  /// A copy of a shard on the disk, which stays while this lives.
  struct Copy {
    std::string path;
    std::shared_ptr<void> hold;
  };
  /// True if copy() makes copies: then whole shards are fetched.
  virtual bool makes_copies() const { return false; }
  /// Makes a local copy of a shard. Returns nothing if shards are not to be copied: then they are
  /// read in one pass, and nothing is kept.
  virtual std::optional<Copy> copy(const std::string& url, const State& state) = 0;
  /// Called when a compressed shard, whose copy lies at `path`, was read to its end: its expanded
  /// bytes may be kept now.
  virtual void keep_expanded(const std::string& url, const State& state, const std::string& path,
                             Compression compression, std::uint64_t expanded_bytes) = 0;
};

/// Wraps `remote` so that each shard's state is asked for once and then remembered: for one piece
/// of work that looks at its shards several times. The states of the remote ones among `shards` are
/// asked for now, kAskedAtOnce at a time, until a server fails. A state that could not be had is an
/// error when it is wanted, the same each time; what was not asked for now is asked for then.
/// If `remote` remembers already, it is returned. Errors: Cancelled.
SHARDWISE_EXPORT RemoteAccess remembering_states(RemoteAccess remote,
                                                 std::span<const std::string> shards);

}  // namespace shardwise::detail

namespace shardwise {
using detail::remembering_states;
using detail::RemoteShards;
}  // namespace shardwise
