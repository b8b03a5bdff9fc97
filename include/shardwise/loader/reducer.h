#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// How the ranks of a run agree: all that a Loader asks of a process group. One for LibTorch's
/// process groups comes with shardwise::libtorch; for MPI or another library write one.
///
/// All methods but the numbers are collective: every rank calls them, in the same order.
/// Threads: one, the loader's.
class SHARDWISE_EXPORT Reducer {
 public:
  virtual ~Reducer();

  [[nodiscard]] virtual std::uint64_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t world_size() const noexcept = 0;
  /// The same among the ranks of this node, which share its shard cache.
  [[nodiscard]] virtual std::uint64_t local_rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t local_world_size() const noexcept = 0;

  /// Replaces each word by its sum over all ranks, modulo 2^64. Errors: as it likes.
  virtual void add(std::span<std::int64_t> words) = 0;
  /// The bytes of all ranks, by rank. As it comes: two calls of add().
  [[nodiscard]] virtual std::string gather(std::string_view bytes);

 protected:
  Reducer() = default;
  Reducer(const Reducer&) = default;
  Reducer& operator=(const Reducer&) = default;
};

/// Of a process alone, one rank of one.
SHARDWISE_EXPORT std::shared_ptr<Reducer> single_process();

}  // namespace shardwise
