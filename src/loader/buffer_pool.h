#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Memory of batches, used again from batch to batch: a fresh page costs the kernel more than a row
/// of pixels costs to write.
///
/// Threads: internally synchronised. What take() gave may outlive the pool, and comes back from any
/// thread.
class SHARDWISE_EXPORT BufferPool {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// @param memory     where blocks come from; none: new and delete.
  /// @param max_spare  blocks kept for later, at most.
  BufferPool(std::shared_ptr<std::pmr::memory_resource> memory, std::size_t max_spare);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// A block of at least `size` bytes, aligned to kAlignment; what it holds is unspecified. It
  /// comes back when the last copy of the pointer is gone.
  /// Errors: std::bad_alloc, or what the memory resource throws.
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t size);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace shardwise::detail
