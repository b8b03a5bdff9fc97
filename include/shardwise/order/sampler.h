#pragma once

#include <array>
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
#include "shardwise/order/order.h"
#include "shardwise/order/resume.h"

namespace shardwise {

namespace detail {
struct SamplerAccess;
class SlotOrder;
struct Walk;
struct Dealt;
}  // namespace detail

/// The sample numbers that one rank delivers in an epoch, in order: a sequence that can be walked,
/// entered anywhere, and asked what it holds where.
///
///     sampler.set_epoch(3);
///     for (std::uint64_t i : sampler) use(data[i]);
///
/// A sampler covers an epoch from where it began: the epoch's beginning, or the point at which
/// resume() put it. size(), position(), at() and steps count from there.
///
/// All samplers have this one base class, so a loader or an adapter needs to know only it. The call
/// through it fills up to 512 numbers at a time, so what is virtual costs nothing per sample.
///
/// Threads: one thread. clone() gives another thread its own.
/// Memory:  constant (about 5 KB), beside what a kind of order says.
/// Cost:    about 20 ns a sample in sequence; at() and seek() some 200 ns. set_epoch() and resume()
///          the same, and 20 ns a shard for sharded orders, 300 ns a sample that is left out.
class SHARDWISE_EXPORT Sampler {
 public:
  /// Whether a run may go on with other data, or another order, than its token says.
  enum class Changes : std::uint8_t { kRefuse, kAllowAtEpochBorder };

  /// The samples of one rank in one step: an answer of explain_step().
  struct RankStep {
    std::uint64_t rank = 0;
    std::vector<std::uint64_t>
        samples;  ///< in order; fewer than a batch, or none, at an epoch's end

    friend bool operator==(const RankStep&, const RankStep&) = default;
  };

  /// Where a sample comes: an answer of when_sample().
  struct SampleTime {
    std::uint64_t rank = 0;
    std::uint64_t step = 0;      ///< from where the sampler began
    std::uint64_t place = 0;     ///< in the batch, from 0
    std::uint64_t position = 0;  ///< in the epoch, over all ranks

    friend bool operator==(const SampleTime&, const SampleTime&) = default;
  };

  /// A C++20 input iterator over what is left. The number it points at counts as delivered, so
  /// leaving a loop early leaves position() behind the last one used.
  class Iterator {
   public:
    using value_type = std::uint64_t;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator() = default;
    explicit Iterator(Sampler& sampler) : sampler_(&sampler) { ++*this; }
    [[nodiscard]] std::uint64_t operator*() const noexcept { return value_; }
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

  /// How many samples this rank delivers, from where the sampler began to the end of the epoch.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] std::uint64_t rank() const noexcept { return ranks_.rank; }
  [[nodiscard]] std::uint64_t world_size() const noexcept { return ranks_.world_size; }
  /// Samples of a step on this rank, at most.
  [[nodiscard]] std::uint64_t batch_size() const noexcept;
  [[nodiscard]] std::uint64_t replicas() const noexcept { return ranks_.replicas; }
  /// The fingerprint of the data set.
  [[nodiscard]] const Hash128& fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] std::uint64_t num_samples() const noexcept { return spec_.num_samples; }
  [[nodiscard]] const ResumeToken::OrderSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const Order& order() const noexcept { return spec_.order; }
  /// The samples and positions that are left out: by the order, and by the token that was resumed.
  [[nodiscard]] const SkipList& skip() const noexcept { return skip_; }

  /// Moves to the beginning of `epoch`. In the sampler's own epoch, unless its end was reached, it
  /// moves back to where the sampler began: where resume() put it, if that was called. So a loop
  /// over epochs may call it after resume(). Nothing moves on by itself: the same epoch again is
  /// the same order again. Errors: InvalidArgument if the order has no such epoch.
  void set_epoch(std::uint64_t epoch);
  /// Moves to the beginning of this epoch, also after resume().
  void reset();
  /// Moves to this rank's sample `index`, in [0, size()]. Errors: OutOfRange.
  void seek(std::uint64_t index);
  /// How many of its samples this rank has delivered.
  [[nodiscard]] std::uint64_t position() const noexcept { return buffer_first_ + cursor_; }

