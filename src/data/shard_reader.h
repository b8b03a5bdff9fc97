#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/fork.h"
#include "data/open_shard.h"
#include "shardwise/base/error.h"
#include "shardwise/data/sample.h"
#include "storage/shard_pool.h"

namespace shardwise::detail {

/// A shard's open file.
struct ShardFile {
  File file;
  FileIdentity identity;

  std::uint64_t size_bytes() const noexcept { return 0; }  // not mapped
  bool is_costly() const noexcept { return false; }
};

/// Reads samples of local shards that are not mapped.
///
/// Keeps a limited number of open files. A file is in use only during a read, so the limit does not
/// depend on how many samples and shards the caller holds. A sample with fields in parts keeps its
/// file open.
///
/// Threads: internally synchronised.
class ShardReader {
 public:
  /// @param max_files  maximum number of open files; at most a quarter of the process's limit is
  ///   used.
  ShardReader(std::shared_ptr<const Index> index, std::size_t max_files);

  /// A smaller field takes one read, even if the caller needs only parts of it.
  static constexpr std::uint64_t kMinPartialBytes = std::uint64_t{1} << 20;

  /// Reads the bytes of a sample of shard `number`. This takes one read, or several if the gaps
  /// between its members are large.
  /// @param in_parts  names of fields that the caller reads in parts; they are not read now. The
  ///   file stays open while the sample lives.
  /// Errors: NotFound, NoDescriptor; StaleIndex if the file is not the indexed one or has changed;
  ///   CorruptIndex; kIo.
  std::shared_ptr<const OwnBytes> read(const Sample& sample, std::uint64_t number,
                                       std::span<const std::string> in_parts = {});

  /// Runs `open`. If no descriptor is free, closes an idle file and retries, as long as there are
  /// idle files.
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
  Files& files();

  const std::shared_ptr<const Index> index_;
  const std::size_t max_files_;
  Mutex mutex_;
  // Null until needed, because a dataset that maps its shards does not use it.
  std::unique_ptr<Files> files_ SHARDWISE_GUARDED_BY(mutex_);
  std::atomic<Files*> made_{nullptr};
};

}  // namespace shardwise::detail
