#pragma once

#include <string>

#include "libtorch/rendezvous/wire.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns this machine's host name, or "unknown" if the system reports none.
SHARDWISE_EXPORT std::string own_host_name();

/// Returns the numeric address at which other machines most likely reach this one. It is not
/// tested. Tries in this order:
/// - the network interface that GLOO_SOCKET_IFNAME names;
/// - the local address of the route to MASTER_ADDR;
/// - the address of this machine's host name;
/// - a network interface that is up;
/// - "127.0.0.1".
///
/// Cost: may wait for the system's resolver.
SHARDWISE_EXPORT std::string own_address();

/// Returns true if `host`, a name or a numeric address, is an address of this machine, so that a
/// socket can be bound to it.
/// Cost: may wait for the system's resolver.
SHARDWISE_EXPORT bool is_own_address(const std::string& host);

/// Returns the numeric local address of a connection; empty if the system does not report it.
SHARDWISE_EXPORT std::string address_of(const Socket& socket);

/// Identifies this machine's current boot and its network interfaces. Processes with equal texts
/// reach each other at 127.0.0.1. Empty if unknown.
SHARDWISE_EXPORT std::string own_network();

}  // namespace shardwise::detail

namespace shardwise {
using detail::own_address;
using detail::own_host_name;
using detail::own_network;
}  // namespace shardwise
