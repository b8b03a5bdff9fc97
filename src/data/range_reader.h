#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/fork.h"
#include "data/own_bytes.h"
#include "shardwise/base/cancel.h"
#include "shardwise/data/sample.h"
#include "shardwise/index/index.h"
#include "shardwise/storage/fetcher.h"

namespace shardwise::detail {

/// A sample to fetch, and its bytes.
struct RangedSample {
  Sample sample;
  SampleMemory memory;
  std::uint64_t num_missing = 0;  ///< number of bytes that have not arrived
  bool is_here = false;           ///< all bytes have arrived, and match the hashes of the index
};

/// Fetches samples of uncompressed remote shards by byte ranges.
/// Threads: internally synchronised.
class RangeReader {
 public:
  /// A longer range is fetched as several, so that several connections share it.
  static constexpr std::uint64_t kMaxRangeBytes = std::uint64_t{8} << 20;
  /// A smaller field is fetched as a whole, even if the caller needs only parts of it.
  static constexpr std::uint64_t kMinPartialBytes = kMaxRangeBytes;

  /// @param fetchers  null means the default fetchers.
  /// @param cancel    stops fetches.
  RangeReader(std::shared_ptr<const Index> index, std::shared_ptr<const Fetchers> fetchers,
              const CancelToken& cancel);

  /// Fetches one sample of shard `number`, with a request per run, and checks its bytes against the
  /// hashes of the index.
  /// @param in_parts  names of fields that the caller reads in parts. They are not fetched now,
  ///   unless the index has hashes, which are those of whole members.
  /// Errors: NotFound, FetchError, CorruptIndex, kIo; StaleIndex if the shard is not the indexed
  ///   one.
  std::shared_ptr<const OwnBytes> read(const Sample& sample, std::uint64_t number,
                                       std::span<const std::string> in_parts = {});
  /// Returns what read_many() needs to fetch the sample. Parameters and errors: as read().
  static RangedSample prepare(Sample sample, std::span<const std::string> in_parts = {});
  /// Fetches many samples with few requests: nearby samples of a shard are fetched as one range,
  /// and several ranges at a time. A sample that does not arrive at the first attempt, or differs
  /// from the index, is left for read().
  /// Errors: Cancelled.
  void read_many(std::span<RangedSample> samples);

  /// Throws StaleIndex if the first 512 bytes of a remote shard are not the indexed ones. Each
  /// thread fetches them at most once. Not needed if the index has hashes.
  /// Errors: as read().
  void require_first_block(const Index::Shard& info);
  /// Calls require_first_block() for many shards, with concurrent requests. A shard that fails is
  /// left for require_first_block().
  /// Errors: Cancelled.
  void check_first_blocks(std::span<const std::uint64_t> shards);

  /// True if the server of a remote shard says that it can send parts of it. The server is asked
  /// once.
  /// Errors: Cancelled.
  bool can_read_parts(const Index::Shard& info);

 private:
  class Parts;

  void fetch(const Index::Shard& info, const SampleMemory::Run& run) const;
  [[nodiscard]] std::shared_ptr<const MemberReader> parts_of(const Index::Shard& info) const;
  void check_first_block(const Index::Shard& info, std::string_view block);
  bool is_first_known(std::uint64_t shard);

  const std::shared_ptr<const Index> index_;
  const std::shared_ptr<const Fetchers> fetchers_;
  const CancelToken cancel_;
  Mutex mutex_;
  // Results of can_read_parts(), by shard.
  std::unordered_map<std::uint64_t, bool> gives_parts_ SHARDWISE_GUARDED_BY(mutex_);
  // Shards whose first 512 bytes were checked.
  std::unordered_set<std::uint64_t> known_first_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
