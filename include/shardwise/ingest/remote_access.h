#pragma once

#include <memory>

namespace shardwise {

namespace detail {
class RemoteShards;
}  // namespace detail

/// Shared access to remote shards and descriptors, for building and verifying indexes.
/// make_remote_access() makes it. If it is null, a remote file is an error.
using RemoteAccess = std::shared_ptr<detail::RemoteShards>;

}  // namespace shardwise
