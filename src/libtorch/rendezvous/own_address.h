#pragma once

#include <string>

#include "libtorch/rendezvous/wire.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// "unknown" if the system does not say.
SHARDWISE_EXPORT std::string own_host_name();

/// Where other machines most likely reach this one, in numbers: at the network interface that
/// GLOO_SOCKET_IFNAME names; else at the address from which MASTER_ADDR is reached; else at what
/// this machine's name stands for; else at an interface that is up. "127.0.0.1" if there is none.
/// Whether others do reach it has to be tried. Cost: looking up names takes what the system's
/// resolver takes.
SHARDWISE_EXPORT std::string own_address();

/// True if `host`, a name or an address in numbers, is an address of this machine: a socket can be
/// bound to it. Cost: as own_address().
SHARDWISE_EXPORT bool is_own_address(const std::string& host);

/// The address of this end of a connection, in numbers; empty if the system does not say.
SHARDWISE_EXPORT std::string address_of(const Socket& socket);

/// A text that is the same for processes that share a machine since its start, and its network
/// interfaces: these reach each other at 127.0.0.1. Empty if that is unknown.
SHARDWISE_EXPORT std::string own_network();

}  // namespace shardwise::detail

namespace shardwise {
using detail::own_address;
using detail::own_host_name;
using detail::own_network;
}  // namespace shardwise
