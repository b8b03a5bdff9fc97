#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "order/epoch_order.h"
#include "order/mixture_schedule.h"
#include "order/slot_order.h"

namespace shardwise::detail {

/// Several data sets mixed by weight, each in exact epochs. Over all ranks and epochs, the draws
/// from data set d are the samples of its epoch 0, then of its epoch 1, and so on. MixtureSchedule
/// maps each slot to a data set and a draw. The order of that data set maps the draw to a sample.
/// Within a block of 256 slots, draws are permuted. Sample numbers are those of the concatenated
/// data sets.
/// Memory: 6 KB, and two orders of each data set.
/// Source: docs/formats/order.md (Mixtures, version 2).
class MixtureSlots final : public SlotOrder {
 public:
  static constexpr unsigned kVersion = MixtureDraws::kVersion;

  MixtureSlots(const SampleSet& samples, const Mixture& mixture, const Order& order);
  std::unique_ptr<SlotOrder> clone() const override;

  void set_epoch(std::uint64_t epoch) override;
  void set_weights(const Order& order) override;
  std::uint64_t num_slots() const override { return epoch_size_; }
  void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const override;
  std::vector<std::uint64_t> slots_of(std::uint64_t sample) const override;
  bool is_exact() const override { return false; }
  std::string_view claim() const override { return "drawn from the mixture, as ordered"; }

  std::uint64_t layout() const override { return layout_; }
  std::size_t num_datasets() const noexcept { return parts_.size(); }
  /// The number of the first sample of a data set. REQUIRES: dataset <= num_datasets().
  std::uint64_t first_sample(std::size_t dataset) const {
    SHARDWISE_ASSERT(dataset < first_.size());
    return first_[dataset];
  }
  std::size_t dataset_of(std::uint64_t sample) const;
  /// The first slot of the current epoch, counted over all epochs.
  std::uint64_t first_slot() const noexcept { return epoch_ * epoch_size_; }
  const MixtureSchedule& draws() const noexcept { return *draws_; }
  /// The epochs of data set `dataset`.
  const Passes& passes(std::size_t dataset) const { return parts_[dataset]; }

 private:
  void draw_from(std::size_t dataset, std::span<std::uint64_t> draws) const;

  std::vector<Passes> parts_;
  std::uint64_t seed_;
  std::shared_ptr<const MixtureSchedule> draws_;
  std::vector<std::uint64_t> first_;  ///< first sample of each data set, then the number of samples
  std::uint64_t epoch_size_;
  std::uint64_t layout_ = 0;
  std::uint64_t epoch_ = 0;
};

}  // namespace shardwise::detail
