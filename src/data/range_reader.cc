#include "data/range_reader.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "data/merged_ranges.h"
#include "data/open_shard.h"
#include "data/sample_access.h"
#include "index/offset_table.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {
namespace {

/// Ranges with a smaller gap are fetched as one, if nothing is known about the speed of the store.
constexpr std::uint64_t kMinGap = std::uint64_t{64} << 10;
/// Larger gaps are never fetched: they would cost too many bytes.
constexpr std::uint64_t kMaxGap = std::uint64_t{1} << 20;
/// Maximum number of fetches of one sample, if each fetch returns different wrong bytes.
constexpr int kMaxFetches = 4;

/// Returns the first member whose bytes do not match the index's hash; null if all match.
const MemberRecord* find_wrong(const OwnBytes& bytes, const OpenShard& shard,
                               std::span<const MemberRecord> members) {
  const SegmentView& segment = shard.segment;
  if (!segment.has_member_hashes()) return nullptr;
  const auto first = static_cast<std::uint32_t>(members.data() - segment.members().data());
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const std::string_view came(bytes.bytes.get() + bytes.starts[i], members[i].size_bytes);
    if (hash64(came) != segment.member_hash(first + i)) return &members[i];
  }
  return nullptr;
}

/// Returns the fields that may be fetched in parts: none if the index has hashes, because they are
/// those of whole members.
FieldsInParts fields_in_parts(const OpenShard& shard, std::span<const std::string> names) {
  if (shard.segment.has_member_hashes()) return {};
  return {.names = names, .min_bytes = RangeReader::kMinPartialBytes};
}

/// A part of a fetched range, and the memory where it is needed.
struct Piece {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  char* to = nullptr;
  std::uint64_t* num_missing = nullptr;
};

/// Copies the bytes of a fetched range to where they are needed, and drops the other bytes.
class ScatterSink : public Fetcher::Sink {
 public:
  /// @param pieces  parts of the range [begin, end), sorted by their begin.
  ScatterSink(const std::string& url, std::span<const Piece> pieces, std::uint64_t end)
      : url_(url), pieces_(pieces), end_(end), at_(pieces.front().begin) {}

  void write(std::string_view bytes) override {
    if (bytes.size() > end_ - at_) {
      throw FetchError("the source sent more bytes than requested", in_quotes(redacted_url(url_)),
                       "check the server, or the fetcher of this scheme");
    }
    const std::uint64_t last = at_ + bytes.size();
    for (const Piece& piece : pieces_) {
      if (piece.begin >= last) break;
      const std::uint64_t from = std::max(piece.begin, at_);
      const std::uint64_t to = std::min(piece.end, last);
      if (from >= to) continue;
      bytes.substr(from - at_, to - from).copy(piece.to + (from - piece.begin), to - from);
    }
    at_ = last;
  }
  bool restart() override {
    at_ = pieces_.front().begin;
    return true;
  }
  /// Counts the pieces that have arrived.
  void count() const {
    for (const Piece& piece : pieces_) {
      if (piece.end <= at_) *piece.num_missing -= piece.end - piece.begin;
    }
  }

 private:
  const std::string& url_;
  const std::span<const Piece> pieces_;
  const std::uint64_t end_;
  std::uint64_t at_;
};

/// Adds the pieces of a run. A long run is several pieces.
void add_pieces(const SampleMemory::Run& run, std::uint64_t& num_missing,
                std::vector<Piece>& pieces) {
  for (std::uint64_t at = 0; at < run.size; at += RangeReader::kMaxRangeBytes) {
    const std::uint64_t size = std::min(RangeReader::kMaxRangeBytes, run.size - at);
    const std::uint64_t begin = run.offset + at;
    pieces.push_back({begin, begin + size, run.to + at, &num_missing});
  }
}

Fetcher::Request request_for(const Index::Shard& info, std::uint64_t begin, std::uint64_t end,
                             const CancelToken& cancel) {
  return {.url = info.path,
          .range = {begin, end},
          .validator = info.validator,
          .cancel = CancelScope::joined(cancel)};
}

/// Fetches pieces of shards with few requests: nearby pieces are fetched as one range, and several
/// ranges at a time. Each range gets one attempt.
class MergedFetch {
 public:
  MergedFetch(const Fetchers& fetchers, const CancelToken& cancel)
      : fetchers_(fetchers), cancel_(cancel) {}

