#include "loader/buffer_pool.h"

#include <utility>
#include <vector>

#include "base/fork.h"

namespace shardwise::detail {
namespace {

/// A request reuses a spare block only if it needs at least 1 / kLeastPart of the block's bytes.
/// Small batches thus do not occupy the memory of large ones.
constexpr std::size_t kLeastPart = 4;
/// Rounds a size up to a multiple of 2^k / 8, where 2^k is the largest power of two up to the size.
/// Ragged columns request blocks of nearly equal sizes; after rounding, most are equal and can be
/// reused.
std::size_t rounded(std::size_t size) {
  constexpr std::size_t kLeast = 4096;
  if (size <= kLeast) return kLeast;
  std::size_t power = kLeast;
  while (power <= size / 2) power *= 2;
  const std::size_t step = power / 8;
  return (size + step - 1) / step * step;
}

struct Block {
  std::byte* data = nullptr;
  std::size_t size = 0;
};

}  // namespace

struct BufferPool::Core {
  Core(std::shared_ptr<std::pmr::memory_resource> from, std::size_t most)
      : memory(std::move(from)), max_spare(most) {
    spare.reserve(most);
  }
  std::pmr::memory_resource& resource() const noexcept {
    return memory ? *memory : *std::pmr::new_delete_resource();
  }
  void free(const Block& block) noexcept {
    resource().deallocate(block.data, block.size, kAlignment);
  }

  /// Returns a spare block that fits, else a block without data.
  Block find(std::size_t size) {
    const Lock lock(mutex);
    auto best = spare.end();
    for (auto it = spare.begin(); it != spare.end(); ++it) {
      const bool fits = it->size >= size && it->size / kLeastPart <= size;
      if (fits && (best == spare.end() || it->size < best->size)) best = it;
    }
    if (best == spare.end()) return {};
    const Block found = *best;
    *best = spare.back();
    spare.pop_back();
    return found;
  }

  /// Keeps a block for reuse. Frees the block kept longest if there are too many.
  void give_back(const Block& block) noexcept {
    Block dropped = block;
    {
      const Lock lock(mutex);
      if (max_spare > 0 && !closed) {
        dropped = {};
        if (spare.size() == max_spare) {
          dropped = spare.front();
          spare.erase(spare.begin());
        }
        spare.push_back(block);
      }
    }
    if (dropped.data != nullptr) free(dropped);
  }

  /// Frees the kept blocks. Blocks returned later are freed at once.
  void close() noexcept {
    std::vector<Block> dropped;
    {
      const Lock lock(mutex);
      closed = true;
      dropped.swap(spare);
    }
    for (const Block& block : dropped) free(block);
  }

  const std::shared_ptr<std::pmr::memory_resource> memory;
  const std::size_t max_spare;
  Mutex mutex;
  bool closed SHARDWISE_GUARDED_BY(mutex) = false;
  std::vector<Block> spare SHARDWISE_GUARDED_BY(mutex);
};

BufferPool::BufferPool(std::shared_ptr<std::pmr::memory_resource> memory, std::size_t max_spare)
    : core_(std::make_shared<Core>(std::move(memory), max_spare)) {}

BufferPool::~BufferPool() { core_->close(); }

std::shared_ptr<std::byte> BufferPool::take(std::size_t size) {
  const std::size_t wanted = rounded(size);
  Block block = core_->find(wanted);
  if (block.data == nullptr) {
    block = {static_cast<std::byte*>(core_->resource().allocate(wanted, kAlignment)), wanted};
  }
  const auto give_back = [core = core_, block](std::byte*) { core->give_back(block); };
  return {block.data, give_back};  // if this throws, it calls give_back
}

}  // namespace shardwise::detail