  /// This rank's sample `index`; moves nothing. Errors: OutOfRange.
  [[nodiscard]] std::uint64_t at(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t operator[](std::uint64_t index) const { return at(index); }
  /// The position in the epoch of this rank's sample `index`, counted over all ranks as if nothing
  /// were left out. A sample that is repeated to fill the last row has the position of its first
  /// delivery. Errors: OutOfRange.
  [[nodiscard]] std::uint64_t position_in_epoch(std::uint64_t index) const;

  /// The next sample, or nothing at the end of the epoch.
  std::optional<std::uint64_t> next() {
    std::uint64_t sample = 0;
    if (!take(sample)) return std::nullopt;
    return sample;
  }
  /// Fills `batch` with the next samples; returns how many: fewer only at the end of the epoch.
  /// If it throws, nothing has moved.
  std::size_t next_batch(std::span<std::uint64_t> batch);

  /// Errors: InvalidArgument if the end of the epoch was reached: set_epoch() goes on.
  Iterator begin();
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

  /// Steps of batch_size samples on each rank, or global_batch_size on all, from where the sampler
  /// began to the end of the epoch, the same number for all ranks: in the last one a rank may have
  /// less, or nothing.
  [[nodiscard]] std::uint64_t steps() const noexcept;
  /// This rank's first sample of a step: an index in [0, size()]; size() for steps() and after it.
  [[nodiscard]] std::uint64_t first_of_step(std::uint64_t step) const noexcept;
  /// The step to which this rank's sample `index` belongs.
  [[nodiscard]] std::uint64_t step_of(std::uint64_t index) const noexcept;

  /// A token for the samples that were delivered, if every rank took as many as this one. At the
  /// very end of an epoch, ranks that have fewer samples (one less; with wids many, or none) cannot
  /// know whether the others took theirs; token_after() is exact there too.
  /// Errors: InvalidArgument in the middle of a step whose bytes are balanced.
  [[nodiscard]] ResumeToken token() const;
  /// A token for `num_steps` steps of all ranks from where the sampler began.
  [[nodiscard]] ResumeToken token_after(std::uint64_t num_steps) const;
  /// Goes on where `token` stands, with any number of ranks and batch size. What this order's skip
  /// list has and the token's has not is left out from there on.
  /// With kAllowAtEpochBorder a token that stands at the beginning of an epoch may be of other data
  /// or another order; the former ones go into the token's history. Of other data the token's skip
  /// list is not taken over, since the numbers may mean other samples. Another order is refused if
  /// both orders are in the middle of a pass over the data there (mixtures, epoch_size): the rest
  /// of the pass would be lost.
  /// Errors: Mismatch, VersionMismatch; OutOfRange if the epoch has no such position; the sampler
  /// stays as it is.
  void resume(const ResumeToken& token, Changes changes = Changes::kRefuse);

  /// True if an epoch has each sample exactly once, but for what tail and skip list say. If not,
  /// an epoch can still be proven to be as ordered.
  [[nodiscard]] bool is_exact() const noexcept { return is_exact_; }
  /// The samples that all ranks together have to deliver in this epoch, from its very beginning.
  /// Cost: exact orders 2 ns a sample, other ones 20; `all`, the sum of each sample once, may be
  /// kept from epoch to epoch.
  [[nodiscard]] EpochAudit::Expectation expectation() const;
  [[nodiscard]] EpochAudit::Expectation expectation(const EpochAudit::Sum& all) const;
  /// The number of deliveries, over all ranks, before `position` of this epoch.
  [[nodiscard]] std::uint64_t deliveries_before(std::uint64_t position) const;

  /// A sampler of the same order, from the same point, for another rank.
  [[nodiscard]] std::unique_ptr<Sampler> for_rank(std::uint64_t rank) const;
  [[nodiscard]] virtual std::unique_ptr<Sampler> clone() const = 0;

 protected:
  /// `skip`: what the order leaves out, in force from its beginning.
  Sampler(const SampleSet& samples, ResumeToken::OrderSpec spec, const SkipList& skip,
          const RankOptions& ranks);
  Sampler(const Sampler&) = default;
  Sampler& operator=(const Sampler&) = default;

  /// Begins at `position` of `epoch`. Changes nothing if it throws. Constructors of final classes
  /// call it.
  void start(SkipList::Point point, const SkipList& skip);
  /// Prepares what lies between a point and the end of its epoch, for start(), and calls
  /// set_walk(). Changes nothing if it throws.
  virtual void prepare(SkipList::Point point, const SkipList& skip) = 0;
  /// out[i] = this rank's sample first + i. REQUIRES: all of them below size().
  virtual void evaluate(std::uint64_t first, std::span<std::uint64_t> out) const = 0;
  [[nodiscard]] virtual std::uint64_t find_position(std::uint64_t index) const = 0;
  /// The point that was reached when all ranks together delivered `count` samples since the
  /// beginning; nothing at the end of the epoch.
  [[nodiscard]] virtual std::optional<std::uint64_t> position_after(std::uint64_t count) const = 0;
  /// Positions that an epoch has before it ends: a token may stand there.
  [[nodiscard]] virtual std::uint64_t num_positions() const = 0;
  virtual void expect(EpochAudit::Expectation& expectation) const = 0;
  [[nodiscard]] virtual std::uint64_t count_before(std::uint64_t position) const = 0;

  /// One delivery of a sample: by a rank (of those with different samples), as its number `index`.
  struct Delivery {
    std::uint64_t rank = 0;
    std::uint64_t index = 0;
  };
  /// All deliveries of `sample` from where the sampler began.
  [[nodiscard]] virtual std::vector<Delivery> find_deliveries(std::uint64_t sample) const = 0;

  /// Ranks that get different samples, and which of them this one is.
  [[nodiscard]] std::uint64_t num_shares() const noexcept {
    return ranks_.world_size / ranks_.replicas;
  }
  [[nodiscard]] std::uint64_t share() const noexcept { return ranks_.rank / ranks_.replicas; }
  /// Samples of a step, of all ranks that get different ones.
  [[nodiscard]] std::uint64_t step_size() const noexcept;
  /// Sets how many samples all ranks together deliver, and how many this one does.
  void set_walk(std::uint64_t delivered, std::uint64_t size) noexcept;
  void set_exact(bool exact) noexcept { is_exact_ = exact; }
  ResumeToken::OrderSpec& mutable_spec() noexcept { return spec_; }
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  /// The position at which the sampler began.
  [[nodiscard]] std::uint64_t first_position() const noexcept { return first_position_; }

 private:
  friend struct detail::SamplerAccess;

  static constexpr std::size_t kBufferSize = 512;
  static constexpr std::size_t kFirstFill = 1;  ///< so that the first sample comes at once

  bool take(std::uint64_t& sample) {
    if (cursor_ == filled_ && !refill()) return false;
    sample = buffer_[cursor_++];
    return true;
  }
  bool refill();
  void move_to(std::uint64_t index) noexcept;
  void check_index(std::uint64_t index) const;
  [[nodiscard]] ResumeToken token_at(std::uint64_t count) const;

  ResumeToken::OrderSpec spec_;
  Hash128 fingerprint_;
  RankOptions ranks_;
  std::uint64_t epoch_ = 0;
  std::uint64_t first_position_ = 0;  ///< where the sampler began
  SkipList own_skip_;                 ///< as the order was given
  SkipList skip_;                     ///< with that of the token that was resumed
  std::vector<ResumeToken::Stage> history_;
  std::uint64_t delivered_ = 0;
  std::uint64_t size_ = 0;
  bool is_exact_ = true;
  bool ended_ = false;

  std::uint64_t buffer_first_ = 0;
  std::size_t cursor_ = 0;
  std::size_t filled_ = 0;
  std::size_t next_fill_ = kFirstFill;
  std::array<std::uint64_t, kBufferSize> buffer_{};
};

namespace detail {
/// The samplers whose epochs are rows of positions that are dealt to the ranks: all but wids.
class SHARDWISE_EXPORT SlotSampler : public Sampler {
 public:
  SlotSampler(const SampleSet& samples, const Order& order, const RankOptions& ranks);
  SlotSampler(const SlotSampler& other);
  SlotSampler& operator=(const SlotSampler&) = delete;
  ~SlotSampler() override;
  [[nodiscard]] std::unique_ptr<Sampler> clone() const override;

