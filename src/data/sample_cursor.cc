#include "data/sample_cursor.h"

#include <utility>

#include "data/dataset_impl.h"

namespace shardwise::detail {

namespace {
constexpr std::uint64_t kPrefetchBytes = 512;
}  // namespace

void SampleCursor::release() noexcept {
  if (std::exchange(is_borrowed_, false)) sample_->pin_ = nullptr;
}

const OpenShard* SampleCursor::open_shard_of(std::uint64_t number) noexcept {
  const std::uint64_t shard = data_.impl_->index->shard_of(number);
  Held& held = place_of(shard);
  if (held.shard && held.number == shard) return held.shard.get();
  if (held.shard) return nullptr;  // of another one, which sample_ may be of
  auto found = data_.impl_->pool.find(shard);
  if (!found || found->data == nullptr || found->cached.is_held()) return nullptr;
  held = {std::move(found), shard};
  return held.shard.get();
}

const Sample& SampleCursor::at(std::uint64_t index) {
  if (index >= data_.size()) data_.throw_out_of_range(index);
  const std::uint64_t number = data_.selection_ ? data_.selection_->numbers[index] : index;
  const std::uint64_t shard = data_.impl_->index->shard_of(number);
  const Held& held = place_of(shard);
  if (!held.shard || held.number != shard) return open(index, number, shard);
  return borrow(held, index, number);
}

/// Lays sample_ over a shard that is held.
const Sample& SampleCursor::borrow(const Held& held, std::uint64_t index, std::uint64_t number) {
  if (!is_borrowed_) {
    sample_.emplace(Sample(held.shard.borrow(), number));
    is_borrowed_ = true;
  }
  Sample& sample = *sample_;
  const OpenShard& shard = *held.shard;
  sample.pin_ = held.shard.pin();
  sample.shard_ = &shard;
  sample.local_ = static_cast<std::uint32_t>(number - shard.first_sample);
  const auto members = shard.segment.members(sample.local_);
  sample.members_ = members.data();
  sample.num_members_ = static_cast<std::uint32_t>(members.size());
  sample.index_ = index;
  return sample;
}

const Sample& SampleCursor::open(std::uint64_t index, std::uint64_t number, std::uint64_t shard) {
  release();
  sample_.reset();
  if (from_cache_ != nullptr) std::exchange(from_cache_, nullptr)->shard = {};
  Held& held = place_of(shard);
  held.shard = {};
  auto opened = data_.impl_->pool.get(shard);
  if (opened->data == nullptr) return sample_.emplace(data_[index]);  // it has bytes of its own
  if (opened->cached.is_held()) from_cache_ = &held;
  held = {std::move(opened), shard};
  return borrow(held, index, number);
}

void SampleCursor::prefetch_records(std::uint64_t index) noexcept {
  if (index >= data_.size()) return;
  const std::uint64_t number = data_.selection_ ? data_.selection_->numbers[index] : index;
  const OpenShard* const shard = open_shard_of(number);
  if (shard == nullptr) return;
  shard->segment.prefetch(static_cast<std::uint32_t>(number - shard->first_sample));
}

void SampleCursor::prefetch_bytes(std::uint64_t index) noexcept {
  if (index >= data_.size()) return;
  const std::uint64_t number = data_.selection_ ? data_.selection_->numbers[index] : index;
  const OpenShard* const shard = open_shard_of(number);
  if (shard == nullptr) return;
  const auto members =
      shard->segment.members(static_cast<std::uint32_t>(number - shard->first_sample));
  for (const MemberRecord& member : members) {
    // Of long ones the CPU itself sees what comes.
    const char* const bytes = shard->data + member.data_offset();
    const std::uint64_t most = std::min(member.size_bytes, kPrefetchBytes);
    for (std::uint64_t at = 0; at < most; at += 64) __builtin_prefetch(bytes + at);
  }
}

void SampleCursor::prefetch_records(std::span<const std::uint64_t> indices) noexcept {
  for (const std::uint64_t index : indices) prefetch_records(index);
}

void SampleCursor::prefetch_bytes(std::span<const std::uint64_t> indices) noexcept {
  for (const std::uint64_t index : indices) prefetch_bytes(index);
}

}  // namespace shardwise::detail
