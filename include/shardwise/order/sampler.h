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

/// The sequence of sample numbers that one rank delivers in an epoch. It can be iterated,
/// positioned anywhere, and queried.
///
///     sampler.set_epoch(3);
///     for (std::uint64_t i : sampler) use(data[i]);
///
/// A sampler covers an epoch from the point where it began: the beginning of the epoch, or the
/// point of resume(). size(), position(), at() and steps count from that point.
///
/// All samplers have this base class. One virtual call produces up to 512 numbers, so virtual calls
/// cost almost nothing per sample.
///
/// Threads: one thread. clone() makes a sampler for another thread.
/// Memory: about 5 KB, plus the memory of the kind of order.
/// Cost: next() and at() O(1). set_epoch() and resume() O(1); for sharded orders O(shards); and
///   O(n) for n samples left out.
class SHARDWISE_EXPORT Sampler {
 public:
  /// Whether a run may continue with other data or another order than those of its token. With
  /// kAllowAtEpochBorder, the weights of a mixture may also change within an epoch.
  enum class Changes : std::uint8_t { kRefuse, kAllowAtEpochBorder };

  /// The samples of one rank in one step. explain_step() returns these.
  struct RankStep {
    std::uint64_t rank = 0;
    std::vector<std::uint64_t>
        samples;  ///< in order; may be fewer than a batch, or none, at an epoch's end

    friend bool operator==(const RankStep&, const RankStep&) = default;
  };

  /// One delivery of a sample. when_sample() returns these.
  struct SampleTime {
    std::uint64_t rank = 0;
    std::uint64_t step = 0;      ///< counted from where the sampler began
    std::uint64_t place = 0;     ///< index in the batch
    std::uint64_t position = 0;  ///< in the epoch, over all ranks

    friend bool operator==(const SampleTime&, const SampleTime&) = default;
  };

  /// A C++20 input iterator over the remaining samples. The number that it points at counts as
  /// delivered, so after leaving a loop early position() is past the last used number.
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

