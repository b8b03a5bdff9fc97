#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/field_sizes.h"
#include "data/open_shard.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "storage/shard_handle.h"
#include "storage/shard_pool.h"

namespace shardwise::detail {

/// Reads fields of many samples in runs, column by column, from mapped shards, without creating
/// Sample objects. It pins the shards, and while the caller uses one run, the CPU prefetches the
/// next run.
///
/// A field can be read if its shard is mapped, or can be mapped without a cache. For other fields
/// the caller needs a SampleCursor.
///
/// Lifetime: as for SampleCursor, at most one batch. It holds one shard of a cache at a time.
/// Threads: one.
class SHARDWISE_EXPORT FieldCursor {
 public:
  /// Maximum number of rows in a run.
  static constexpr std::size_t kMaxRun = 32;

  enum class Opening : std::uint8_t {
    kOpen,     ///< maps closed shards, if no cache is needed
    kOpenOnly  ///< reads only shards that are open already
  };

  /// @param columns  the places of each column's fields, found by FieldSizes; all columns have the
  ///   same number of places.
  /// REQUIRES: `data` and the places outlive this object.
  FieldCursor(const Dataset& data, std::vector<std::span<const FieldPlace>> columns,
              Opening opening);
  FieldCursor(const FieldCursor&) = delete;
  FieldCursor& operator=(const FieldCursor&) = delete;

  /// Moves to the next rows, and returns their number: 0 at the end, or if a field of the next row
  /// is missing or cannot be read.
  std::size_t next_run() noexcept;
  /// The fields of this run's rows in a column, in mapped shards. Valid until the next call of
  /// next_run(). Copy them with copy_mapped().
  [[nodiscard]] std::span<const std::string_view> fields(std::size_t column) const noexcept {
    return {now_.fields.data() + column * kMaxRun, now_.size};
  }
  /// True if none of the files that were read was modified. The fields must have been copied
  /// before.
  /// Cost: a stat(2) per held shard. Released shards were already checked when they were released.
  [[nodiscard]] bool are_unchanged();

 private:
  struct Held {
    ShardHandle<OpenShard> shard;
    std::uint64_t number = 0;
    std::uint64_t last_run = 0;  // number of the last run that uses the shard
  };
  /// The held shards of the dataset or of a joined dataset. Each shard has one possible place in
  /// `slots`.
  struct Source {
    ShardPool<OpenShard>* pool;
    bool opens;
    std::vector<Held> slots;
    Held* from_cache = nullptr;  // the one held shard of a cache; may be null
  };
  struct Run {
    std::vector<std::string_view> fields;  // kMaxRun of each column
    std::size_t size = 0;
  };

  void fill(Run& run) noexcept;
  [[nodiscard]] bool find(const FieldPlace& place, std::string_view& field) noexcept;
  [[nodiscard]] bool hold(Source& source, Held& slot, std::uint64_t shard) noexcept;
  [[nodiscard]] bool release(Held& held) noexcept;
  void prefetch(const Run& run) const noexcept;

  const std::vector<std::span<const FieldPlace>> columns_;
  std::vector<Source> sources_;
  std::size_t at_ = 0;          // first row that is in no run yet
  std::uint64_t num_runs_ = 1;  // number of the run being filled; now_ may be the run before
  bool are_released_unchanged_ = true;
  const bool checks_;
  Run now_;   // run that the caller uses
  Run next_;  // the run after now_
};

}  // namespace shardwise::detail
