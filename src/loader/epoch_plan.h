#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "loader/engine.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

/// The steps of all ranks from a point of an epoch to its end, and the batches of one rank. In a
/// Counted plan, a step is a fixed number of consecutive samples of the order. In a Grouped plan,
/// each rank takes one of the GroupBatches per step.
///
/// A plan has no current position: the loader counts the steps that it has taken.
/// Threads: one, except for source() and slot_read().
class EpochPlan {
 public:
  /// A point of an epoch at which a plan may begin.
  struct Point {
    std::uint64_t position = 0;
    std::uint64_t batches = 0;  ///< number of the window's batches before the point
  };

  /// Makes the plan of epoch 0 for one rank. `data` and `options` must outlive this plan and all
  /// plans made from it.
  /// Errors: those of Loader's constructor.
  [[nodiscard]] static std::unique_ptr<EpochPlan> make(const MixedDataset& data,
                                                       const Loader::Options& options,
                                                       std::uint64_t rank,
                                                       std::uint64_t world_size);
  /// Throws the errors of make() for a run of `world_size` ranks, but makes no batches.
  static void validate(const MixedDataset& data, const Loader::Options& options,
                       std::uint64_t world_size);

  virtual ~EpochPlan() = default;
  EpochPlan(const EpochPlan&) = delete;
  EpochPlan& operator=(const EpochPlan&) = delete;

  /// Returns the plan from the token's point to the end of its epoch. Errors: those of
  /// Loader::restore(), except errors about delivered samples.
  [[nodiscard]] std::unique_ptr<EpochPlan> resume(const ResumeToken& token,
                                                  Sampler::Changes changes) const;
  /// Returns the plan of a whole epoch, without the samples of `bad`.
  [[nodiscard]] std::unique_ptr<EpochPlan> whole(std::uint64_t epoch, const SkipList& bad) const;

  /// The sampler of the order, with its skip list, positioned where the plan begins.
  [[nodiscard]] const Sampler& sampler() const noexcept { return *sampler_; }
  /// Whether the plan begins within its epoch.
  [[nodiscard]] bool is_rest() const noexcept { return begin_.position + begin_.batches > 0; }
  /// Samples that all ranks together delivered in this epoch before the plan.
  [[nodiscard]] virtual std::uint64_t delivered_before();
  /// Number of steps, equal on all ranks.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// The token of all ranks after `num_steps` steps, without an audit.
  [[nodiscard]] virtual ResumeToken token_after(std::uint64_t num_steps) const = 0;

  /// Returns the source of this rank's batches, from the first step on. One thread at a time may
  /// call the source. A new call of source() invalidates earlier sources. The plan must outlive
  /// them.
  [[nodiscard]] virtual Engine::Source source() = 0;
  /// Returns a slot. After `num_steps` steps, this rank needs no sample before this slot. Slots
  /// count as in ShardPrefetcher.
  [[nodiscard]] virtual std::uint64_t slot_after(std::uint64_t num_steps) const = 0;
  /// Returns a slot. Once this rank has read the first `num_rows` rows of the source, it needs no
  /// sample before this slot.
  /// Threads: any. Calls may come out of order.
  [[nodiscard]] virtual std::uint64_t slot_read(std::uint64_t num_rows) const = 0;
  /// Number of consecutive positions whose samples may be read in any order, as in
  /// ShardPrefetcher::Options::window.
  [[nodiscard]] std::uint64_t window() const noexcept {
    if (options_.by_group) return options_.by_group->window;
    return options_.by_length ? options_.by_length->window : 0;
  }
  /// Returns the rule that makes batches by group or length, as text for tokens. Equal texts mean
  /// equal batches.
  [[nodiscard]] virtual std::string_view rule() const { return {}; }
  /// The groups of batches by group, each with its batch size; empty for other batches.
  [[nodiscard]] virtual std::span<const Loader::ByGroup::Group> groups() const { return {}; }
  /// Calls visit() with each batch of the steps [first, last), before bad samples are left out. In
  /// the last step, a share() of ranks may have no batch.
  /// REQUIRES: window() > 0; last <= steps().
  using Visit =
      std::function<void(std::uint64_t step, std::uint64_t share, const BatchPlan& batch)>;
  virtual void visit_batches(std::uint64_t first, std::uint64_t last, const Visit& visit) const;

 protected:
  EpochPlan(const MixedDataset& data, const Loader::Options& options,
            std::unique_ptr<Sampler> sampler, Point begin)
      : data_(data), options_(options), sampler_(std::move(sampler)), begin_(begin) {}

  /// Makes a plan of the same class that begins at the sampler's position.
  [[nodiscard]] virtual std::unique_ptr<EpochPlan> from(std::unique_ptr<Sampler> sampler,
                                                        Point begin) const = 0;
  /// Number of shares: sets of ranks that get the same samples. share() is this rank's, from 0.
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
