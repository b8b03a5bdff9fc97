#pragma once

#include <cstdint>
#include <vector>

#include "order/deal.h"
#include "order/kept_slots.h"
#include "order/partition.h"
#include "order/slot_order.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

/// The distribution of one step with balanced bytes, and the samples of one rank in it.
struct Dealt {
  explicit Dealt(std::uint64_t world) : dealer(world) {}

  std::uint64_t step = ~std::uint64_t{0};
  std::vector<std::uint64_t> samples;  ///< the samples of this rank, sorted by slot
  std::vector<std::uint64_t> rows;     ///< the walk slots of these samples

  // Reused in each step, so that deal() does not allocate memory.
  Dealer dealer;
  std::vector<std::uint64_t> all_samples;
  std::vector<std::uint64_t> all_sizes;
  std::vector<std::uint32_t> places;
};

/// The part of an epoch from the point where the sampler began to the end. The kept slots after
/// that point are numbered from 0 as "walk slots". Rank r of W gets the walk slots r, r + W, r + 2
/// W, ... With balanced bytes, rank r gets as many walk slots of each step, but deal() chooses
/// them.
struct Walk {
  KeptSlots kept;
  std::uint64_t first_kept = 0;  ///< number of the kept slot that is walk slot 0
  Partition partition;           ///< partition of the walk slots
  KeptSlots pads;                ///< the kept slots of the whole epoch, which pads repeat from the
                                 ///< first on
  Dealt dealt;                   ///< the step that was distributed last

  /// Returns the slot of the epoch for walk slot `number`.
  std::uint64_t slot(std::uint64_t number) const noexcept {
    const std::uint64_t size = partition.num_slots();
    if (number < size) return kept.slot(first_kept + number);
    return pads.slot((number - size) % pads.size());
  }
};

/// Access for classes that explain and schedule samplers.
struct SamplerAccess {
  [[nodiscard]] static const SlotOrder& slots(const SlotSampler& sampler) {
    return *sampler.slots_;
  }
  [[nodiscard]] static const Walk& walk(const SlotSampler& sampler) { return *sampler.walk_; }

  using Delivery = Sampler::Delivery;
  [[nodiscard]] static std::vector<Delivery> deliveries(const Sampler& sampler,
                                                        std::uint64_t sample) {
    return sampler.find_deliveries(sample);
  }
  [[nodiscard]] static std::uint64_t first_position(const Sampler& sampler) {
    return sampler.first_position();
  }
  /// Number of slots that all ranks deliver together, from the point where the sampler began.
  [[nodiscard]] static std::uint64_t delivered(const Sampler& sampler) {
    return sampler.delivered();
  }
  /// Does the work of Sampler::resume(). The weights that the sampler's own order gives to a
  /// mixture apply after the first `fixed` positions from the token on. With kMaxSamples, the
  /// mixture keeps all weights of the token.
  static void resume_at(Sampler& sampler, const ResumeToken& token, Sampler::Changes changes,
                        std::uint64_t fixed) {
    sampler.resume_at(token, changes, fixed);
  }
  /// Returns a token for the point after the first `count` slots that all ranks deliver together.
  [[nodiscard]] static ResumeToken token_at(const Sampler& sampler, std::uint64_t count) {
    return sampler.token_at(count);
  }
};

}  // namespace shardwise::detail
