#include "data/shard_reader.h"

#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <string>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/offset_table.h"
#include "index/remedies.h"
#include "index/segment_of.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {
namespace {

/// Members with a smaller gap between them are read together. The gap usually contains only
/// headers.
constexpr std::uint64_t kMaxGap = std::uint64_t{64} * 1024;

std::unique_ptr<char[]> allocate(std::uint64_t size, const Sample& sample) {
  try {
    return std::make_unique_for_overwrite<char[]>(size);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kIo, "cannot allocate the " + human_bytes(size) + " of a sample",
                sample.describe(),
                "give the process more memory, or map the shards (" +
                    spelled("Dataset::Access::kMap") + ")");
  }
}

std::unique_ptr<const ShardFile> open_file(const Index& index, std::uint64_t number) {
  const Index::Shard info = index.shard(number);
  auto opened = std::make_unique<ShardFile>();
  opened->file = finding(index, info, [&] { return File::open_read(info.path); });
  opened->identity = file_identity(opened->file.fd(), info.path);
  require_indexed(info, info.any_time ? segment_of(index, number) : SegmentView(), opened->identity,
                  reader_of(opened->file));
  return opened;
}

/// Returns the first member whose bytes do not match the index's hash; null if all match.
const MemberRecord* find_wrong(const OwnBytes& bytes, const SegmentView& segment,
                               std::span<const MemberRecord> members) {
  if (!segment.has_member_hashes()) return nullptr;
  const auto first = static_cast<std::uint32_t>(members.data() - segment.members().data());
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const std::string_view came(bytes.bytes.get() + bytes.starts[i], members[i].size_bytes);
    if (hash64(came) != segment.member_hash(first + i)) return &members[i];
  }
  return nullptr;
}

/// Maximum number of fetches of one sample, if each fetch returns different wrong bytes.
constexpr int kMaxFetches = 4;

std::size_t max_descriptors(std::size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, std::max<std::size_t>(wanted, 1));
}

}  // namespace

ShardReader::ShardReader(std::shared_ptr<const Index> index, std::size_t max_files,
                         std::shared_ptr<const Fetchers> fetchers, const CancelToken& cancel)
    : index_(std::move(index)),
      max_files_(max_files),
      fetchers_(fetchers ? std::move(fetchers) : std::make_shared<const Fetchers>()),
      cancel_(cancel) {}

/// Joins nearby members into runs, sorted by offset, because resolved hard links may be out of
/// order. Sets `starts` to each member's offset in the concatenated runs.
std::vector<ShardReader::Run> ShardReader::runs_of(std::span<const MemberRecord> members,
                                                   std::vector<std::size_t>& starts) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return members[a].data_offset() < members[b].data_offset();
  });
  std::vector<Run> runs;
  std::uint64_t before = 0;  // total size of the preceding runs
  starts.resize(members.size());
  for (const std::size_t i : order) {
    const std::uint64_t offset = members[i].data_offset();
    const bool joins = !runs.empty() && offset - runs.back().offset <= runs.back().size + kMaxGap;
    if (!joins) {
      if (!runs.empty()) before += runs.back().size;
      runs.push_back({offset, 0});
    }
    Run& run = runs.back();
    starts[i] = before + (offset - run.offset);
    run.size = std::max(run.size, offset - run.offset + members[i].size_bytes);
  }
  return runs;
}

ShardReader::Files& ShardReader::files() {
  if (Files* const files = made_.load(std::memory_order_acquire)) return *files;
  const Lock lock(mutex_);
  if (!files_) {
    files_ = std::make_unique<Files>(
        index_->num_shards(),
        [index = index_](std::uint64_t number) { return open_file(*index, number); },
        ShardPoolOptions{.max_shards = max_descriptors(max_files_)});
    made_.store(files_.get(), std::memory_order_release);
  }
  return *files_;
}