  /// Lifetime: `pieces`, which are sorted here, must outlive this object.
  /// @param max_gap  larger gaps are not fetched, even if that would be faster.
  void add(const Index::Shard& info, std::vector<Piece>& pieces, std::uint64_t max_gap) {
    const std::string& url = urls_.emplace_back(info.path);
    const std::uint64_t gap = std::clamp(fetchers_.max_gap_bytes(url), kMinGap, max_gap);
    std::ranges::sort(pieces, {}, &Piece::begin);
    for (std::span<const Piece> left = pieces; !left.empty();) {
      const MergedRange merged = merge_ranges(left, gap, RangeReader::kMaxRangeBytes);
      ScatterSink& sink = sinks_.emplace_back(url, left.first(merged.count), merged.end);
      parts_.push_back(
          {.request = request_for(info, merged.begin, merged.end, cancel_), .sink = &sink});
      left = left.subspan(merged.count);
    }
  }
  /// Subtracts the bytes that arrived from each piece's `num_missing`.
  /// Errors: Cancelled.
  void run() {
    if (!parts_.empty()) fetchers_.fetch_parts(parts_);
    for (const ScatterSink& sink : sinks_) sink.count();
  }

 private:
  const Fetchers& fetchers_;
  const CancelToken& cancel_;
  std::deque<std::string> urls_;
  std::deque<ScatterSink> sinks_;
  std::vector<Fetcher::Part> parts_;
};

}  // namespace

RangeReader::RangeReader(std::shared_ptr<const Index> index,
                         std::shared_ptr<const Fetchers> fetchers, const CancelToken& cancel)
    : index_(std::move(index)),
      fetchers_(fetchers ? std::move(fetchers) : std::make_shared<const Fetchers>()),
      cancel_(cancel) {}

void RangeReader::fetch(const Index::Shard& info, const SampleMemory::Run& run) const {
  if (run.size == 0) return;
  const Piece piece{run.offset, run.offset + run.size, run.to, nullptr};
  ScatterSink sink(info.path, {&piece, 1}, piece.end);
  fetchers_->fetch(request_for(info, piece.begin, piece.end, cancel_), sink);
}

/// Reads parts of members of a remote shard, whose version the server checks at each request.
class RangeReader::Parts final : public MemberReader {
 public:
  Parts(const RangeReader& like, Index::Shard info)
      : ranges_(like.index_, like.fetchers_, like.cancel_), info_(std::move(info)) {}

  void read(std::span<const MemberPart> parts) const override {
    try {
      fetch_all(parts);
    } catch (const NotFound& error) {  // to callers NotFound means that the sample lacks a field
      throw StaleIndex(
          "the shard is gone since it was opened",
          parts.front().describe() + " (" + error.what() + ")",
          "restore the shard; if it has moved, run " + spelled("`shardwise index` again"));
    }
  }
  [[nodiscard]] bool is_remote() const noexcept override { return true; }
  [[nodiscard]] std::size_t cheap_read_bytes() const noexcept override {
    try {
      return std::clamp(ranges_.fetchers_->max_gap_bytes(info_.path), kMinGap, kMaxGap);
    } catch (const Error&) {
      return kMinGap;
    }
  }

 private:
  void fetch_all(std::span<const MemberPart> parts) const {
    std::vector<std::uint64_t> missing(parts.size());
    if (parts.size() > 1) fetch_merged(parts, missing);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const MemberPart& part = parts[i];
      if (parts.size() > 1 && missing[i] == 0) continue;
      ranges_.fetch(info_, {.offset = part.offset, .size = part.to.size(), .to = part.to.data()});
    }
  }
  /// Sets `missing` to the number of bytes of each part that did not arrive.
  void fetch_merged(std::span<const MemberPart> parts, std::vector<std::uint64_t>& missing) const {
    std::vector<Piece> pieces;
    pieces.reserve(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& [sample, field, begin, to] = parts[i];
      missing[i] = to.size();
      pieces.push_back({begin, begin + to.size(), to.data(), &missing[i]});
    }
    MergedFetch fetch(*ranges_.fetchers_, ranges_.cancel_);
    // Many small parts, e.g. headers of key frames, must not add up to the whole field.
    fetch.add(info_, pieces, kMinGap);
    fetch.run();
  }

  const RangeReader ranges_;
  const Index::Shard info_;
};

std::shared_ptr<const MemberReader> RangeReader::parts_of(const Index::Shard& info) const {
  return std::make_shared<const Parts>(*this, info);
}

RangedSample RangeReader::prepare(Sample sample, std::span<const std::string> in_parts) {
  const OpenShard& shard = SampleAccess::shard_of(sample);
  RangedSample ranged{.sample = std::move(sample), .memory = {}};
  ranged.memory =
      make_memory(ranged.sample, shard.stored_bytes, SampleAccess::members_of(ranged.sample),
                  fields_in_parts(shard, in_parts));
  for (const SampleMemory::Run& run : ranged.memory.runs) ranged.num_missing += run.size;
  return ranged;
}

