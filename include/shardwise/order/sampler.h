#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/epoch_order.h"
#include "shardwise/order/options.h"
#include "shardwise/order/partition.h"
#include "shardwise/order/resume.h"
#include "shardwise/order/skip_list.h"

namespace shardwise {

/// A number of samples: given as an integer, or taken from anything that has `size()`.
class SHARDWISE_EXPORT SampleCount {
 public:
  template <std::integral Integer>
  SampleCount(Integer n) : value_(static_cast<std::uint64_t>(n)) {
    if constexpr (std::signed_integral<Integer>) {
      if (n < 0) throw_negative(n);
    }
  }
  template <class Sized>
  requires(!std::integral<Sized>) && requires(const Sized& sized) {
    { sized.size() } -> std::convertible_to<std::uint64_t>;
  }
  SampleCount(const Sized& sized) : value_(static_cast<std::uint64_t>(sized.size())) {}

  std::uint64_t value() const noexcept { return value_; }

 private:
  [[noreturn]] static void throw_negative(std::int64_t n);

  std::uint64_t value_;
};

/// Where a sample is delivered.
struct Delivery {
  std::uint64_t rank = 0;
  std::uint64_t index = 0;  ///< among what that rank delivers in the epoch
  std::uint64_t slot = 0;   ///< global, numbered as if nothing were left out

  friend auto operator<=>(const Delivery&, const Delivery&) = default;
};

/// The sample numbers that one rank delivers in an epoch, in order: a sequence that can be walked,
/// entered anywhere, and asked what it holds where.
///
///     sampler.set_epoch(3);
///     for (std::uint64_t i : sampler) use(data[i]);
///
/// All samplers have this one base class, so a loader or an adapter needs to know only it. The call
/// through it fills up to 512 numbers at a time, so what is virtual costs nothing per sample.
///
/// Threads: one thread. clone() gives another thread its own.
/// Memory:  constant (about 5 KB), beside what a subclass says.
/// Cost:    about 20 ns a sample in sequence; at() about 200 ns; seek() and set_epoch() no more.
class SHARDWISE_EXPORT Sampler {
 public:
  /// A C++20 input iterator over what is left. The number it points at counts as delivered, so
  /// leaving a loop early leaves position() behind the last one used.
  class Iterator {
   public:
    using value_type = std::uint64_t;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator() = default;
    explicit Iterator(Sampler& sampler) : sampler_(&sampler) { ++*this; }
    std::uint64_t operator*() const noexcept { return value_; }
    Iterator& operator++() {
      if (!sampler_->take(value_)) sampler_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) noexcept {
      return it.sampler_ == nullptr;
    }

   private:
    Sampler* sampler_ = nullptr;
    std::uint64_t value_ = 0;
  };

  virtual ~Sampler();

  /// How many samples this rank delivers in the epoch. Always what is delivered.
  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t epoch() const noexcept { return epoch_; }
  std::uint64_t rank() const noexcept { return partition_.rank(); }
  std::uint64_t world_size() const noexcept { return partition_.world_size(); }

  /// Moves to the beginning of `epoch`. Nothing moves on by itself: the same epoch again is the
  /// same order again.
  void set_epoch(std::uint64_t epoch);
  /// Moves to the beginning of this epoch.
  void reset() { seek(0); }
  /// Moves to this rank's sample `index`, in [0, size()]. Errors: OutOfRange.
  void seek(std::uint64_t index);
  /// How many samples of this epoch come before the next one.
  std::uint64_t position() const noexcept { return buffer_first_ + cursor_; }

  /// This rank's sample `index`; moves nothing. Errors: OutOfRange.
  std::uint64_t at(std::uint64_t index) const;
  std::uint64_t operator[](std::uint64_t index) const { return at(index); }

  /// The next sample, or nothing at the end of the epoch.
  std::optional<std::uint64_t> next() {
    std::uint64_t sample = 0;
    if (!take(sample)) return std::nullopt;
    return sample;
  }
  /// Fills `batch` with the next samples; returns how many: fewer only at the end of the epoch.
  std::size_t next_batch(std::span<std::uint64_t> batch);

  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const noexcept { return {}; }