std::shared_ptr<const OwnBytes> ShardReader::read(const Sample& sample, std::uint64_t number,
                                                  std::uint64_t shard_bytes,
                                                  const SegmentView& segment,
                                                  std::span<const MemberRecord> members) {
  auto result = std::make_shared<OwnBytes>();
  const std::vector<Run> runs = runs_of(members, result->starts);
  std::uint64_t total = 0;
  for (const Run& run : runs) {
    if (run.size > shard_bytes - total) {
      throw CorruptIndex("the index is damaged", sample.describe() + " (its members overlap)",
                         rebuild_remedy(index_->path()));
    }
    total += run.size;
  }
  result->bytes = allocate(total, sample);
  result->at = result->bytes.get();
  if (is_fetched_url(sample.shard_path())) {
    std::uint64_t before = 0;  // hash of the previous fetch's wrong bytes
    for (int fetches = 1;; ++fetches) {
      fetch(*result, runs, number);
      const MemberRecord* const wrong = find_wrong(*result, segment, members);
      if (wrong == nullptr) break;
      const std::uint64_t now = hash64({result->bytes.get(), total});
      if (fetches < kMaxFetches && (fetches == 1 || now != before)) {
        before = now;
        continue;  // the bytes may have been damaged in transit
      }
      throw StaleIndex("the fetched bytes differ from the indexed ones",
                       sample.describe() + ", offset " + std::to_string(wrong->data_offset()),
                       "fetch the shard again; if the shard changed at its source, run " +
                           spelled("`shardwise index` again"));
    }
  } else {
    read_local(*result, runs, sample, number);
  }
  return result;
}

void ShardReader::read_local(OwnBytes& result, const std::vector<Run>& runs, const Sample& sample,
                             std::uint64_t number) {
  const auto opened = with_descriptor([&] { return files().get(number); });
  char* to = result.bytes.get();
  for (const Run& run : runs) {
    std::size_t got = 0;
    try {
      got = opened->file.read_at(run.offset, to, run.size);
    } catch (const Error& e) {
      throw Error(
          e.code(), "cannot read a sample",
          sample.describe() + ", offset " + std::to_string(run.offset) + " (" + e.what() + ")",
          "check the disk, then run again");
    }
    if (got < run.size) {
      FileIdentity now = file_identity(opened->file.fd(), sample.shard_path());
      now.size_bytes = std::min(now.size_bytes, run.offset + got);  // the file may have grown again
      require_same_file(now, opened->identity, sample.describe(), run.offset);
    }
    to += run.size;
  }
  // A write changes the file's time before its bytes. If the time is unchanged, these bytes were
  // read before any write.
  const FileIdentity now = file_identity(opened->file.fd(), sample.shard_path());
  if (now != opened->identity) {
    require_same_file(now, opened->identity, sample.describe(),
                      runs.empty() ? 0 : runs.front().offset);
  }
}

void ShardReader::fetch_run(const Index::Shard& info, const Run& run, char* to) const {
  class BufferSink : public Fetcher::Sink {
   public:
    BufferSink(const std::string& url, char* to, std::uint64_t size)
        : url_(url), to_(to), size_(size) {}
    void write(std::string_view bytes) override {
      if (bytes.size() > size_ - written_) {
        throw FetchError("the source sent more bytes than requested", in_quotes(redacted_url(url_)),
                         "check the server, or the fetcher of this scheme");
      }
      bytes.copy(to_ + written_, bytes.size());
      written_ += bytes.size();
    }
    bool restart() override {
      written_ = 0;
      return true;
    }

   private:
    const std::string& url_;
    char* const to_;
    const std::uint64_t size_;
    std::uint64_t written_ = 0;
  };
  if (run.size == 0) return;
  BufferSink sink(info.path, to, run.size);
  fetchers_->fetch({.url = info.path,
                    .range = {run.offset, run.offset + run.size},
                    .validator = info.validator,
                    .cancel = CancelScope::joined(cancel_)},
                   sink);
}

void ShardReader::fetch(OwnBytes& result, const std::vector<Run>& runs, std::uint64_t number) {
  const Index::Shard info = index_->shard(number);
  char* to = result.bytes.get();
  for (const Run& run : runs) {
    fetch_run(info, run, to);
    to += run.size;
  }
}

bool ShardReader::can_read_parts(const Index::Shard& info) {
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

void ShardReader::require_first_block(const Index::Shard& info) {
  if (index_->content().hashes) return;
  {
    const Lock lock(mutex_);
    if (known_first_.contains(info.number)) return;
  }
  char block[kTarBlockBytes];
  const Run run{0, std::min<std::uint64_t>(info.size_bytes, sizeof block)};
  fetch_run(info, run, block);
  FileIdentity as_indexed;
  as_indexed.size_bytes = info.size_bytes;
  as_indexed.mtime_ns = info.mtime_ns;
  require_indexed(info, SegmentView(), as_indexed,
                  [&](std::uint64_t, std::size_t) { return std::string(block, run.size); });
  const Lock lock(mutex_);
  known_first_.insert(info.number);
}

}  // namespace shardwise::detail
