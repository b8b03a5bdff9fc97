#pragma once

#include <cstdint>
#include <memory>

namespace shardwise::libtorch::detail {

/// A TCPStore that listens, at a port the kernel chose, while it lives; nullptr for the only rank
/// of a build that has no stores.
struct StoreServer {
  std::shared_ptr<void> store;
  std::uint16_t port = 0;
};

/// Errors: kDistributed; in a build without stores if there is more than one rank.
StoreServer start_store_server(int num_ranks);

}  // namespace shardwise::libtorch::detail