  /// How the epoch's slots are shared out; of kept slots where a skip list leaves some out.
  const Partition& partition() const noexcept { return partition_; }
  /// The slots that no skip list leaves out.
  const KeptSlots& kept() const noexcept { return kept_; }
  /// Steps of `batch_size` samples a rank until the end of the epoch from global slot `first`, the
  /// same number for all ranks. REQUIRES: batch_size > 0.
  std::uint64_t steps(std::uint64_t batch_size, std::uint64_t first = 0) const noexcept;
  /// Global slots consumed once all ranks took `num_steps` steps of `batch_size` after `first`:
  /// what a token should say. REQUIRES: batch_size > 0.
  std::uint64_t slots_after(std::uint64_t num_steps, std::uint64_t batch_size,
                            std::uint64_t first = 0) const noexcept;
  /// Global slots consumed if every rank took as many samples as this one since it began (at 0, or
  /// where it resumed). At the very end of an epoch ranks that have one sample less cannot know
  /// whether the others took theirs; slots_after() is exact there too.
  std::uint64_t slots_consumed() const noexcept;
  /// Goes on behind the first `slots` global slots of this epoch, whoever consumed them.
  void resume_at(std::uint64_t slots);

  /// Samples and slots left out. Setting it keeps the slots that were consumed.
  const SkipList& skip() const noexcept { return skip_; }
  /// Errors: InvalidArgument if this sampler cannot leave anything out (wids, resampled, mixture),
  /// or a sample does not exist.
  void set_skip(SkipList skip);

  const OrderSpec& spec() const noexcept { return spec_; }
  /// A token for `slots` consumed global slots; by default slots_consumed().
  ResumeToken token(Hash128 fingerprint, std::optional<std::uint64_t> slots = std::nullopt) const;
  /// Goes on where `token` stands: its epoch, its slots; its skip list is added to this one's.
  /// Errors: Mismatch if the token is of another data set or order; the sampler stays as it is.
  void resume(const ResumeToken& token, Hash128 fingerprint);

  /// All deliveries of `sample` in this epoch, on any rank: one; none if a tail or a skip list
  /// leaves it out; more only where padded. Cost: O(1), for wids a replay of the epoch. Errors:
  /// OutOfRange; InvalidArgument for a sampler that cannot tell (resampled).
  std::vector<Delivery> deliveries(std::uint64_t sample) const;

  /// What all ranks together have to deliver in this epoch. `all` may be kept from epoch to epoch.
  AuditExpectation expectation(Hash128 fingerprint) const;
  AuditExpectation expectation(Hash128 fingerprint, const AuditSum& all) const;

  /// The same order at the same epoch for another rank, at its beginning, sharing tables.
  std::unique_ptr<Sampler> for_rank(std::uint64_t rank) const;
  virtual std::unique_ptr<Sampler> clone() const = 0;

 protected:
  Sampler(OrderSpec spec, const OrderOptions& options);
  Sampler(const Sampler&) = default;
  Sampler& operator=(const Sampler&) = default;

  /// Makes what depends on epoch(), rank() and skip(), and calls set_slots(). Constructors of final
  /// classes call it themselves.
  virtual void prepare() = 0;
  /// out[i] = this rank's sample first + i. REQUIRES: all of them below size().
  virtual void evaluate(std::uint64_t first, std::span<std::uint64_t> out) const = 0;
  /// The slots that hold `sample`, as if nothing were left out, dropped or padded.
  virtual std::vector<std::uint64_t> slots_of(std::uint64_t sample) const = 0;
  virtual std::vector<Delivery> find_deliveries(std::uint64_t sample) const;
  /// Takes from or adds to an expectation of every sample once.
  virtual void expect_epoch(AuditExpectation& expectation) const = 0;
  virtual bool can_skip() const noexcept { return false; }

  /// Tells the base how many slots there are and which are kept.
  void set_slots(KeptSlots kept);
  void set_size(std::uint64_t size) noexcept { size_ = size; }
  OrderSpec& mutable_spec() noexcept { return spec_; }
  /// The kept slot from which this rank counts: 0, or where it resumed.
  std::uint64_t first_kept() const noexcept { return first_kept_; }

