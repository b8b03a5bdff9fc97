#pragma once

#include <cstdint>
#include <memory>

namespace shardwise::libtorch::detail {

/// A TCPStore that listens, at a port the kernel chose, while it lives.
struct StoreServer {
  std::shared_ptr<void> store;
  std::uint16_t port = 0;
};

/// Errors: kDistributed.
StoreServer start_store_server();

}  // namespace shardwise::libtorch::detail
