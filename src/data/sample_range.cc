#include <algorithm>
#include <utility>

#include "data/dataset_impl.h"
#include "data/sample_cursor.h"

namespace shardwise::detail {

namespace {

/// Samples whose memory the CPU is asked for at once: while it looks for the page of one, which in
/// a random order takes longer than anything else, it begins to look for those of the others. One
/// at a time, between other work, it would look for one after the other.
constexpr std::size_t kGroup = 16;

}  // namespace

SampleRange::SampleRange(Dataset data, std::span<const std::uint64_t> numbers)
    : data_(std::move(data)),
      numbers_(numbers),
      cursor_(std::make_unique<SampleCursor>(data_, data_.impl_->shards_to_hold())) {}

SampleRange::~SampleRange() = default;

const Sample* SampleRange::next() {
  if (at_ == numbers_.size()) return nullptr;
  if (at_ % kGroup == 0) expect_group();
  return &cursor_->at(numbers_[at_++]);
}

/// Asks for the records of the group after the next one, and the bytes of the next one.
void SampleRange::expect_group() noexcept {
  const auto group = [this](std::size_t ahead) {
    const std::size_t first = std::min(at_ + ahead * kGroup, numbers_.size());
    return numbers_.subspan(first, std::min(kGroup, numbers_.size() - first));
  };
  if (at_ == 0) {
    cursor_->prefetch_records(group(0));
    cursor_->prefetch_records(group(1));
    cursor_->prefetch_bytes(group(0));
  }
  cursor_->prefetch_records(group(2));
  cursor_->prefetch_bytes(group(1));
}

}  // namespace shardwise::detail
