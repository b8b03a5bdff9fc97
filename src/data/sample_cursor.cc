#include "data/sample_cursor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/dataset_access.h"
#include "data/dataset_impl.h"
#include "data/joins.h"
#include "data/sample_access.h"

// Only open_into() releases a shard, and only while all runs are empty. Both runs therefore stay
// valid: the one that the caller uses, and the next one, whose bytes are being prefetched.
//
// Memory is prefetched in tight loops. In a random order a sample's page misses the TLB, and the
// page lookup takes longer than anything else. The CPU overlaps several lookups, but only if the
// accesses are at most a few hundred instructions apart.

namespace shardwise::detail {

namespace {
constexpr std::uint64_t kLineBytes = 64;

/// Addresses to prefetch. They are prefetched in groups.
class Lines {
 public:
  void add(const void* line) noexcept {
    if (count_ == lines_.size()) prefetch();
    lines_[count_++] = line;
  }
  void prefetch() noexcept {
    for (std::size_t i = 0; i < count_; ++i) __builtin_prefetch(lines_[i]);
    count_ = 0;
  }

 private:
  std::array<const void*, 4 * SampleCursor::kMaxRun> lines_;
  std::size_t count_ = 0;
};

}  // namespace

HeldShards::HeldShards(const Dataset& data, std::size_t max_shards,
                       std::span<const std::string> in_parts)
    : data_(data),
      size_(data.size()),
      in_parts_(in_parts.begin(), in_parts.end()),
      finder_(shard_finder_of(data.index())),
      held_(max_shards) {
  const auto sides = DatasetAccess::joins(data);
  joined_.reserve(sides.size());
  for (const auto& side : sides) {
    const std::size_t max = DatasetAccess::impl(side->other).max_pinned_shards();
    std::vector<std::string> in_parts_of_side;
    for (const std::string& name : in_parts) {
      if (const auto own = side->names->original(name)) in_parts_of_side.emplace_back(*own);
    }
    joined_.emplace_back(side->other, std::min(max_shards, max), in_parts_of_side);
  }
}

void HeldShards::prepare(Sample& sample) const {
  const auto sides = DatasetAccess::joins(data_);
  std::unique_ptr<JoinedSample> first;
  for (std::size_t i = joined_.size(); i-- > 0;) {
    auto joined = std::make_unique<JoinedSample>(sides[i]->names);
    joined_[i].prepare(joined->sample);
    joined->next = std::move(first);
    first = std::move(joined);
  }
  SampleAccess::set_joined(sample, std::move(first));
}

void HeldShards::release(Sample& sample) noexcept {
  if (sample.own_) {  // its pin is not that of a held shard
    if (sample.pin_ != nullptr) sample.pin_->unpin();
    sample.own_.reset();
  }
  sample.pin_ = nullptr;
  for (auto* other = sample.joined_; other != nullptr; other = other->next.get()) {
    release(other->sample);
    other->sample.shard_ = nullptr;
    other->sample.num_members_ = 0;
  }
}

bool HeldShards::owns_bytes(const Sample& sample) noexcept {
  if (sample.own_) return true;
  const auto* other = sample.joined_;
  while (other != nullptr && !owns_bytes(other->sample)) other = other->next.get();
  return other != nullptr;
}

template <class Add>
void HeldShards::each_line(const Sample& sample, std::uint64_t max_bytes, const Add& add) noexcept {
  for (std::size_t i = 0; !sample.own_ && i < sample.num_members_; ++i) {
    const MemberRecord& member = sample.members_[i];
    const char* const bytes = sample.shard_->data + member.data_offset();
    const std::uint64_t max = std::min(member.size_bytes, max_bytes);
    for (std::uint64_t at = 0; at < max; at += kLineBytes) add(bytes + at);
  }
  for (const auto* other = sample.joined_; other != nullptr; other = other->next.get()) {
    each_line(other->sample, max_bytes, add);
  }
}

std::uint64_t HeldShards::number_of(std::uint64_t index) const noexcept {
  return data_.selection_ ? data_.selection_->numbers[index] : index;
}

/// Returns the slot of the sample's shard, if the cursor holds the shard or can pin it because it
/// is open; otherwise null.
const HeldShards::Held* HeldShards::find_held(std::uint64_t number) noexcept {
  const std::uint64_t shard = finder_.shard_of(number);
  Held& held = place_of(shard);
  if (held.shard) return held.number == shard ? &held : nullptr;
  auto found = data_.impl_->pool.find(shard);
  if (!found || found->data == nullptr || found->cached.is_pinned()) return nullptr;
  held = {std::move(found), shard};
  return &held;
}

inline void HeldShards::set(Sample& sample, const Held& held, std::uint64_t index,
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

bool HeldShards::try_borrow(Sample& sample, std::uint64_t index) noexcept {
  const std::uint64_t number = number_of(index);
  const Held* const held = find_held(number);
  if (held == nullptr) return false;
  set(sample, *held, index, number);
  if (joined_.empty() || try_borrow_joined(sample, number)) [[likely]]
    return true;
  release(sample);
  return false;
}

bool HeldShards::try_borrow_joined(Sample& sample, std::uint64_t number) noexcept {
  const auto sides = DatasetAccess::joins(data_);
  auto* other = sample.joined_;
  for (std::size_t i = 0; i < joined_.size(); ++i, other = other->next.get()) {
    const auto match = sides[i]->matches.of(number);
    if (match && !joined_[i].try_borrow(other->sample, *match)) return false;
  }
  return true;
}

void HeldShards::borrow(Sample& sample, std::span<const std::uint64_t> coming) {
  const std::uint64_t index = coming.front();
  if (index >= size_) data_.throw_out_of_range(index);
  const std::uint64_t number = number_of(index);
  try {
    borrow_own(sample, coming, number);
    const auto sides = DatasetAccess::joins(data_);
    auto* other = sample.joined_;
    for (std::size_t i = 0; i < joined_.size(); ++i, other = other->next.get()) {
      const auto match = sides[i]->matches.of(number);
      if (!match) continue;
      if (!DatasetAccess::reads_ranges(sides[i]->other)) {
        joined_[i].borrow(other->sample, {&*match, 1});
        continue;
      }
      std::vector<std::uint64_t> others;
      for (const std::uint64_t one :
           coming.first(std::min(coming.size(), RangeAhead::kMaxSamples))) {
        if (one >= size_) continue;
        if (const auto found = sides[i]->matches.of(number_of(one))) others.push_back(*found);
      }
      joined_[i].borrow(other->sample, others);
    }
  } catch (...) {
    release(sample);
    throw;
  }
}

/// Does what borrow() does, without the joined samples.
void HeldShards::borrow_own(Sample& sample, std::span<const std::uint64_t> coming,
                            std::uint64_t number) {
  const Held* held = find_held(number);
  if (held == nullptr) {
    if (from_cache_ != nullptr) std::exchange(from_cache_, nullptr)->shard = {};
    const std::uint64_t shard = finder_.shard_of(number);
    Held& place = place_of(shard);
    place.shard = {};
    auto opened = data_.impl_->pool.find(shard);
    if (!opened || opened->data == nullptr) {
      if (!ahead_) ahead_ = std::make_unique<RangeAhead>(data_, in_parts_);
      auto arrived = ahead_->take(coming);
      Sample own = arrived ? *std::move(arrived) : data_.sample_without_joins(number, in_parts_);
      if (own.own_) {  // the sample owns its bytes, or its shard is being fetched
        std::swap(own.joined_, sample.joined_);
        sample = std::move(own);
        sample.index_ = coming.front();
        return;
      }
      opened = data_.impl_->pool.get(shard);
    }
    if (opened->cached.is_pinned()) from_cache_ = &place;
    place = {std::move(opened), shard};
    held = &place;
  }
  set(sample, *held, coming.front(), number);
}

void HeldShards::prefetch_records(std::span<const std::uint64_t> indices) noexcept {
  Lines lines;
  for (const std::uint64_t index : indices) {
    if (index >= size_) continue;
    const std::uint64_t number = number_of(index);
    const Held* const held = find_held(number);
    if (held == nullptr) continue;
    const OpenShard& shard = *held->shard;
    lines.add(shard.segment.first_record(static_cast<std::uint32_t>(number - shard.first_sample)));
  }
  lines.prefetch();
  const auto sides = DatasetAccess::joins(data_);
  for (std::size_t i = 0; i < joined_.size(); ++i) {
    const SampleMatches& matches = sides[i]->matches;
    for (const std::uint64_t index : indices) {
      if (index < size_) __builtin_prefetch(matches.entry(number_of(index)));
    }
    std::array<std::uint64_t, 2 * SampleCursor::kMaxRun> others;
    std::size_t count = 0;
    for (const std::uint64_t index : indices) {
      if (index >= size_ || count == others.size()) continue;
      if (const auto match = matches.of(number_of(index))) others[count++] = *match;
    }
    joined_[i].prefetch_records({others.data(), count});
  }
}

SampleCursor::SampleCursor(const Dataset& data, std::span<const std::uint64_t> indices,
                           std::size_t max_shards, std::uint64_t ahead_bytes,
                           std::span<const std::string> in_parts)
    : indices_(indices),
      size_(data.size()),
      ahead_bytes_(ahead_bytes),
      shards_(data, max_shards, in_parts) {
  const std::size_t max = std::min(kMaxRun, indices.size());
  now_.samples.reset(new Sample[max]);
  next_.samples.reset(new Sample[max]);
  if (DatasetAccess::joins(data).empty()) return;
  for (std::size_t i = 0; i < max; ++i) {
    shards_.prepare(now_.samples[i]);
    shards_.prepare(next_.samples[i]);
  }
}

SampleCursor::~SampleCursor() {
  clear(now_);
  clear(next_);
}

void SampleCursor::clear(Run& run) noexcept {
  for (std::size_t i = 0; i < run.size; ++i) HeldShards::release(run.samples[i]);
  run.size = 0;
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

/// Adds samples to the run, as long as their shards are held.
void SampleCursor::fill(Run& run) noexcept {
  const std::size_t max = std::min(kMaxRun, run.size + indices_.size() - at_);
  // A sample that owns its bytes is the only one in its run.
  if (run.size > 0 && HeldShards::owns_bytes(run.samples[0])) return;
  while (run.size < max) {
    const std::uint64_t index = indices_[at_];
    if (index >= size_ || !shards_.try_borrow(run.samples[run.size], index)) return;
    ++run.size;
    ++at_;
  }
}

/// Starts a run with the next sample, and opens its shards if necessary. REQUIRES: all runs are
/// empty.
void SampleCursor::open_into(Run& run) {
  ++at_;
  shards_.borrow(run.samples[0], indices_.subspan(at_ - 1));
  run.size = 1;
}

/// Prefetches the records of the samples in the next two runs.
void SampleCursor::prefetch_records() noexcept {
  const std::size_t end = std::min(at_ + 2 * kMaxRun, indices_.size());
  expected_ = std::max(expected_, at_);
  if (expected_ >= end) return;
  shards_.prefetch_records(indices_.subspan(expected_, end - expected_));
  expected_ = end;
}

/// Prefetches the first bytes of each field of the samples in a run.
void SampleCursor::prefetch_bytes(const Run& run) noexcept {
  Lines lines;
  const auto add = [&](const char* line) { lines.add(line); };
  for (std::size_t i = 0; i < run.size; ++i) {
    HeldShards::each_line(run.samples[i], ahead_bytes_, add);
  }
  lines.prefetch();
}

}  // namespace shardwise::detail
