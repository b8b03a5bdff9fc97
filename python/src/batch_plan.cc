#include "batch_plan.h"

#include <algorithm>
#include <string>
#include <variant>

#include "order/arithmetic.h"
#include "order/sampler_access.h"
#include "shardwise/base/error.h"

namespace shardwise::python {

namespace {

using detail::ceil_div;

/// The smallest and the largest number of samples that a rank has.
struct Sizes {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};

Sizes sizes_of_ranks(const Sampler& sampler) {
  const std::uint64_t last = sampler.world_size() - 1;
  if (!std::holds_alternative<Wids>(sampler.order().kind)) {
    return {sampler.for_rank(last)->size(), sampler.for_rank(0)->size()};
  }
  Sizes sizes{sampler.size(), sampler.size()};
  for (std::uint64_t rank = 0; rank <= last; ++rank) {
    const std::uint64_t size = sampler.for_rank(rank)->size();
    sizes = {std::min(sizes.least, size), std::max(sizes.most, size)};
  }
  return sizes;
}

}  // namespace

void require_same_count(const Sampler& sampler, const BatchRule& rule, std::uint64_t first) {
  const Sizes sizes = sizes_of_ranks(sampler);
  const auto count = [&](std::uint64_t size) {
    const std::uint64_t left = size - std::min(size, first);
    return rule.drop_last ? left / rule.size : ceil_div(left, rule.size);
  };
  if (count(sizes.least) == count(sizes.most)) return;
  throw InvalidArgument(
      "the ranks would have different numbers of batches: one rank would have " +
          std::to_string(count(sizes.most)) + " batches of " + std::to_string(rule.size) +
          ", another " + std::to_string(count(sizes.least)),
      "training that waits for all ranks would not end",
      "give the DataLoader batch_sampler=shardwise.torch.BatchSampler(sampler, batch_size), or, "
      "if ranks do not wait for each other, the sampler allow_uneven=True");
}

// In an exact order each rank has k or k + 1 samples. The ranks' numbers of batches differ only if
// the batch size B divides k:
//
//   k + 1 samples:  B B ... B B     1
//   k samples:      B B ... B B-1   1
//
// Ranks with k samples therefore split off the last sample of their last batch as a separate batch.
// Before the last step, each of the W ranks then has one sample left. These samples are the last W
// of the order, so a token can describe this point. With balanced bytes and with wids it cannot,
// since there the ranks' samples do not alternate in the order.
BatchPlan::BatchPlan(const Sampler& sampler, const BatchRule& rule, std::uint64_t first)
    : rule_(rule), first_(first) {
  if (rule.size == 0) throw InvalidArgument("the batch size is 0", "size=0", "");
  const std::uint64_t size = sampler.size();
  const Sizes sizes = rule.even ? sizes_of_ranks(sampler) : Sizes{size - first, size - first};
  if (rule.drop_last) {
    count_ = sizes.least / rule.size;
    end_ = first + count_ * rule.size;
    return;
  }
  end_ = size;
  count_ = ceil_div(sizes.most, rule.size);
  any_splits_ = ceil_div(sizes.least, rule.size) < count_;
  splits_ = ceil_div(size - first, rule.size) < count_;
  if (any_splits_ && (sizes.least + 1 != sizes.most || sizes.least == 0 || rule.size == 1)) {
    throw InvalidArgument("the ranks cannot have the same number of batches",
                          "one rank has " + std::to_string(sizes.most) + " samples, another rank " +
                              std::to_string(sizes.least) + ", in batches of " +
                              std::to_string(rule.size),
                          "choose a larger batch, fewer ranks, or tail=\"drop\" or \"pad\" of the "
                          "order, or, if ranks do not wait for each other, even=False");
  }
}

std::uint64_t BatchPlan::most_batches(const Sampler& sampler) const {
  if (rule_.even) return count_;
  const std::uint64_t most = sizes_of_ranks(sampler).most - first_;
  return rule_.drop_last ? most / rule_.size : ceil_div(most, rule_.size);
}

std::uint64_t BatchPlan::size_at(std::uint64_t position) const noexcept {
  if (position >= end_) return 0;
  const std::uint64_t left = end_ - position;
  return splits_ && left == rule_.size ? left - 1 : std::min(rule_.size, left);
}

std::uint64_t BatchPlan::batches_before(std::uint64_t position) const noexcept {
  if (position >= end_) return count_;
  return splits_ && position + 1 == end_ ? count_ - 1 : (position - first_) / rule_.size;
}

std::uint64_t BatchPlan::position_after(std::uint64_t num_batches) const noexcept {
  if (num_batches >= count_) return end_;
  return splits_ && num_batches + 1 == count_ ? end_ - 1 : first_ + num_batches * rule_.size;
}

ResumeToken BatchPlan::token_at_end(const Sampler& sampler) {
  return detail::SamplerAccess::token_at(sampler, detail::SamplerAccess::delivered(sampler));
}

ResumeToken BatchPlan::token_after(const Sampler& sampler, std::uint64_t num_batches) const {
  using Access = detail::SamplerAccess;
  const std::uint64_t all = Access::delivered(sampler);
  if (num_batches >= most_batches(sampler)) return token_at_end(sampler);
  const std::uint64_t ranks = sampler.world_size() / sampler.replicas();
  if (any_splits_ && num_batches + 1 == count_) {
    if (sampler.order().balance_bytes || std::holds_alternative<Wids>(sampler.order().kind)) {
      throw InvalidArgument(
          "a token cannot be taken before the last step of an epoch with "
          "balance_bytes or in the order of wids",
          "epoch " + std::to_string(sampler.epoch()) + ", after " + std::to_string(num_batches) +
              " batches",
          "take the token one step earlier, or at the end of the epoch");
    }
    return Access::token_at(sampler, all - ranks);
  }
  return Access::token_at(sampler, std::min(all, (first_ + num_batches * rule_.size) * ranks));
}

}  // namespace shardwise::python
