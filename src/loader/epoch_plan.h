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

/// The steps of all ranks from a point of an epoch to its end, and the batches that one rank gets.
/// A step of Counted is a number of consecutive samples of the order. In a step of ByLength each
/// rank takes one of the LengthBatches.
///
/// A plan never moves: the loader counts the steps that it has taken.
/// Threads: one, but for source() and slot_read().
class EpochPlan {
 public:
  /// A point of an epoch at which a plan may begin.
  struct Point {
    std::uint64_t position = 0;
    std::uint64_t batches = 0;  ///< of the window that begins there: those before the point
  };

  /// Makes the plan of epoch 0 for one rank. `data` and `options` must outlive all plans made from
  /// it.
  /// Errors: those of Loader's constructor.
  [[nodiscard]] static std::unique_ptr<EpochPlan> make(const MixedDataset& data,
                                                       const Loader::Options& options,
                                                       std::uint64_t rank,
                                                       std::uint64_t world_size);
  /// Throws what make() would throw for one of `world_size` ranks, but makes no batches.
  static void validate(const MixedDataset& data, const Loader::Options& options,
                       std::uint64_t world_size);

  virtual ~EpochPlan() = default;
  EpochPlan(const EpochPlan&) = delete;
  EpochPlan& operator=(const EpochPlan&) = delete;

  /// Returns the plan from the point of `token` to the end of its epoch. Errors: those of
  /// Loader::restore(), except those about what was delivered.
  [[nodiscard]] std::unique_ptr<EpochPlan> resume(const ResumeToken& token,
                                                  Sampler::Changes changes) const;
  /// Returns the plan of a whole epoch, which also leaves out the samples of `bad`.
  [[nodiscard]] std::unique_ptr<EpochPlan> whole(std::uint64_t epoch, const SkipList& bad) const;

  /// The order, with the samples that it leaves out; it stands where the plan begins.
  [[nodiscard]] const Sampler& sampler() const noexcept { return *sampler_; }
  /// Whether the plan begins within its epoch.
  [[nodiscard]] bool is_rest() const noexcept { return begin_.position + begin_.batches > 0; }
  /// Samples that all ranks together delivered in this epoch before the plan.
  [[nodiscard]] virtual std::uint64_t delivered_before();
  /// Number of steps, equal on all ranks.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// The token of all ranks after `num_steps` steps, without an audit.
  [[nodiscard]] virtual ResumeToken token_after(std::uint64_t num_steps) const = 0;

  /// Returns the source of this rank's batches, from the first step on. One thread at a time calls
  /// it. Only the source made last is valid, and only while the plan lives.
  [[nodiscard]] virtual Engine::Source source() = 0;
  /// The slot before which this rank needs no sample after `num_steps`, counted as by
  /// ShardPrefetcher.
  [[nodiscard]] virtual std::uint64_t slot_after(std::uint64_t num_steps) const = 0;
  /// The slot before which this rank needs no sample once the source's first `num_rows` rows are
  /// read.
  /// Threads: any; calls may overtake each other.
  [[nodiscard]] virtual std::uint64_t slot_read(std::uint64_t num_rows) const = 0;
  /// Positions within which samples come in any order, as in ShardPrefetcher::Options::window.
  [[nodiscard]] std::uint64_t window() const noexcept {
    return options_.by_length ? options_.by_length->window : 0;
  }

 protected:
  EpochPlan(const MixedDataset& data, const Loader::Options& options,
            std::unique_ptr<Sampler> sampler, Point begin)
      : data_(data), options_(options), sampler_(std::move(sampler)), begin_(begin) {}

  /// Makes a plan of the same kind that begins where `sampler` stands.
  [[nodiscard]] virtual std::unique_ptr<EpochPlan> from(std::unique_ptr<Sampler> sampler,
                                                        Point begin) const = 0;
  /// Describes how batches by length are made, for tokens; equal texts mean equal batches.
  [[nodiscard]] virtual std::string_view rule() const { return {}; }
  /// Number of ranks that get different samples; share() is this rank's number among them.
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
