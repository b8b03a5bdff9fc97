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

/// First sample of each shard, then the number of samples: shards + 1 ascending numbers, starting
/// with 0. Shards may be empty. The vector is shared and immutable, so an index and all its orders
/// use one copy.
using ShardOffsets = std::shared_ptr<const std::vector<std::uint64_t>>;

// Defaults of the library, the command line and shardwise-train.

/// Samples in a chunk.
inline constexpr std::uint64_t kDefaultChunkSize = 1000;
/// Chunks that are shuffled together. A window should span several classes if samples are sorted by
/// class. Example: 1.28 M samples are sorted by 1,000 classes. Then 256 consecutive samples of the
/// order cover 2 classes with window 1, and 88 classes with window 64.
inline constexpr std::uint64_t kDefaultWindow = 64;
/// Shards that are shuffled together. All shards of a window must be available while the window is
/// read.
inline constexpr std::uint64_t kDefaultShardWindow = 8;

/// Chunks of `chunk_size` consecutive samples, in random order. The samples of every `window`
/// chunks are shuffled together. Only the few shards that contain these chunks are in use at a
/// time.
struct Chunked {
  std::uint64_t chunk_size = kDefaultChunkSize;  ///< samples
  std::uint64_t window = kDefaultWindow;         ///< chunks shuffled together
  /// Shift the chunk borders in each epoch, so that the samples of a chunk change. It is off by
  /// default, because a shard cache works best if chunk borders coincide with shard borders.
  bool phase = false;

  friend bool operator==(const Chunked&, const Chunked&) = default;
};

/// Like Chunked, with whole shards as chunks. Memory: 16 bytes per shard.
struct Sharded {
  std::uint64_t window = kDefaultShardWindow;  ///< shards shuffled together

  friend bool operator==(const Sharded&, const Sharded&) = default;
};

/// Samples 0, 1, 2, ... Meant for evaluation.
struct Sequential {
  friend bool operator==(const Sequential&, const Sequential&) = default;
};

/// Draws with replacement; NOT exact. docs/formats/order.md specifies it.
struct Resampled {
  /// The unit of one draw.
  enum class Unit : std::uint8_t { kSample, kShard };

  Unit unit = Unit::kSample;
  /// A metadata column with the weight of each sample; empty means equal weights. Only for
  /// Unit::kSample.
  std::string weights{};

  friend bool operator==(const Resampled&, const Resampled&) = default;
};

/// The order of Python wids, bit for bit. docs/formats/wids-order.md specifies it.
struct Wids {
  /// Samples per chunk. 0 means wids' default: 1,000,000 with several ranks, 2,000 with one.
  std::uint64_t chunk_size = 0;
  bool shuffle = true;
  bool shufflefirst = false;  ///< permute the chunks of epoch 0, too

  friend bool operator==(const Wids&, const Wids&) = default;
};

/// Several data sets mixed by weight, each in its own exact epochs. The weights may change at
/// positions of the run; each data set then continues where it was. docs/formats/order.md specifies
/// it.
struct Mixture {
  /// One data set of a mixture.
  struct Part {
    std::uint64_t num_samples = 0;
    double weight = 1;  ///< at least 0; only ratios matter; a part with weight 0 is never drawn
    std::variant<Chunked, Sharded, Sequential> kind = Chunked{};

    friend bool operator==(const Part&, const Part&) = default;
  };

  /// The weights from a position of the run on.
  struct Change {
    /// A position over all ranks and epochs: epoch * samples per epoch + position in the epoch. It
    /// is above 0. It is rounded up to a multiple of 256.
    std::uint64_t from = 0;
    std::vector<double> weights;  ///< one for each part, as Part::weight

    friend bool operator==(const Change&, const Change&) = default;
  };

  std::vector<Part> parts;
  /// Changes of the weights, ascending. The weights of `parts` apply before the first one.
  std::vector<Change> schedule{};

  friend bool operator==(const Mixture&, const Mixture&) = default;
};

using OrderKind = std::variant<Chunked, Sharded, Sequential, Resampled, Wids, Mixture>;

/// Returns "chunked", "sharded", "sequential", "resampled", "wids" or "mixture".
SHARDWISE_EXPORT std::string_view name_of(const OrderKind& kind) noexcept;
/// Returns the kind with this name, with default options. Every name except "mixture" is valid.
/// Errors: InvalidArgument; the text lists the valid names.
SHARDWISE_EXPORT OrderKind parse_order_kind(std::string_view name);

