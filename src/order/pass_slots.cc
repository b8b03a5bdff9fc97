#include "order/pass_slots.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/counted.h"
#include "base/spelling.h"
#include "order/arithmetic.h"
#include "order/fields.h"
#include "order/spec.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

/// Number of slots that are computed at a time, in a buffer on the stack.
constexpr std::size_t kRun = 512;

}  // namespace

PassSlots::PassSlots(std::uint64_t n, ShardOffsets starts, const Passes::Kind& kind,
                     const Order& order)
    : passes_(n, std::move(starts), kind, order.seed),
      epoch_size_(order.epoch_size == 0 ? n : order.epoch_size),
      streams_(n, order.streams) {
  if (order.epoch_size != 0 && n == 0) {
    throw InvalidArgument(
        "an " + spelled(spelling_of<Order>("epoch_size")) + " cannot be used without samples", {},
        "give at least 1 sample");
  }
  set_epoch(0);
}

std::unique_ptr<SlotOrder> PassSlots::clone() const { return std::make_unique<PassSlots>(*this); }

std::uint64_t PassSlots::layout() const {
  return passes_.starts() ? layout_hash(*passes_.starts()) : 0;
}

void PassSlots::set_epoch(std::uint64_t epoch) {
  if (!is_exact() && epoch >= kMaxSamples / epoch_size_) {
    throw InvalidArgument("epoch " + std::to_string(epoch) + " is too large for " +
                              counted(epoch_size_, "sample") + " per epoch",
                          {},
                          "choose a smaller epoch; all epochs together have at most 2^62 samples");
  }
  // Making a pass may throw, so make it before anything is changed.
  const std::uint64_t n = passes_.size();
  if (n > 0) passes_[is_exact() ? epoch : epoch * epoch_size_ / n];
  epoch_ = epoch;
}

void PassSlots::fill(std::uint64_t first, std::uint64_t stride,
                     std::span<std::uint64_t> out) const {
  SHARDWISE_ASSERT_HOT(in_epoch(first, stride, out.size()));
  SHARDWISE_ASSERT_HOT(stride % streams_.count() == 0 || streams_.count() % stride == 0);
  if (is_exact()) {
    if (!out.empty()) fill_pass(passes_[epoch_], first, stride, out);
    return;
  }
  const std::uint64_t n = passes_.size();
  std::uint64_t slot = first_slot() + first;
  while (!out.empty()) {
    const std::uint64_t number = slot / n;
    const std::uint64_t in_pass = slot - number * n;
    const std::uint64_t left = (n - 1 - in_pass) / stride + 1;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, out.size()));
    fill_pass(passes_[number], in_pass, stride, out.first(count));
    slot += count * stride;
    out = out.subspan(count);
  }
}

void PassSlots::fill_pass(const EpochOrder& order, std::uint64_t first, std::uint64_t stride,
                          std::span<std::uint64_t> out) const {
  const std::uint64_t num_streams = streams_.count();
  if (stride % num_streams == 0) {  // all in one stream
    order.fill(streams_.position_of_slot(first), stride / num_streams, out);
    return;
  }
  // Consecutive elements of `out` are in `shared` streams in turn. The elements of one stream are
  // at consecutive positions.
  const std::uint64_t shared = num_streams / stride;
  std::array<std::uint64_t, kRun> run;
  for (std::size_t begin = 0; begin < out.size(); begin += kRun) {
    const std::span<std::uint64_t> block = out.subspan(begin, std::min(kRun, out.size() - begin));
    const std::uint64_t block_first = first + begin * stride;
    for (std::uint64_t s = 0; s < shared && s < block.size(); ++s) {
      const auto count = static_cast<std::size_t>(ceil_div(block.size() - s, shared));
      order.fill(streams_.position_of_slot(block_first + s * stride), 1, {run.data(), count});
      for (std::size_t i = 0; i < count; ++i) block[s + i * shared] = run[i];
    }
  }
}

std::vector<std::uint64_t> PassSlots::slots_of(std::uint64_t sample) const {
  const std::uint64_t n = passes_.size();
  SHARDWISE_ASSERT(sample < n);
  if (is_exact()) return {streams_.slot_of_position(passes_[epoch_].position_of(sample))};
  std::vector<std::uint64_t> slots;
  const std::uint64_t begin = first_slot();
  const std::uint64_t end = begin + epoch_size_;
  for (std::uint64_t number = begin / n; number * n < end; ++number) {
    const std::uint64_t slot =
        number * n + streams_.slot_of_position(passes_[number].position_of(sample));
    if (slot >= begin && slot < end) slots.push_back(slot - begin);
  }
  return slots;
}

}  // namespace shardwise::detail
