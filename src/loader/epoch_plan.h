#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "loader/engine.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

/// What all ranks of a run deliver, step by step, from a point of an epoch to its end, and the
/// batches that one of them gets. There are two kinds: a step of Counted is a number of consecutive
/// samples of the order; in a step of ByLength each rank takes one of the LengthBatches.
///
/// A plan never moves: the loader counts the steps that it took.
/// Threads: one, but for source() and slot_read().
class EpochPlan {
 public:
  /// A point of an epoch at which a plan may begin.
  struct Point {
    std::uint64_t position = 0;
    std::uint64_t batches = 0;  ///< of the window that begins there: those that come before
  };

  /// Epoch 0 for one rank. `data` and `options` outlive all plans that come from this one.
  /// Errors: those of Loader's constructor.
  [[nodiscard]] static std::unique_ptr<EpochPlan> make(const MixedDataset& data,
                                                       const Loader::Options& options,
                                                       std::uint64_t rank,
                                                       std::uint64_t world_size);
  /// Throws what make() would for one of `world_size` ranks, but makes no batches.
  static void validate(const MixedDataset& data, const Loader::Options& options,
                       std::uint64_t world_size);

  virtual ~EpochPlan() = default;
  EpochPlan(const EpochPlan&) = delete;
  EpochPlan& operator=(const EpochPlan&) = delete;

  /// A plan from where `token` stands to the end of its epoch. Errors: those of Loader::restore()
  /// that are not about what was delivered.
  [[nodiscard]] std::unique_ptr<EpochPlan> resume(const ResumeToken& token,
                                                  Sampler::Changes changes) const;
  /// A plan of a whole epoch, which leaves out the samples of `bad`, too.
  [[nodiscard]] std::unique_ptr<EpochPlan> whole(std::uint64_t epoch, const SkipList& bad) const;

  /// The order, with what is left out. It stands where the plan begins.
  [[nodiscard]] const Sampler& sampler() const noexcept { return *sampler_; }
  /// Whether samples of the epoch come before the plan.
  [[nodiscard]] bool is_rest() const noexcept { return begin_.position + begin_.batches > 0; }
  /// Samples that all ranks delivered in this epoch before the plan.
  [[nodiscard]] virtual std::uint64_t delivered_before();
  /// The same for all ranks.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// The token of all ranks after that many steps, without an audit.
  [[nodiscard]] virtual ResumeToken token_after(std::uint64_t num_steps) const = 0;

  /// This rank's batches, from the first step on; one thread at a time calls it. Only the source
  /// that was made last is in use, and the plan outlives it.
  [[nodiscard]] virtual Engine::Source source() = 0;
  /// The slot, as ShardPrefetcher counts, before which this rank needs no sample after `num_steps`.
  [[nodiscard]] virtual std::uint64_t slot_after(std::uint64_t num_steps) const = 0;
  /// The slot before which it needs none once the first `num_rows` rows of the source were read.
  /// Any thread; calls may overtake each other.
  [[nodiscard]] virtual std::uint64_t slot_read(std::uint64_t num_rows) const = 0;
  /// Positions whose samples come in any order, as ShardPrefetcher::Options::window.
  [[nodiscard]] std::uint64_t window() const noexcept {
    return options_.by_length ? options_.by_length->window : 0;
  }

 protected:
  EpochPlan(const MixedDataset& data, const Loader::Options& options,
            std::unique_ptr<Sampler> sampler, Point begin)
      : data_(data), options_(options), sampler_(std::move(sampler)), begin_(begin) {}

  /// Another plan of this kind, from where `sampler` stands.
  [[nodiscard]] virtual std::unique_ptr<EpochPlan> from(std::unique_ptr<Sampler> sampler,
                                                        Point begin) const = 0;
  /// How batches by length are made, for tokens: where it is the same, so are the batches.
  [[nodiscard]] virtual std::string_view rule() const { return {}; }
  /// Ranks that get different samples, and which of them this one is.
  [[nodiscard]] std::uint64_t num_shares() const {
    return sampler_->world_size() / sampler_->replicas();
  }
  [[nodiscard]] std::uint64_t share() const { return sampler_->rank() / sampler_->replicas(); }
  void set_steps(std::uint64_t steps) noexcept { steps_ = steps; }

  const MixedDataset& data_;
  const Loader::Options& options_;
  const std::unique_ptr<Sampler> sampler_;
  const Point begin_;

 private:
  std::uint64_t steps_ = 0;
};

}  // namespace shardwise::detail
