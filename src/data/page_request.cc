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
/// After this many parts of ranges, it is decided again whether whole pieces are requested.
constexpr std::size_t kPartsToDecide = 2048;

std::uint64_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

bool PageRequest::RecentPieces::add(std::uint64_t piece) {
  if (!pieces_.insert(piece).second) return false;
  if (in_order_.size() < kMaxPieces) {
    in_order_.push_back(piece);
  } else {
    pieces_.erase(std::exchange(in_order_[next_], piece));
    next_ = (next_ + 1) % kMaxPieces;
  }
  return true;
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
  for (const auto& side : DatasetAccess::joins(data_)) bytes += send_joined(*side, samples);
  return bytes;
}

/// Requests the bytes of the samples of a joined dataset.
std::uint64_t PageRequest::send_joined(const JoinSide& side,
                                       std::span<const std::uint64_t> samples) const {
  std::optional<std::vector<std::string>> fields;
  if (fields_) {
    fields.emplace();
    for (const std::string& field : *fields_) {
      if (auto original = side.original(field)) fields->push_back(*std::move(original));
    }
    if (fields->empty()) return 0;
  }
  return PageRequest(side.other, fields).send(side.matched(data_, samples).numbers);
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
    for (std::uint64_t at = whole.begin; at < whole.end;) {
      const std::uint64_t end = std::min(whole.end, at - at % kPieceBytes + kPieceBytes);
      bytes += send_piece(number, shard, {at, end});
      at = end;
    }
  }
  return bytes;
}

std::uint64_t PageRequest::send_piece(std::uint64_t number, const OpenShard& shard, Range part) {
  if (num_parts_ == kPartsToDecide) {
    const bool whole = num_repeats_ >= kPartsToDecide / 4 * 3;
    if (whole && !asks_whole_) recent_.clear();  // only parts of them were requested
    asks_whole_ = whole;
    num_parts_ = num_repeats_ = 0;
  }
  ++num_parts_;
  const std::uint64_t piece = part.begin / kPieceBytes;
  const bool is_repeat = !recent_.add(number * kPiecesInShard + piece);
  num_repeats_ += is_repeat ? 1 : 0;
  if (asks_whole_) {
    if (is_repeat) return 0;
    part = {piece * kPieceBytes, std::min((piece + 1) * kPieceBytes, shard.size_bytes())};
  }
  part.begin -= part.begin % page_bytes();
  // If this fails, the bytes are only read later.
  static_cast<void>(
      ::madvise(const_cast<char*>(shard.data) + part.begin, part.end - part.begin, MADV_WILLNEED));
  return part.end - part.begin;
}

}  // namespace shardwise::detail