 private:
  friend struct SamplerAccess;

  void prepare(SkipList::Point point, const SkipList& skip) override;
  void evaluate(std::uint64_t first, std::span<std::uint64_t> out) const override;
  [[nodiscard]] std::uint64_t find_position(std::uint64_t index) const override;
  [[nodiscard]] std::optional<std::uint64_t> position_after(std::uint64_t count) const override;
  [[nodiscard]] std::uint64_t num_positions() const override;
  void expect(EpochAudit::Expectation& expectation) const override;
  [[nodiscard]] std::uint64_t count_before(std::uint64_t position) const override;
  [[nodiscard]] std::vector<Delivery> find_deliveries(std::uint64_t sample) const override;

  void fill_row(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const;
  void evaluate_balanced(std::uint64_t first, std::span<std::uint64_t> out) const;
  [[nodiscard]] const Dealt& deal(std::uint64_t step) const;

  std::unique_ptr<SlotOrder> slots_;
  SampleBytes bytes_;  ///< where bytes are balanced
  std::unique_ptr<Walk> walk_;
};
}  // namespace detail

/// Chunks of `chunk_size` samples in a random order, and the samples of `window` of them together
/// in a random order. For all other options give make_sampler() an Order.
/// Errors (constructors of all samplers): InvalidArgument, saying what is valid.
class SHARDWISE_EXPORT ChunkedSampler final : public detail::SlotSampler {
 public:
  /// Those of Chunked, the seed, and what else is often set.
  struct Options {
    std::uint64_t seed = 0;
    std::uint64_t chunk_size = kDefaultChunkSize;  ///< samples
    std::uint64_t window = kDefaultWindow;         ///< chunks mixed together
    std::uint64_t streams = 1;
    Order::Tail tail = Order::Tail::kExact;
    SkipList skip{};
  };

  explicit ChunkedSampler(const SampleSet& samples);
  ChunkedSampler(const SampleSet& samples, const Options& options, const RankOptions& ranks = {});
};

/// The name under which wids users look for it; with one rank it is no different.
using DistributedChunkedSampler = ChunkedSampler;

/// The sampler of any order. With wids and mixtures too.
/// Errors: InvalidArgument, naming the option and what is valid.
SHARDWISE_EXPORT std::unique_ptr<Sampler> make_sampler(const SampleSet& samples,
                                                       const Order& order = {},
                                                       const RankOptions& ranks = {});

}  // namespace shardwise
