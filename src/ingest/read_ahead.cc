#include "ingest/read_ahead.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace shardwise {
namespace {

/// Mean member sizes between these two do not change the decision. In the time of one random page
/// read, a solid-state disk reads about 200 KB sequentially; a network or a spinning disk reads
/// more.
constexpr std::uint64_t kSmallBytes = std::uint64_t{192} << 10;
constexpr std::uint64_t kLargeBytes = std::uint64_t{512} << 10;
/// Number of members before the first decision. Later decisions use a running mean over about as
/// many members.
constexpr unsigned kMembers = 8;

}  // namespace

ReadAhead::ReadAhead(std::string_view mapped) : mapped_(mapped) { advise(false); }

void ReadAhead::at(std::uint64_t offset) noexcept {
  const std::uint64_t num_bytes = offset - std::min(offset, std::exchange(last_, offset));
  if (decided_ || mapped_.empty()) return;
  num_passed_ += num_passed_ < kMembers ? 1 : 0;
  mean_bytes_ = mean_bytes_ - mean_bytes_ / num_passed_ + num_bytes / num_passed_;
  if (num_passed_ < kMembers) return;
  if (!ahead_ && mean_bytes_ < kSmallBytes) advise(true);
  if (ahead_ && mean_bytes_ > kLargeBytes) advise(false);
}

void ReadAhead::read_all() noexcept {
  if (!ahead_) advise(true);
  decided_ = true;
}

void ReadAhead::advise(bool ahead) noexcept {
  ahead_ = ahead;
  if (mapped_.empty()) return;
  // Ignore a failure, because it only costs time.
  ::madvise(const_cast<char*>(mapped_.data()), mapped_.size(),
            ahead ? MADV_SEQUENTIAL : MADV_RANDOM);
}

}  // namespace shardwise
