#include "data/shard_reader.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>

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

std::string place_of(const Sample& sample, std::uint64_t offset) {
  return sample.describe() + ", offset " + std::to_string(offset);
}

/// Fills `to` with the bytes of the file from `offset` on.
/// @param describe  returns the place for errors.
template <class Describe>
void read_run(const ShardFile& opened, std::uint64_t offset, std::span<char> to,
              const Describe& describe) {
  std::size_t got = 0;
  try {
    got = opened.file.read_at(offset, to.data(), to.size());
  } catch (const Error& e) {
    throw Error(e.code(), "cannot read a sample", describe() + " (" + e.what() + ")",
                "check the disk, then run again");
  }
  if (got == to.size()) return;
  FileIdentity now = file_identity(opened.file.fd(), opened.file.path());
  now.size_bytes = std::min(now.size_bytes, offset + got);  // the file may have grown again
  require_same_file(now, opened.identity, describe());
}

/// Throws if the file has changed since it was opened. A write changes the file's time before its
/// bytes. If the time is unchanged, bytes that were read before this call were read before any
/// write.
template <class Describe>
void require_unchanged(const ShardFile& opened, const Describe& describe) {
  const FileIdentity now = file_identity(opened.file.fd(), opened.file.path());
  if (now != opened.identity) require_same_file(now, opened.identity, describe());
}

/// Reads parts of members of a local shard.
class FileParts final : public MemberReader {
 public:
  explicit FileParts(ShardHandle<ShardFile> opened) : opened_(std::move(opened)) {}

  void read(std::span<const MemberPart> parts) const override {
    for (const MemberPart& part : parts) {
      read_run(*opened_, part.offset, part.to, [&] { return part.describe(); });
    }
    require_unchanged(*opened_, [&] { return parts.front().describe(); });
  }
  [[nodiscard]] bool is_remote() const noexcept override { return false; }
  [[nodiscard]] std::size_t cheap_read_bytes() const noexcept override { return 4096; }

 private:
  const ShardHandle<ShardFile> opened_;
};

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

std::shared_ptr<const OwnBytes> ShardReader::read(const Sample& sample, std::uint64_t number,
                                                  std::span<const std::string> in_parts) {
  const SampleMemory memory = make_memory(sample, SampleAccess::shard_of(sample).stored_bytes,
                                          SampleAccess::members_of(sample),
                                          {.names = in_parts, .min_bytes = kMinPartialBytes});
  auto opened = with_descriptor([&] { return files().get(number); });
  for (const SampleMemory::Run& run : memory.runs) {
    read_run(*opened, run.offset, {run.to, run.size}, [&] { return place_of(sample, run.offset); });
  }
  const std::uint64_t first = memory.runs.empty() ? 0 : memory.runs.front().offset;
  require_unchanged(*opened, [&] { return place_of(sample, first); });
  if (has_parts(*memory.bytes)) {
    memory.bytes->reader = std::make_shared<const FileParts>(std::move(opened));
  }
  return memory.bytes;
}

}  // namespace shardwise::detail