 private:
  static constexpr std::size_t kBufferSize = 512;
  static constexpr std::size_t kFirstFill = 1;  ///< so that the first sample comes at once

  bool take(std::uint64_t& sample) {
    if (cursor_ == filled_ && !refill()) return false;
    sample = buffer_[cursor_++];
    return true;
  }
  bool refill();
  void move_to(std::uint64_t index) noexcept;
  std::uint64_t raw_slots(std::uint64_t kept) const noexcept;

  OrderSpec spec_;
  std::uint64_t epoch_;
  SkipList skip_;
  Partition partition_;
  KeptSlots kept_{0};
  std::uint64_t size_ = 0;
  std::uint64_t first_kept_ = 0;
  std::uint64_t first_index_ = 0;  ///< of this rank at first_kept_

  std::uint64_t buffer_first_ = 0;
  std::size_t cursor_ = 0;
  std::size_t filled_ = 0;
  std::size_t next_fill_ = kFirstFill;
  std::array<std::uint64_t, kBufferSize> buffer_{};
};

/// A sampler whose global slots are positions of an order, shared out by Streams and Partition.
class SHARDWISE_EXPORT SlotSampler : public Sampler {
 protected:
  SlotSampler(OrderSpec spec, const OrderOptions& options, std::uint64_t num_positions);

  const Streams& streams() const noexcept { return streams_; }
  void set_positions(std::uint64_t num_positions) {
    streams_ = Streams(num_positions, streams_.count());
  }
  /// out[i] = the sample at position first + i * stride.
  virtual void fill(std::uint64_t first, std::uint64_t stride,
                    std::span<std::uint64_t> out) const = 0;
  void evaluate(std::uint64_t first, std::span<std::uint64_t> out) const override;
  /// out[i] = the sample in kept slot first + i * stride, padded slots included. REQUIRES: stride
  /// is 1 or world_size().
  void fill_kept(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const;
  /// out[i] = the sample in slot first + i * stride. REQUIRES: stride and the number of streams
  /// divide one another.
  void fill_slots(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const;

 private:
  Streams streams_;
};

/// The samplers over an EpochOrder: exact, elastic, O(1).
class SHARDWISE_EXPORT OrderedSampler : public SlotSampler {
 public:
  /// The order of this epoch, before it is shared out.
  const EpochOrder& order() const noexcept { return order_; }

 protected:
  OrderedSampler(SamplerKind kind, std::uint64_t n, ShardOffsets offsets,
                 const OrderOptions& options);

  void prepare() override;
  void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const override;
  std::vector<std::uint64_t> slots_of(std::uint64_t sample) const override;
  void expect_epoch(AuditExpectation& expectation) const override;
  bool can_skip() const noexcept override { return true; }

 private:
  EpochOrder make_order() const;

  ShardOffsets offsets_;
  std::uint64_t order_epoch_;
  EpochOrder order_;
};

/// Sample 0, 1, 2 ..., shared out over the ranks: for evaluation.
/// Errors (constructors of all samplers): InvalidArgument, saying what is valid.
class SHARDWISE_EXPORT SequentialSampler final : public OrderedSampler {
 public:
  explicit SequentialSampler(SampleCount n, const OrderOptions& options = {});
  std::unique_ptr<Sampler> clone() const override;
};

/// Ranges of `chunk_size` samples in a random order, and the samples of each, or of `window` of
/// them together, in a random order. Reads shards piece by piece, so few are open at a time.
class SHARDWISE_EXPORT ChunkedSampler final : public OrderedSampler {
 public:
  explicit ChunkedSampler(SampleCount n, const OrderOptions& options = {});
  std::unique_ptr<Sampler> clone() const override;
};

/// The name under which wids users look for it; with world_size 1 it is no different.
using DistributedChunkedSampler = ChunkedSampler;

/// The same with whole shards as chunks. Memory: 16 bytes a shard.
class SHARDWISE_EXPORT ShardedSampler final : public OrderedSampler {
 public:
  explicit ShardedSampler(ShardOffsets offsets, const OrderOptions& options = {});
  std::unique_ptr<Sampler> clone() const override;
};

}  // namespace shardwise