  /// Samples that this rank delivers, from the point where the sampler began to the end of the
  /// epoch.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] std::uint64_t rank() const noexcept { return ranks_.rank; }
  [[nodiscard]] std::uint64_t world_size() const noexcept { return ranks_.world_size; }
  /// Largest number of samples per step on this rank.
  [[nodiscard]] std::uint64_t batch_size() const noexcept;
  [[nodiscard]] std::uint64_t replicas() const noexcept { return ranks_.replicas; }
  /// The fingerprint of the data set.
  [[nodiscard]] const Hash128& fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] std::uint64_t num_samples() const noexcept { return spec_.num_samples; }
  [[nodiscard]] const ResumeToken::OrderSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const Order& order() const noexcept { return spec_.order; }
  /// The samples and positions that the order or the resumed token leaves out.
  [[nodiscard]] const SkipList& skip() const noexcept { return skip_; }

  /// Moves to the beginning of `epoch`. If `epoch` is the current epoch and its end was not
  /// reached, moves back to the point where the sampler began it. This may be the point of
  /// resume(), so a loop over epochs may call set_epoch() after resume(). The sampler never
  /// advances to the next epoch by itself.
  /// Errors: InvalidArgument if the order has no such epoch.
  void set_epoch(std::uint64_t epoch);
  /// Moves to the beginning of the current epoch, even after resume().
  void reset();
  /// Moves to this rank's sample `index`, in [0, size()]. Errors: OutOfRange.
  void seek(std::uint64_t index);
  /// Samples that this rank has delivered since the point where the sampler began.
  [[nodiscard]] std::uint64_t position() const noexcept { return buffer_first_ + cursor_; }

  /// Returns this rank's sample `index` without moving. Errors: OutOfRange.
  [[nodiscard]] std::uint64_t at(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t operator[](std::uint64_t index) const { return at(index); }
  /// Returns the position in the epoch of this rank's sample `index`, counted over all ranks as if
  /// no sample were left out. A sample that is repeated as padding has the position of its first
  /// delivery.
  /// Errors: OutOfRange.
  [[nodiscard]] std::uint64_t position_in_epoch(std::uint64_t index) const;

  /// Returns the next sample, or nothing at the end of the epoch.
  std::optional<std::uint64_t> next() {
    std::uint64_t sample = 0;
    if (!take(sample)) return std::nullopt;
    return sample;
  }
  /// Fills `batch` with the next samples and returns their number. The number is smaller than the
  /// size of `batch` only at the end of the epoch. If the call throws, the position is unchanged.
  std::size_t next_batch(std::span<std::uint64_t> batch);

  /// Errors: InvalidArgument at the end of the epoch. Call set_epoch() first.
  Iterator begin();
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

  /// Number of steps from the point where the sampler began to the end of the epoch, equal on all
  /// ranks. A step has batch_size samples on each rank, or global_batch_size over all ranks. In the
  /// last step a rank may have fewer or none.
  [[nodiscard]] std::uint64_t steps() const noexcept;
  /// Index of this rank's first sample of a step. It is size() if step >= steps().
  [[nodiscard]] std::uint64_t first_of_step(std::uint64_t step) const noexcept;
  /// The step that contains this rank's sample `index`.
  [[nodiscard]] std::uint64_t step_of(std::uint64_t index) const noexcept;

  /// Returns a token for the delivered samples. It assumes that every rank took as many samples as
  /// this rank. At the end of an epoch, a rank with fewer samples cannot know whether the other
  /// ranks took their last sample. In that case use token_after(), which is exact.
  /// Errors: InvalidArgument within a step whose bytes are balanced.
  [[nodiscard]] ResumeToken token() const;
  /// Returns the token for the point after `num_steps` steps of all ranks, counted from the point
  /// where the sampler began.
  [[nodiscard]] ResumeToken token_after(std::uint64_t num_steps) const;
  /// Continues from `token`, with any number of ranks and batch size. Entries of this order's skip
  /// list that the token lacks apply from that point on.
  ///
  /// A mixture keeps the weights that the token's run had up to the token's position, so spec() and
  /// later tokens have them in the mixture's schedule. With kAllowAtEpochBorder, the weights of
  /// this order may be others than the token's from that position on. They apply from the next
  /// multiple of 256 positions of the run on, and each data set continues where it was.
  ///
  /// With kAllowAtEpochBorder, a token at the beginning of an epoch may have other data or another
  /// order. The history of later tokens records the data and order of this token. If the data
  /// differs, the token's skip list is dropped, because its numbers may mean other samples. Another
  /// order is refused if both orders are within a pass over the data at that point (mixtures,
  /// epoch_size), because the rest of the pass would be lost.
  /// Errors: Mismatch. VersionMismatch. OutOfRange if the epoch has no such position. After an
  ///   error the sampler is unchanged.
  void resume(const ResumeToken& token, Changes changes = Changes::kRefuse);

  /// True if an epoch delivers each sample exactly once, apart from tail and skip list. If false, a
  /// proof can still show that an epoch delivered the samples of its order.
  [[nodiscard]] bool is_exact() const noexcept { return is_exact_; }
  /// The samples that all ranks together must deliver in this epoch, from its beginning.
  /// @param all  the sum over all samples, each counted once. It is the same in every epoch.
  /// Cost: O(samples). For exact orders and with `all`, O(samples left out or repeated).
  [[nodiscard]] EpochAudit::Expectation expectation() const;
  [[nodiscard]] EpochAudit::Expectation expectation(const EpochAudit::Sum& all) const;
  /// The number of deliveries over all ranks before `position` of this epoch.
  [[nodiscard]] std::uint64_t deliveries_before(std::uint64_t position) const;

  /// Returns a sampler of the same order, beginning at the same point, for another rank.
  [[nodiscard]] std::unique_ptr<Sampler> for_rank(std::uint64_t rank) const;
  [[nodiscard]] virtual std::unique_ptr<Sampler> clone() const = 0;

 protected:
  /// @param skip  entries that the order leaves out from its beginning.
  Sampler(const SampleSet& samples, ResumeToken::OrderSpec spec, const SkipList& skip,
          const RankOptions& ranks);
  Sampler(const Sampler&) = default;
  Sampler& operator=(const Sampler&) = default;

  /// Begins at `point`. Constructors of final classes call it. If it throws, the sampler is
  /// unchanged.
  /// @param changed  the order with other weights of its mixture, or nullptr.
  void start(SkipList::Point point, const SkipList& skip, const Order* changed = nullptr);
  /// Prepares the rest of the epoch from `point` on, and calls set_walk(). start() calls it. If it
  /// throws, the sampler is unchanged.
  virtual void prepare(SkipList::Point point, const SkipList& skip, const Order* changed) = 0;
  /// Sets out[i] to this rank's sample first + i. REQUIRES: all indices are below size().
  virtual void evaluate(std::uint64_t first, std::span<std::uint64_t> out) const = 0;
  [[nodiscard]] virtual std::uint64_t find_position(std::uint64_t index) const = 0;
  /// The position reached after all ranks together delivered `count` samples since the sampler
  /// began, or nothing at the end of the epoch.
  [[nodiscard]] virtual std::optional<std::uint64_t> position_after(std::uint64_t count) const = 0;
  /// Number of positions of an epoch for which a token can be made.
  [[nodiscard]] virtual std::uint64_t num_positions() const = 0;
  virtual void expect(EpochAudit::Expectation& expectation) const = 0;
  [[nodiscard]] virtual std::uint64_t count_before(std::uint64_t position) const = 0;

  /// One delivery of a sample. `rank` counts only ranks with different samples. `index` is the
  /// sample's index on that rank.
  struct Delivery {
    std::uint64_t rank = 0;
    std::uint64_t index = 0;
  };
  /// All deliveries of `sample` from the point where the sampler began to the end of the epoch.
  [[nodiscard]] virtual std::vector<Delivery> find_deliveries(std::uint64_t sample) const = 0;

  /// Number of shares, and the number of this rank's share. Replicas form one share.
  [[nodiscard]] std::uint64_t num_shares() const noexcept {
    return ranks_.world_size / ranks_.replicas;
  }
  [[nodiscard]] std::uint64_t share() const noexcept { return ranks_.rank / ranks_.replicas; }
  /// Number of samples in a step, over all shares. Replicas get the same samples, so they count
  /// once.
  [[nodiscard]] std::uint64_t step_size() const noexcept;
  /// Sets the number of samples that all ranks together deliver, and the number that this rank
  /// delivers.
  void set_walk(std::uint64_t delivered, std::uint64_t size) noexcept;
  void set_exact(bool exact) noexcept { is_exact_ = exact; }
  ResumeToken::OrderSpec& mutable_spec() noexcept { return spec_; }
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  /// The position at which the sampler began.
  [[nodiscard]] std::uint64_t first_position() const noexcept { return first_position_; }

 private:
  friend struct detail::SamplerAccess;

  static constexpr std::size_t kBufferSize = 512;
  static constexpr std::size_t kFirstFill = 1;  ///< small, so that the first sample is available at
                                                ///< once

  bool take(std::uint64_t& sample) {
    if (cursor_ == filled_ && !refill()) return false;
    sample = buffer_[cursor_++];
    return true;
  }
  bool refill();
  void move_to(std::uint64_t index) noexcept;
  void check_index(std::uint64_t index) const;
  void resume_at(const ResumeToken& token, Changes changes, std::uint64_t fixed);
  [[nodiscard]] ResumeToken token_at(std::uint64_t count) const;

  ResumeToken::OrderSpec spec_;
  OrderKind own_kind_;  ///< from the order; that of spec_ may have earlier weights of a mixture
  Hash128 fingerprint_;
  RankOptions ranks_;
  std::uint64_t epoch_ = 0;
  std::uint64_t first_position_ = 0;  ///< position at which the sampler began
  SkipList own_skip_;                 ///< from the order
  SkipList skip_;                     ///< own_skip_ and the skip list of the resumed token
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
/// The sampler of all kinds of orders except wids. It distributes the positions of an epoch to the
/// ranks in rows, one position per rank.
class SHARDWISE_EXPORT SlotSampler : public Sampler {
 public:
  SlotSampler(const SampleSet& samples, const Order& order, const RankOptions& ranks);
  SlotSampler(const SlotSampler& other);
  SlotSampler& operator=(const SlotSampler&) = delete;
  ~SlotSampler() override;
  [[nodiscard]] std::unique_ptr<Sampler> clone() const override;

 private:
  friend struct SamplerAccess;

  void prepare(SkipList::Point point, const SkipList& skip, const Order* changed) override;
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
  SampleBytes bytes_;  ///< used if bytes are balanced
  std::unique_ptr<Walk> walk_;
};
}  // namespace detail

/// The sampler of a Chunked order with the most common options. For other options use
/// make_sampler() with an Order.
/// Errors: InvalidArgument; the text says what is valid.
class SHARDWISE_EXPORT ChunkedSampler final : public detail::SlotSampler {
 public:
  /// The options of Chunked and the most common options of Order.
  struct Options {
    std::uint64_t seed = 0;
    std::uint64_t chunk_size = kDefaultChunkSize;  ///< samples
    std::uint64_t window = kDefaultWindow;         ///< chunks shuffled together
    std::uint64_t streams = 1;
    Order::Tail tail = Order::Tail::kExact;
    SkipList skip{};
  };

  explicit ChunkedSampler(const SampleSet& samples);
  ChunkedSampler(const SampleSet& samples, const Options& options, const RankOptions& ranks = {});
};

/// The name of this sampler in wids. It also works with one rank.
using DistributedChunkedSampler = ChunkedSampler;

/// Makes the sampler of any order, including wids and mixtures.
/// Errors: InvalidArgument, naming the option and what is valid.
SHARDWISE_EXPORT std::unique_ptr<Sampler> make_sampler(const SampleSet& samples,
                                                       const Order& order = {},
                                                       const RankOptions& ranks = {});

}  // namespace shardwise