std::shared_ptr<const OwnBytes> RangeReader::read(const Sample& sample, std::uint64_t number,
                                                  std::span<const std::string> in_parts) {
  const Index::Shard info = index_->shard(number);
  const OpenShard& shard = SampleAccess::shard_of(sample);
  const std::span<const MemberRecord> members = SampleAccess::members_of(sample);
  const SampleMemory memory =
      make_memory(sample, shard.stored_bytes, members, fields_in_parts(shard, in_parts));
  if (has_parts(*memory.bytes)) memory.bytes->reader = parts_of(info);
  std::uint64_t before = 0;  // hash of the previous fetch's wrong bytes
  for (int fetches = 1;; ++fetches) {
    for (const SampleMemory::Run& run : memory.runs) fetch(info, run);
    const MemberRecord* const wrong = find_wrong(*memory.bytes, shard, members);
    if (wrong == nullptr) return memory.bytes;
    const std::uint64_t now = hash64({memory.bytes->bytes.get(), memory.size_bytes});
    if (fetches < kMaxFetches && (fetches == 1 || now != before)) {
      before = now;
      continue;  // the bytes may have been damaged in transit
    }
    throw StaleIndex("the fetched bytes differ from the indexed ones",
                     sample.describe() + ", offset " + std::to_string(wrong->data_offset()),
                     "fetch the shard again; if the shard changed at its source, run " +
                         spelled("`shardwise index` again"));
  }
}

void RangeReader::read_many(std::span<RangedSample> samples) {
  std::map<std::uint64_t, std::vector<Piece>> by_shard;
  for (RangedSample& ranged : samples) {
    std::vector<Piece>& pieces = by_shard[index_->shard_of(ranged.sample.number_in_index())];
    for (const auto& run : ranged.memory.runs) add_pieces(run, ranged.num_missing, pieces);
  }
  MergedFetch fetch(*fetchers_, cancel_);
  for (auto& [number, pieces] : by_shard) fetch.add(index_->shard(number), pieces, kMaxGap);
  fetch.run();
  for (RangedSample& ranged : samples) {
    OwnBytes& bytes = *ranged.memory.bytes;
    if (has_parts(bytes)) {
      bytes.reader = parts_of(index_->shard(index_->shard_of(ranged.sample.number_in_index())));
    }
    ranged.is_here = ranged.num_missing == 0 &&
                     find_wrong(*ranged.memory.bytes, SampleAccess::shard_of(ranged.sample),
                                SampleAccess::members_of(ranged.sample)) == nullptr;
  }
}

bool RangeReader::can_read_parts(const Index::Shard& info) {
  {
    const Lock lock(mutex_);
    const auto known = gives_parts_.find(info.number);
    if (known != gives_parts_.end()) return known->second;
  }
  try {
    const bool gives_parts = fetchers_
                                 ->stat({.url = info.path,
                                         .validator = info.validator,
                                         .cancel = CancelScope::joined(cancel_)})
                                 .has_ranges;
    const Lock lock(mutex_);
    return gives_parts_.emplace(info.number, gives_parts).first->second;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error&) {
    return false;  // fetching the whole shard succeeds or reports the error
  }
}

bool RangeReader::is_first_known(std::uint64_t shard) {
  if (index_->content().hashes) return true;
  const Lock lock(mutex_);
  return known_first_.contains(shard);
}

void RangeReader::check_first_block(const Index::Shard& info, std::string_view block) {
  FileIdentity as_indexed;
  as_indexed.size_bytes = info.size_bytes;
  as_indexed.mtime_ns = info.mtime_ns;
  require_indexed(info, SegmentView(), as_indexed,
                  [&](std::uint64_t, std::size_t) { return std::string(block); });
  const Lock lock(mutex_);
  known_first_.insert(info.number);
}

void RangeReader::require_first_block(const Index::Shard& info) {
  if (is_first_known(info.number)) return;
  char block[kTarBlockBytes];
  const std::uint64_t size = std::min<std::uint64_t>(info.size_bytes, sizeof block);
  fetch(info, {.offset = 0, .size = size, .to = block});
  check_first_block(info, {block, size});
}

void RangeReader::check_first_blocks(std::span<const std::uint64_t> shards) {
  struct First {
    Index::Shard info;
    char block[kTarBlockBytes];
    std::uint64_t num_missing = 0;
    Piece piece = {};
    std::optional<ScatterSink> sink = {};
  };
  std::deque<First> firsts;
  std::vector<Fetcher::Part> parts;
  for (const std::uint64_t shard : shards) {
    if (is_first_known(shard)) continue;
    First& first = firsts.emplace_back(First{.info = index_->shard(shard), .block = {}});
    const std::uint64_t size = std::min<std::uint64_t>(first.info.size_bytes, kTarBlockBytes);
    if (size == 0) {
      firsts.pop_back();
      continue;
    }
    first.num_missing = size;
    first.piece = {0, size, first.block, &first.num_missing};
    first.sink.emplace(first.info.path, std::span<const Piece>(&first.piece, 1), size);
    parts.push_back({.request = request_for(first.info, 0, size, cancel_), .sink = &*first.sink});
  }
  if (parts.size() < 2) return;  // a single block is fetched when its shard is opened
  fetchers_->fetch_parts(parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is_complete) continue;
    const First& first = firsts[i];
    try {
      check_first_block(first.info, {first.block, first.piece.end});
    } catch (const Error&) {  // opening the shard throws the error
    }
  }
}

}  // namespace shardwise::detail
