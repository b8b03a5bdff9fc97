#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/sample.h"
#include "shardwise/index/index.h"
#include "shardwise/storage/shard_pool.h"

namespace shardwise {

struct DatasetOptions {
  ShardPoolOptions pool = {};
};

/// The samples of an index, by number and by key, read in place.
///
/// A Dataset is a handle: copies share one index and one pool of mapped shards, and cost a
/// reference count. Threads: safe concurrently; threads take the place of worker processes. After
/// fork() the child may go on using it.
class SHARDWISE_EXPORT Dataset {
 public:
  /// Opens the index at `path`; a shard is mapped, and checked against the index, when it is first
  /// touched.
  /// Errors: as Index::open.
  static Dataset open(const std::string& path, const DatasetOptions& options = {});
  /// Over an index that is open already.
  explicit Dataset(std::shared_ptr<const Index> index, const DatasetOptions& options = {});

  std::uint64_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }

  /// The sample at `index`.
  /// @param index  in [0, size()), in the order of the shard list.
  /// Cost: O(1), under 100 ns when the shard is mapped; the first touch of a shard maps it and
  /// checks
  ///   its records.
  /// Errors: OutOfRange; StaleIndex (the shard changed since it was indexed); NotFound (it is
  /// gone);
  ///   CorruptIndex. The dataset stays usable.
  /// Source: numbering as Python wids ShardListDataset.__getitem__.
  Sample operator[](std::uint64_t index) const;

  /// The first sample with this key, or nothing. Errors: as operator[]. Cost: about a microsecond.
  std::optional<Sample> find(std::string_view key) const;
  /// The same; errors: NotFound.
  Sample get(std::string_view key) const;

  const Index& index() const noexcept;
  const Hash128& fingerprint() const noexcept;
  ShardPoolStats pool_stats() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardwise
