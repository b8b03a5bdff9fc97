#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Reuses the memory of batches: the kernel takes longer to supply a fresh page than a thread takes
/// to write a row of pixels.
///
/// Threads: internally synchronised.
/// Lifetime: a block may outlive the pool, and may be returned by any thread.
class SHARDWISE_EXPORT BufferPool {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// @param memory     source of the blocks; nullptr means new and delete.
  /// @param max_spare  limit of blocks kept for reuse.
  BufferPool(std::shared_ptr<std::pmr::memory_resource> memory, std::size_t max_spare);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Returns a block of at least `size` bytes, aligned to kAlignment; its contents are unspecified.
  /// The block returns to the pool when the last copy of the pointer is destroyed.
  /// Errors: std::bad_alloc, or what the memory resource throws.
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t size);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace shardwise::detail
