#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// The operations that a Loader needs from the ranks of a run. shardwise::libtorch has an
/// implementation for LibTorch's process groups. For MPI or another library, derive from this
/// class.
///
/// add() and gather() are collective: every rank calls them in the same order.
/// Threads: a loader calls it from one thread.
class SHARDWISE_EXPORT Reducer {
 public:
  virtual ~Reducer();

  [[nodiscard]] virtual std::uint64_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t world_size() const noexcept = 0;
  /// The rank of this process among the ranks of its node, which share a shard cache.
  [[nodiscard]] virtual std::uint64_t local_rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t local_world_size() const noexcept = 0;

  /// Replaces each word by its sum over all ranks, modulo 2^64. Errors: may throw anything.
  virtual void add(std::span<std::int64_t> words) = 0;
  /// Returns the bytes of all ranks, ordered by rank. The default implementation calls add() twice.
  [[nodiscard]] virtual std::string gather(std::string_view bytes);

 protected:
  Reducer() = default;
  Reducer(const Reducer&) = default;
  Reducer& operator=(const Reducer&) = default;
};

/// Returns a reducer for a process alone: rank 0 of 1.
SHARDWISE_EXPORT std::shared_ptr<Reducer> single_process();

}  // namespace shardwise
