#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/order/skip_list.h"

namespace shardwise {

/// The largest number of samples in any order.
inline constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 62;

/// First sample of each shard, then the number of samples: shards + 1 ascending numbers, the first
/// 0. Shared and immutable, so that an index and all orders over it hold it once. Shards may be
/// empty.
using ShardOffsets = std::shared_ptr<const std::vector<std::uint64_t>>;

// The defaults of the library, of the command line and of shardwise-train alike.

/// Samples in a chunk.
inline constexpr std::uint64_t kDefaultChunkSize = 1000;
/// Chunks that are mixed together. A window should span classes that lie one after another: with
/// 1.28 M samples sorted by 1,000 classes, 256 samples show 2 of them at window 1, 88 at window 64.
inline constexpr std::uint64_t kDefaultWindow = 64;
/// Shards that are mixed together. Each of them has to be at hand while its window is read.
inline constexpr std::uint64_t kDefaultShardWindow = 8;

/// Ranges of `chunk_size` samples in a random order, and the samples of `window` of them together
/// in a random order. Reads shards piece by piece, so few of them are in use at a time.
struct Chunked {
  std::uint64_t chunk_size = kDefaultChunkSize;  ///< samples
  std::uint64_t window = kDefaultWindow;         ///< chunks mixed together
  /// Moves the borders of the chunks in each epoch, so that neighbours do not stay together. Off by
  /// default, since a shard cache works best if borders of chunks lie on borders of shards.
  bool phase = false;

  friend bool operator==(const Chunked&, const Chunked&) = default;
};

/// As Chunked, with whole shards as chunks. Memory: 16 bytes a shard.
struct Sharded {
  std::uint64_t window = kDefaultShardWindow;  ///< shards mixed together

  friend bool operator==(const Sharded&, const Sharded&) = default;
};

/// Sample 0, 1, 2 ...: for evaluation.
struct Sequential {
  friend bool operator==(const Sequential&, const Sequential&) = default;
};

/// Draws with replacement; NOT exact. docs/formats/order.md says how.
struct Resampled {
  /// The unit that one draw with replacement takes.
  enum class Unit : std::uint8_t { kSample, kShard };

  Unit unit = Unit::kSample;
  /// The name of a metadata column with the weight of each sample; empty: all alike. By sample
  /// only.
  std::string weights{};

  friend bool operator==(const Resampled&, const Resampled&) = default;
};

/// The order of Python wids, bit for bit. docs/formats/wids-order.md specifies it.
struct Wids {
  /// 0: wids' own default, 1,000,000 with more than one rank and 2,000 with one.
  std::uint64_t chunk_size = 0;
  bool shuffle = true;
  bool shufflefirst = false;  ///< also permute the chunks of epoch 0

  friend bool operator==(const Wids&, const Wids&) = default;
};

/// Several data sets mixed by weight, each in exact epochs of its own (docs/formats/order.md).
struct Mixture {
  /// One data set of a mixture.
  struct Part {
    std::uint64_t num_samples = 0;
    double weight = 1;  ///< any number >= 0; only the ratios count. 0: never drawn
    std::variant<Chunked, Sharded, Sequential> kind = Chunked{};

    friend bool operator==(const Part&, const Part&) = default;
  };

  std::vector<Part> parts;

  friend bool operator==(const Mixture&, const Mixture&) = default;
};

using OrderKind = std::variant<Chunked, Sharded, Sequential, Resampled, Wids, Mixture>;

/// "chunked", "sharded", "sequential", "resampled", "wids", "mixture".
SHARDWISE_EXPORT std::string_view name_of(const OrderKind& kind) noexcept;
/// The kind of that name with its defaults; all but "mixture".
/// Errors: InvalidArgument, with the valid names.
SHARDWISE_EXPORT OrderKind parse_order_kind(std::string_view name);

/// An order: which sample comes when, whichever rank reads it. A value; the same one on every rank.
/// RankOptions and the epoch say where a rank stands in it. docs/formats/order.md specifies the
/// orders.
///
///     Order{.seed = 17}
///     Order{.seed = 17, .kind = Sharded{.window = 4}, .tail = Order::Tail::kDrop}
///
/// An epoch's samples come at positions 0, 1, 2 ..., counted over all ranks together; position p of
/// an epoch that is read from its beginning goes to rank p mod world_size.
struct Order {
  /// The policy for the last samples, which do not fill a whole row of ranks.
  enum class Tail : std::uint8_t {
    kExact,  ///< each comes once; the first ranks get one more than the others
    kDrop,   ///< the last samples are left out; all ranks get the same number
    /// The epoch's first samples that are not left out by then come again at its end; all ranks get
    /// the same number.
    kPad,
  };

