#include "data/sample_cursor.h"

#include <algorithm>
#include <utility>

#include "data/dataset_impl.h"

// Only open_into() releases a shard, and only while all runs are empty. Both runs therefore stay
// valid: the one that the caller uses, and the next one, whose bytes are being prefetched.
//
// Memory is prefetched in tight loops. In a random order a sample's page misses the TLB, and the
// page lookup takes longer than anything else. The CPU overlaps several lookups, but only if the
// accesses are at most a few hundred instructions apart.

namespace shardwise::detail {

namespace {
constexpr std::uint64_t kLineBytes = 64;
}  // namespace

SampleCursor::SampleCursor(const Dataset& data, std::span<const std::uint64_t> indices,
                           std::size_t max_shards, std::uint64_t ahead_bytes)
    : data_(data),
      indices_(indices),
      size_(data.size()),
      finder_(shard_finder_of(data.index())),
      ahead_bytes_(ahead_bytes),
      held_(max_shards) {
  const std::size_t max = std::min(kMaxRun, indices.size());
  now_.samples.reset(new Sample[max]);
  next_.samples.reset(new Sample[max]);
}

SampleCursor::~SampleCursor() {
  clear(now_);
  clear(next_);
}

void SampleCursor::clear(Run& run) noexcept {
  for (std::size_t i = 0; i < run.size; ++i) {
    Sample& sample = run.samples[i];
    if (sample.own_) {
      sample = Sample();
    } else {
      sample.pin_ = nullptr;
    }
  }
  run.size = 0;
}

std::uint64_t SampleCursor::number_of(std::uint64_t index) const noexcept {
  return data_.selection_ ? data_.selection_->numbers[index] : index;
}

std::span<const Sample> SampleCursor::next_run() {
  clear(now_);
  std::swap(now_, next_);
  if (now_.size == 0) {
    if (at_ == indices_.size()) return {};
    prefetch_records();
    open_into(now_);
    fill(now_);
    prefetch_bytes(now_);
  }
  prefetch_records();
  fill(next_);
  prefetch_bytes(next_);
  return {now_.samples.get(), now_.size};
}

/// Returns the slot of the sample's shard, if the cursor holds the shard or can pin it because it
/// is open; otherwise null.
const SampleCursor::Held* SampleCursor::find_held(std::uint64_t number) noexcept {
  const std::uint64_t shard = finder_.shard_of(number);
  Held& held = place_of(shard);
  if (held.shard) return held.number == shard ? &held : nullptr;
  auto found = data_.impl_->pool.find(shard);
  if (!found || found->data == nullptr || found->cached.is_pinned()) return nullptr;
  held = {std::move(found), shard};
  return &held;
}

/// Adds samples to the run, as long as their shards are held.
void SampleCursor::fill(Run& run) noexcept {
  const std::size_t max = std::min(kMaxRun, run.size + indices_.size() - at_);
  // A sample that owns its bytes is the only one in its run.
  if (run.size > 0 && run.samples[0].own_) return;
  while (run.size < max) {
    const std::uint64_t index = indices_[at_];
    if (index >= size_) return;
    const std::uint64_t number = number_of(index);
    const Held* const held = find_held(number);
    if (held == nullptr) return;
    borrow(run.samples[run.size++], *held, index, number);
    ++at_;
  }
}

inline void SampleCursor::borrow(Sample& sample, const Held& held, std::uint64_t index,
                                 std::uint64_t number) noexcept {
  const OpenShard& shard = *held.shard;
  sample.pin_ = held.shard.pin();
  sample.shard_ = &shard;
  sample.local_ = static_cast<std::uint32_t>(number - shard.first_sample);
  const auto members = shard.segment.members(sample.local_);
  sample.members_ = members.data();
  sample.num_members_ = static_cast<std::uint32_t>(members.size());
  sample.index_ = index;
}

/// Starts a run with the next sample, and opens its shard if necessary. REQUIRES: all runs are
/// empty.
void SampleCursor::open_into(Run& run) {
  const std::uint64_t index = indices_[at_++];
  if (index >= size_) data_.throw_out_of_range(index);
  const std::uint64_t number = number_of(index);
  const Held* held = find_held(number);
  if (held == nullptr) {
    if (from_cache_ != nullptr) std::exchange(from_cache_, nullptr)->shard = {};
    const std::uint64_t shard = finder_.shard_of(number);
    Held& place = place_of(shard);
    place.shard = {};
    auto opened = data_.impl_->pool.find(shard);
    if (!opened || opened->data == nullptr) {
      if (!ahead_) ahead_ = std::make_unique<RangeAhead>(data_);
      auto arrived = ahead_->take(indices_.subspan(at_ - 1));
      Sample sample = arrived ? *std::move(arrived) : data_[index];
      if (sample.own_) {  // the sample owns its bytes, or its shard is being fetched
        run.samples[0] = std::move(sample);
        run.size = 1;
        return;
      }
      opened = data_.impl_->pool.get(shard);
    }
    if (opened->cached.is_pinned()) from_cache_ = &place;
    place = {std::move(opened), shard};
    held = &place;
  }
  borrow(run.samples[0], *held, index, number);
  run.size = 1;
}

/// Prefetches the records of the samples in the next two runs.
void SampleCursor::prefetch_records() noexcept {
  std::array<const void*, 2 * kMaxRun> records;
  std::size_t count = 0;
  const std::size_t end = std::min(at_ + 2 * kMaxRun, indices_.size());
  for (expected_ = std::max(expected_, at_); expected_ < end; ++expected_) {
    const std::uint64_t index = indices_[expected_];
    if (index >= size_) continue;
    const std::uint64_t number = number_of(index);
    const Held* const held = find_held(number);
    if (held == nullptr) continue;
    const OpenShard& shard = *held->shard;
    records[count++] =
        shard.segment.first_record(static_cast<std::uint32_t>(number - shard.first_sample));
  }
  for (std::size_t i = 0; i < count; ++i) __builtin_prefetch(records[i]);
}

/// Prefetches the first bytes of each field of the samples in a run.
void SampleCursor::prefetch_bytes(const Run& run) noexcept {
  std::array<const char*, 4 * kMaxRun> lines;
  std::size_t count = 0;
  const auto ask = [&] {
    for (std::size_t i = 0; i < count; ++i) __builtin_prefetch(lines[i]);
    count = 0;
  };
  for (std::size_t i = 0; i < run.size; ++i) {
    const Sample& sample = run.samples[i];
    if (sample.own_) return;
    for (const MemberRecord& member : std::span(sample.members_, sample.num_members_)) {
      const char* const bytes = sample.shard_->data + member.data_offset();
      const std::uint64_t max = std::min(member.size_bytes, ahead_bytes_);
      for (std::uint64_t at = 0; at < max; at += kLineBytes) {
        if (count == lines.size()) ask();
        lines[count++] = bytes + at;
      }
    }
  }
  ask();
}

}  // namespace shardwise::detail
