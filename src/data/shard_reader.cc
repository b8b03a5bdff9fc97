#include "data/shard_reader.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "base/error_types.h"
#include "data/own_bytes.h"
#include "data/sample_access.h"
#include "index/segment_of.h"

namespace shardwise::detail {
namespace {

std::unique_ptr<const ShardFile> open_file(const Index& index, std::uint64_t number) {
  const Index::Shard info = index.shard(number);
  auto opened = std::make_unique<ShardFile>();
  opened->file = finding(index, info, [&] { return File::open_read(info.path); });
  opened->identity = file_identity(opened->file.fd(), info.path);
  require_indexed(info, info.any_time ? segment_of(index, number) : SegmentView(), opened->identity,
                  reader_of(opened->file));
  return opened;
}

std::size_t max_descriptors(std::size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, std::max<std::size_t>(wanted, 1));
}

}  // namespace

ShardReader::ShardReader(std::shared_ptr<const Index> index, std::size_t max_files)
    : index_(std::move(index)), max_files_(max_files) {}

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

std::shared_ptr<const OwnBytes> ShardReader::read(const Sample& sample, std::uint64_t number) {
  const SampleMemory memory = make_memory(sample, SampleAccess::shard_of(sample).stored_bytes,
                                          SampleAccess::members_of(sample));
  const auto opened = with_descriptor([&] { return files().get(number); });
  for (const SampleMemory::Run& run : memory.runs) {
    std::size_t got = 0;
    try {
      got = opened->file.read_at(run.offset, run.to, run.size);
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
  }
  // A write changes the file's time before its bytes. If the time is unchanged, these bytes were
  // read before any write.
  const FileIdentity now = file_identity(opened->file.fd(), sample.shard_path());
  if (now != opened->identity) {
    require_same_file(now, opened->identity, sample.describe(),
                      memory.runs.empty() ? 0 : memory.runs.front().offset);
  }
  return memory.bytes;
}

}  // namespace shardwise::detail
