#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/open_shard.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "storage/shard_handle.h"

namespace shardwise::detail {

struct JoinSide;

/// Asks the kernel to read samples' bytes into the page cache, without waiting for them.
///
/// If small samples are read in an order that is random only within parts of a shard, it requests
/// whole pieces of 128 KiB, once each. A disk reads these much faster than single samples.
///
/// Works only on mapped shards. A local shard is opened for this purpose if few other shards are
/// needed at the same time. A shard in a ShardCache is not opened. This class never fetches shards.
/// Threads: one.
class SHARDWISE_EXPORT PageRequest {
 public:
  /// @param fields  the fields that will be read; nullopt means all fields.
  PageRequest(Dataset data, std::optional<std::vector<std::string>> fields);

  /// Requests the bytes of these samples, and merges nearby ranges. Ignores failed requests,
  /// because the reader of the sample will get the error.
  /// @return  the number of bytes requested. Pieces that recent calls requested do not count.
  /// Errors: OutOfRange.
  /// Cost: one system call per range or per piece, and a look-up per piece.
  std::uint64_t send(std::span<const std::uint64_t> samples);
  /// Whether whole pieces are requested.
  [[nodiscard]] bool asks_whole() const noexcept { return asks_whole_; }
  /// Forgets what was requested, because the kernel may have evicted it.
  void forget();

 private:
  /// A range of bytes in a shard.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  /// The pieces of kPieceBytes that the last ranges were in. A piece's number includes its shard's.
  class RecentPieces {
   public:
    /// Returns whether the piece was requested as a whole, which the caller may change. Adds the
    /// piece if it is new.
    bool& at(std::uint64_t piece, bool& is_new);
    void clear();

   private:
    /// A window of the default order has as many pieces if a sample has 16 KB.
    static constexpr std::size_t kMaxPieces = 8192;

    std::unordered_map<std::uint64_t, bool> pieces_;
    std::vector<std::uint64_t> in_order_;  // a ring, whose oldest piece is at next_
    std::size_t next_ = 0;
  };

  [[nodiscard]] ShardHandle<OpenShard> open(std::uint64_t shard, bool may_open) const;
  void add_ranges(const OpenShard& shard, std::uint64_t number);
  [[nodiscard]] std::uint64_t send_ranges(std::uint64_t number, const OpenShard& shard);
  /// Notes the pieces of a range. If whole pieces are requested, requests those that were not yet,
  /// and returns their bytes.
  std::uint64_t send_pieces(std::uint64_t number, const OpenShard& shard, Range range);
  void decide();

  Dataset data_;
  std::optional<std::vector<std::string>> fields_;
  // The joined datasets that have some of fields_, and the requests for their samples.
  std::vector<std::pair<std::shared_ptr<const JoinSide>, PageRequest>> joined_;
  std::vector<std::uint64_t> numbers_;  // numbers of the samples in the index
  std::vector<std::uint32_t> wanted_;   // numbers of fields_ in the current shard
  std::vector<Range> ranges_;           // ranges in the current shard
  RecentPieces recent_;
  bool asks_whole_ = false;      // whether whole pieces are requested
  std::size_t num_seen_ = 0;     // pieces of ranges since the last decision on asks_whole_
  std::size_t num_repeats_ = 0;  // those that were recent
};

}  // namespace shardwise::detail
