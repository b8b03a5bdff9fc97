#pragma once

#include <memory>

namespace shardwise {

namespace detail {
class RemoteShards;
}  // namespace detail

/// Access to the shards and descriptors that are no local files, for building and verifying
/// indexes; make_remote_access() makes it. Null: what is remote is an error. Whatever has one
/// shares it.
using RemoteAccess = std::shared_ptr<detail::RemoteShards>;

}  // namespace shardwise