/// An order determines the sample at each position of an epoch, over all ranks. It is a value,
/// equal on every rank. RankOptions determine which positions belong to a rank.
/// docs/formats/order.md specifies the orders.
///
///     Order{.seed = 17}
///     Order{.seed = 17, .kind = Sharded{.window = 4}, .tail = Order::Tail::kDrop}
///
/// The samples of an epoch have positions 0, 1, 2, ..., counted over all ranks. If an epoch is read
/// from its beginning, position p belongs to rank p mod world_size.
struct Order {
  /// The policy for the last samples of an epoch, if their number is not a multiple of the number
  /// of ranks.
  enum class Tail : std::uint8_t {
    kExact,  ///< each is delivered once; the first ranks get one sample more than the others
    kDrop,   ///< the last samples are left out; all ranks get the same number
    /// The first samples of the epoch, except skipped ones, are repeated at its end. All ranks get
    /// the same number.
    kPad,
  };

  std::uint64_t seed = 0;
  OrderKind kind = Chunked{};
  /// Number of contiguous segments of the order that are read in parallel. It must divide the
  /// number of ranks that get different samples, or be a multiple of this number. With one stream,
  /// all ranks read the same chunks together, and a run can continue with any number of ranks. With
  /// one stream per node, each node reads its own shards, if ranks are numbered round-robin over
  /// the nodes.
  std::uint64_t streams = 1;
  Tail tail = Tail::kExact;
  /// Distribute the samples of each step so that all ranks get nearly equal bytes. It helps if
  /// sample sizes vary widely and all ranks wait for the rank with the most bytes.
  /// Cost: every rank processes the samples of all ranks in the step.
  bool balance_bytes = false;
  /// Samples in an epoch, over all ranks. 0 means one pass over the data, or for resampled orders
  /// and mixtures the number of samples. If it is not 0, an exact order divides its passes into
  /// epochs of this size, and each sample still occurs once per pass. This requires Tail::kExact.
  std::uint64_t epoch_size = 0;
  /// Samples and positions to leave out.
  SkipList skip{};

  friend bool operator==(const Order&, const Order&) = default;
};

/// Returns "exact", "drop" or "pad".
SHARDWISE_EXPORT std::string_view tail_name(Order::Tail tail) noexcept;
/// Errors: InvalidArgument; the text lists the valid names.
SHARDWISE_EXPORT Order::Tail parse_tail(std::string_view name);

/// The rank of a process, and how samples are distributed over ranks. These options are not part of
/// the order: a run can continue with other values, and no sample is lost or repeated.
struct RankOptions {
  /// Ranks [first, first + count) that share a cache, e.g. the ranks of one node.
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t count = 1;
  };

  std::uint64_t rank = 0;
  std::uint64_t world_size = 1;
  std::uint64_t batch_size = 1;  ///< samples per step on each rank
  /// Samples per step over all ranks, instead of batch_size. 0 means: use batch_size. It need not
  /// be divisible by the number of ranks. If it is not, some ranks get one sample more; these ranks
  /// change from step to step.
  std::uint64_t global_batch_size = 0;
  /// Number of consecutive ranks that get the same samples, e.g. a tensor or sequence parallel
  /// group. Ranks 0 to replicas - 1 get the same samples, then the next group, and so on. It must
  /// divide world_size.
  std::uint64_t replicas = 1;
};

/// Returns the size in bytes of a sample, which the index stores. Called on the sampler's thread.
using SampleBytes = std::function<std::uint64_t(std::uint64_t sample)>;

/// The samples of an order: their number, and the shards, sizes and columns that an order may need.
/// It is made from a Dataset, or from a number if the order needs only the number.
class SHARDWISE_EXPORT SampleSet {
 public:
  /// Errors: InvalidArgument if `n` is negative.
  template <std::integral Integer>
  SampleSet(Integer n) : size_(static_cast<std::uint64_t>(n)) {
    if constexpr (std::signed_integral<Integer>) {
      if (n < 0) throw_negative(n);
    }
  }
  /// Accepts a Dataset or any class with these methods. Cost: `data` is read only when an order
  /// needs it.
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

  /// Each function returns a copy of this set with other shards, sizes, fingerprint or columns.
  [[nodiscard]] SampleSet with_shards(ShardOffsets starts) const;
  [[nodiscard]] SampleSet with_bytes(SampleBytes bytes) const;
  [[nodiscard]] SampleSet with_fingerprint(Hash128 fingerprint) const;
  [[nodiscard]] SampleSet with_column(
      std::function<std::vector<double>(const std::string&)> column) const;
  /// Returns the set of samples in shards of these lengths.
  /// Errors: InvalidArgument if there are more than kMaxSamples samples.
  [[nodiscard]] static SampleSet of_shards(std::span<const std::uint64_t> lengths);

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] const Hash128& fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] bool knows_shards() const noexcept { return make_starts_ != nullptr; }
  /// Errors of shard_starts(), sample_bytes() and column(): InvalidArgument if the shards, sizes or
  /// columns are unknown.
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
