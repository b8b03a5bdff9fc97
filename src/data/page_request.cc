#include "data/page_request.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/url.h"
#include "data/dataset_access.h"
#include "data/dataset_impl.h"
#include "data/joins.h"
#include "data/merged_ranges.h"

namespace shardwise::detail {
namespace {

/// Ranges with a smaller gap are requested as one. Reading the gap costs the disk less than another
/// request, and the gap usually contains samples that are needed soon.
constexpr std::uint64_t kMaxPageGap = std::uint64_t{32} * 1024;
/// By default the kernel's read-ahead limit is 128 KiB. The kernel may ignore the part of a request
/// that exceeds the limit.
constexpr std::uint64_t kPieceBytes = std::uint64_t{128} * 1024;
/// The most pieces of a shard: 2 TiB.
constexpr std::uint64_t kPiecesInShard = std::uint64_t{1} << 24;
/// After this many pieces of ranges, it is decided again whether whole pieces are requested.
constexpr std::size_t kPiecesToDecide = 2048;

std::uint64_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

/// If this fails, the bytes are only read later.
void will_need(const OpenShard& shard, std::uint64_t at, std::uint64_t size) noexcept {
  static_cast<void>(::madvise(const_cast<char*>(shard.data) + at, size, MADV_WILLNEED));
}

}  // namespace

PageRequest::PageRequest(Dataset data, std::optional<std::vector<std::string>> fields)
    : data_(std::move(data)), fields_(std::move(fields)) {
  for (const auto& side : DatasetAccess::joins(data_)) {
    std::optional<std::vector<std::string>> originals;
    if (fields_) {
      originals.emplace();
      for (const std::string& field : *fields_) {
        if (auto original = side->original(field)) originals->push_back(*std::move(original));
      }
      if (originals->empty()) continue;
    }
    joined_.emplace_back(side, PageRequest(side->other, std::move(originals)));
  }
}

void PageRequest::forget() {
  recent_.clear();
  for (auto& [side, request] : joined_) request.forget();
}

bool& PageRequest::RecentPieces::at(std::uint64_t piece, bool& is_new) {
  const auto [place, inserted] = pieces_.try_emplace(piece, false);
  is_new = inserted;
  bool& is_whole = place->second;
  if (!inserted) return is_whole;
  if (in_order_.size() < kMaxPieces) {
    in_order_.push_back(piece);
  } else {
    pieces_.erase(std::exchange(in_order_[next_], piece));
    next_ = (next_ + 1) % kMaxPieces;
  }
  return is_whole;
}

void PageRequest::RecentPieces::clear() {
  pieces_.clear();
  in_order_.clear();
  next_ = 0;
}

std::uint64_t PageRequest::send(std::span<const std::uint64_t> samples) {
  const Index& index = data_.index();
  numbers_.clear();
  for (const std::uint64_t sample : samples) numbers_.push_back(data_.number_in_index(sample));
  std::ranges::sort(numbers_);  // sorted by shard and offset
  std::size_t num_shards = 0;
  for (std::size_t i = 0; i < numbers_.size(); ++num_shards) {
    const std::uint64_t end = index.first_sample(index.shard_of(numbers_[i]) + 1);
    while (i < numbers_.size() && numbers_[i] < end) ++i;
  }
  // Do not open more shards than this: the pool would close them before their samples are read.
  const bool may_open = num_shards <= DatasetAccess::impl(data_).max_pinned_shards();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < numbers_.size();) {
    const std::uint64_t number = index.shard_of(numbers_[i]);
    const std::uint64_t end = index.first_sample(number + 1);
    const ShardHandle<OpenShard> shard = open(number, may_open);
    ranges_.clear();
    wanted_.clear();
    for (std::uint32_t field = 0; shard && fields_ && field < shard->segment.num_fields();
         ++field) {
      if (std::ranges::find(*fields_, shard->segment.field_name(field)) != fields_->end()) {
        wanted_.push_back(field);
      }
    }
    for (; i < numbers_.size() && numbers_[i] < end; ++i) {
      if (shard) add_ranges(*shard, numbers_[i]);
    }
    if (shard) bytes += send_ranges(number, *shard);
  }
  for (auto& [side, request] : joined_)
    bytes += request.send(side->matched(data_, samples).numbers);
  return bytes;
}

/// Returns the shard if it is mapped, or can be mapped without a fetch; otherwise an empty handle.
ShardHandle<OpenShard> PageRequest::open(std::uint64_t shard, bool may_open) const {
  auto& impl = DatasetAccess::impl(data_);
  ShardHandle<OpenShard> found = impl.pool.find(shard);
  if (!found && may_open && impl.access == Dataset::Access::kMap) {
    const Index::Shard info = impl.index->shard(shard);
    if (info.compression == Compression::kNone && !is_fetched_url(info.path)) {
      try {
        found = impl.pool.get(shard);
      } catch (const Error&) {  // the reader of the samples will get the same error
      }
    }
  }
  if (found && found->data == nullptr) return {};
  return found;
}

void PageRequest::add_ranges(const OpenShard& shard, std::uint64_t number) {
  const auto local = static_cast<std::uint32_t>(number - shard.first_sample);
  for (const MemberRecord& member : shard.segment.members(local)) {
    if (member.size_bytes == 0) continue;
    if (fields_ && std::ranges::find(wanted_, member.field()) == wanted_.end()) continue;
    ranges_.push_back({member.data_offset(), member.data_offset() + member.size_bytes});
  }
}

std::uint64_t PageRequest::send_ranges(std::uint64_t number, const OpenShard& shard) {
  // Usually the ranges are already in order, but hard links may point anywhere.
  std::ranges::sort(ranges_, {}, &Range::begin);
  std::uint64_t bytes = 0;
  constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
  for (std::span<const Range> left = ranges_; !left.empty();) {
    MergedRange whole = merge_ranges(left, kMaxPageGap, kAny);
    left = left.subspan(whole.count);
    bytes += send_pieces(number, shard, {whole.begin, whole.end});
    if (asks_whole_) continue;
    whole.begin -= whole.begin % page_bytes();
    for (std::uint64_t at = whole.begin; at < whole.end; at += kPieceBytes) {
      will_need(shard, at, std::min(kPieceBytes, whole.end - at));
    }
    bytes += whole.end - whole.begin;
  }
  return bytes;
}

std::uint64_t PageRequest::send_pieces(std::uint64_t number, const OpenShard& shard, Range range) {
  if (num_seen_ >= kPiecesToDecide) decide();
  std::uint64_t bytes = 0;
  for (std::uint64_t piece = range.begin / kPieceBytes; piece * kPieceBytes < range.end; ++piece) {
    bool is_new = false;
    bool& is_whole = recent_.at(number * kPiecesInShard + piece, is_new);
    ++num_seen_;
    num_repeats_ += is_new ? 0 : 1;
    if (!asks_whole_ || is_whole) continue;
    is_whole = true;
    const std::uint64_t at = piece * kPieceBytes;
    const std::uint64_t size = std::min(kPieceBytes, shard.size_bytes() - at);
    will_need(shard, at, size);
    bytes += size;
  }
  return bytes;
}

/// Begins to request whole pieces if most ranges are in a recent piece, and ends if few are. The
/// limits differ, because a new window begins with pieces that are not recent.
void PageRequest::decide() {
  asks_whole_ = num_repeats_ >= (asks_whole_ ? num_seen_ / 8 : num_seen_ / 4 * 3);
  num_seen_ = num_repeats_ = 0;
}

}  // namespace shardwise::detail