  std::uint64_t seed = 0;
  OrderKind kind = Chunked{};
  /// Contiguous segments of the order that ranks read side by side. With 1 all ranks walk through
  /// the same chunks together, and any number of ranks may go on; with as many as there are nodes,
  /// each node has shards of its own, if ranks are numbered round the nodes. It divides the number
  /// of ranks, or is a multiple of it.
  std::uint64_t streams = 1;
  Tail tail = Tail::kExact;
  /// Deals out the samples of each step (batch_size on each rank) so that all ranks get near-equal
  /// bytes: for samples of very different sizes, where all ranks wait for the one with the largest.
  /// Every rank deals for all of them, at about 15 ns a sample of the whole step.
  bool balance_bytes = false;
  /// Samples in an epoch, of all ranks together; 0: one pass over the data (for resampled and
  /// mixture: as many as there are samples). An exact order cuts its passes into epochs of this
  /// size: each sample still comes once in each pass. It goes with Tail::kExact only.
  std::uint64_t epoch_size = 0;
  /// Left out on purpose.
  SkipList skip{};

  friend bool operator==(const Order&, const Order&) = default;
};

/// "exact", "drop", "pad".
SHARDWISE_EXPORT std::string_view tail_name(Order::Tail tail) noexcept;
/// Errors: InvalidArgument, with the valid names.
SHARDWISE_EXPORT Order::Tail parse_tail(std::string_view name);

/// The place of a rank among the others. None of it is part of the order: a run may go on with
/// another number of ranks and another batch size, and no sample is lost or repeated.
struct RankOptions {
  /// Ranks [first, first + count): those that share a cache, as the ranks of one node do.
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t count = 1;
  };

  std::uint64_t rank = 0;
  std::uint64_t world_size = 1;
  std::uint64_t batch_size = 1;  ///< samples of a step on each rank
  /// Samples of a step on all ranks together, instead of batch_size; 0: that counts. It need not
  /// divide by the number of ranks: in each step other ranks then have one sample more.
  std::uint64_t global_batch_size = 0;
  /// Neighbouring ranks that must see the same samples, as tensor and sequence parallel groups do:
  /// ranks 0 to replicas - 1 get the same, then the next ones. It divides world_size.
  std::uint64_t replicas = 1;
};

/// The size in bytes of a sample, as an index knows it. Called from the sampler's thread.
using SampleBytes = std::function<std::uint64_t(std::uint64_t sample)>;

/// The samples that an order is made over: their number, and what the data set knows of them. Made
/// from a Dataset, or from a number alone where nothing else matters.
class SHARDWISE_EXPORT SampleSet {
 public:
  /// Errors: InvalidArgument if `n` is negative.
  template <std::integral Integer>
  SampleSet(Integer n) : size_(static_cast<std::uint64_t>(n)) {
    if constexpr (std::signed_integral<Integer>) {
      if (n < 0) throw_negative(n);
    }
  }
  /// Anything like a Dataset. Cost: nothing is read before an order needs it.
  template <class Data>
  requires requires(const Data& data, const std::string& column) {
    { data.size() } -> std::convertible_to<std::uint64_t>;
    { data.fingerprint() } -> std::convertible_to<Hash128>;
    { data.shard_starts() } -> std::convertible_to<std::vector<std::uint64_t>>;
    { data.sample_bytes() } -> std::convertible_to<SampleBytes>;
    { data.numbers(column) } -> std::convertible_to<std::vector<double>>;
  }
  SampleSet(const Data& data)
      : size_(data.size()),
        fingerprint_(data.fingerprint()),
        make_starts_([data] {
          return std::make_shared<const std::vector<std::uint64_t>>(data.shard_starts());
        }),
        make_bytes_([data] { return SampleBytes(data.sample_bytes()); }),
        make_column_([data](const std::string& column) { return data.numbers(column); }) {}

  /// Returns these samples with other shards, sizes, or another fingerprint.
  [[nodiscard]] SampleSet with_shards(ShardOffsets starts) const;
  [[nodiscard]] SampleSet with_bytes(SampleBytes bytes) const;
  [[nodiscard]] SampleSet with_fingerprint(Hash128 fingerprint) const;
  [[nodiscard]] SampleSet with_column(
      std::function<std::vector<double>(const std::string&)> column) const;
  /// Samples in shards of these lengths. Errors: InvalidArgument as shard_offsets_from_lengths.
  [[nodiscard]] static SampleSet of_shards(std::span<const std::uint64_t> lengths);

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] const Hash128& fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] bool knows_shards() const noexcept { return make_starts_ != nullptr; }
  /// Errors (all three): InvalidArgument if the shards, sizes or columns are not known.
  [[nodiscard]] ShardOffsets shard_starts() const;
  [[nodiscard]] SampleBytes sample_bytes() const;
  [[nodiscard]] std::vector<double> column(const std::string& name) const;

 private:
  [[noreturn]] static void throw_negative(std::int64_t n);

  std::uint64_t size_;
  Hash128 fingerprint_{};
  std::function<ShardOffsets()> make_starts_;
  std::function<SampleBytes()> make_bytes_;
  std::function<std::vector<double>(const std::string&)> make_column_;
};

}  // namespace shardwise
