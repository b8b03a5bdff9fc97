#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/progress.h"
#include "shardwise/data/dataset.h"

namespace shardwise {

/// The steps of repack(), for callers that write the new shards themselves.
/// Threads: const functions are safe concurrently.
class SHARDWISE_EXPORT Repacking {
 public:
  struct Options {
    /// Largest number of samples in a new shard.
    std::uint64_t max_samples = 1000;
    /// Largest size of a new shard; see ShardWriter::Options::max_bytes.
    std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
    /// Seed of a random permutation of all samples. Empty means that they keep their order.
    std::optional<std::uint64_t> shuffle = {};
    /// Beginning of the names of the new shards, without a folder.
    std::string prefix = "shard-";
    /// Path of the new index. Empty means `shards.idx` in the folder of the new shards.
    std::string index = {};
    /// Number of threads that copy shards. 0 means the calling thread only; empty means one per
    /// core.
    std::optional<unsigned> threads = {};
    /// Remove the new shards of an earlier call in this folder, complete or not, and begin again.
    bool restart = false;
    /// Count the shards, and write nothing.
    bool dry_run = false;
    /// Called after each new shard with the numbers of samples and shards. Shards that an
    /// interrupted call has written count as done.
    ProgressCallback progress = {};
    CancelToken cancel = {};
  };

  struct Report {
    std::uint64_t shards = 0;          ///< new shards
    std::uint64_t shards_resumed = 0;  ///< new shards that an interrupted call had written
    std::uint64_t samples = 0;
    std::uint64_t shard_bytes = 0;
    std::string index;  ///< path of the new index
  };

  /// Locks the folder, and finds the shards that an interrupted call has written.
  /// @param function  names the change that the caller makes to samples. Only a call with the same
  ///   name can continue an interrupted one.
  /// Errors: those of repack().
  Repacking(Dataset data, std::string directory, Options options, std::string_view function = {});
  ~Repacking();
  Repacking(Repacking&&) noexcept;
  Repacking& operator=(Repacking&&) noexcept;

  [[nodiscard]] std::uint64_t num_shards() const noexcept;
  [[nodiscard]] std::string path(std::uint64_t shard) const;
  [[nodiscard]] bool is_written(std::uint64_t shard) const;
  [[nodiscard]] std::uint64_t num_samples(std::uint64_t shard) const;
  /// The numbers of the samples of a new shard, in order.
  [[nodiscard]] std::vector<std::uint64_t> samples(std::uint64_t shard) const;
  /// Copies the samples of a new shard.
  void write(std::uint64_t shard) const;
  /// Builds the index of the new shards, and ends the work. With Options::dry_run, only returns the
  /// numbers of shards and samples.
  Report finish();
  /// Lets other calls use the folder. The destructor does so, too.
  void unlock() noexcept;
  /// Replaces Options::cancel.
  void set_cancel(CancelToken cancel);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes the samples of a dataset or view into new shards, and builds their index.
///
///     repack(data.where("cls < 10"), "small", {.max_bytes = 256 << 20, .shuffle = 1});
///
/// Keys, names of fields and bytes do not change. The new shards are not compressed. The new index
/// has the metadata columns of the old one. Equal data and options give equal shards, for any
/// number of threads.
///
/// Resume: a new shard appears under its name when it is complete. If a call is interrupted, the
///   next call with the same data and options continues. Meanwhile the folder contains a file
///   `repack.json`.
/// Cost: reads and writes each sample once. A shuffled call reads samples at random; remote shards
///   then need a cache.
/// Memory: one sample per thread, and 16 bytes per new shard.
/// Errors: those of Dataset::operator[], ShardWriter::write() and build_index(). Cancelled.
/// Errors: InvalidArgument if:
/// - the dataset is empty;
/// - two samples of one new shard have the same key;
/// - the folder contains shards with these names, and there is no interrupted call to continue;
/// - a file with such a name is a shard of the dataset;
/// - an interrupted call with other data or options used the folder;
/// - another process repacks into the folder.
SHARDWISE_EXPORT Repacking::Report repack(const Dataset& data, const std::string& directory,
                                          const Repacking::Options& options = {});

}  // namespace shardwise
