#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/fork.h"
#include "data/open_shard.h"
#include "index/offset_table.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/error.h"
#include "shardwise/data/sample.h"
#include "shardwise/storage/fetcher.h"
#include "storage/shard_pool.h"

namespace shardwise::detail {

/// A shard's open file.
struct ShardFile {
  File file;
  FileIdentity identity;

  std::uint64_t size_bytes() const noexcept { return 0; }  // not mapped
  bool is_dear() const noexcept { return false; }
};

/// Reads samples of shards that are not mapped.
///
/// Keeps a limited number of open files. A file is in use only during a read, so the limit does not
/// depend on how many samples and shards the caller holds.
///
/// Threads: internally synchronised.
class ShardReader {
 public:
  /// @param max_files  maximum number of open files; at most a quarter of the process's limit is
  ///   used.
  /// @param fetchers   for samples of remote shards; null means the default fetchers.
  /// @param cancel     stops reads and fetches.
  ShardReader(std::shared_ptr<const Index> index, std::size_t max_files,
              std::shared_ptr<const Fetchers> fetchers, const CancelToken& cancel);

  /// Reads the bytes of `members`, which are the members of `sample` in shard `number`. This takes
  /// one read, or several if the gaps between members are large. For a remote shard it takes one or
  /// several requests instead, and the bytes are checked against the hashes of `segment`, if any.
  /// @param shard_bytes  size of the shard; no read extends beyond it.
  /// Errors: NotFound, NoDescriptor, FetchError; StaleIndex if the file is not the indexed one or
  ///   has changed; CorruptIndex; kIo.
  std::shared_ptr<const OwnBytes> read(const Sample& sample, std::uint64_t number,
                                       std::uint64_t shard_bytes, const SegmentView& segment,
                                       std::span<const MemberRecord> members);

  /// Throws StaleIndex if the first 512 bytes of a remote shard are not the indexed ones. They are
  /// fetched only once. If the index has hashes, which verify each sample, they are not fetched.
  /// Errors: as read().
  void require_first_block(const Index::Shard& info);

  /// True if the server of a remote shard says that it can send parts of it. The server is asked
  /// once.
  /// Errors: Cancelled.
  bool can_read_parts(const Index::Shard& info);

  /// Runs `open`. If no descriptor is free, closes an idle file and retries, as long as there is
  /// one.
  template <class Open>
  auto with_descriptor(Open&& open) {
    for (;;) {
      try {
        return open();
      } catch (const NoDescriptor&) {
        if (!files().evict()) throw;
      }
    }
  }

 private:
  using Files = ShardPool<ShardFile>;
  /// A part of the shard that is read by one read or request.
  struct Run {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };
  [[nodiscard]] static std::vector<Run> runs_of(std::span<const MemberRecord> members,
                                                std::vector<std::size_t>& starts);

  Files& files();
  void read_local(OwnBytes& to, const std::vector<Run>& runs, const Sample& sample,
                  std::uint64_t number);
  void fetch(OwnBytes& to, const std::vector<Run>& runs, std::uint64_t number);
  /// Fetches `run` of a remote shard into `to`.
  void fetch_run(const Index::Shard& info, const Run& run, char* to) const;

  const std::shared_ptr<const Index> index_;
  const std::size_t max_files_;
  const std::shared_ptr<const Fetchers> fetchers_;
  const CancelToken cancel_;
  Mutex mutex_;
  // Null until needed, because a dataset that maps its shards does not use it.
  std::unique_ptr<Files> files_ SHARDWISE_GUARDED_BY(mutex_);
  std::atomic<Files*> made_{nullptr};
  // Results of can_read_parts(), by shard.
  std::unordered_map<std::uint64_t, bool> gives_parts_ SHARDWISE_GUARDED_BY(mutex_);
  // Shards whose first 512 bytes were checked.
  std::unordered_set<std::uint64_t> known_first_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
