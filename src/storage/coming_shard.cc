#include "storage/coming_shard.h"

namespace shardwise::detail {

void ComingShard::begin(const File& file) {
  {
    const Lock lock(mutex_);
    if (state_ != State::kWaiting) return;
    state_ = State::kComing;
    file_ = &file;
  }
  changed_.notify_all();
}

void ComingShard::came(std::uint64_t begin, std::uint64_t end) {
  bool is_awaited = false;
  {
    const Lock lock(mutex_);
    there_.add(begin, end);
    is_awaited = !waiting_.empty();
  }
  if (is_awaited) changed_.notify_all();
}

bool ComingShard::end(bool is_kept) noexcept {
  bool is_mapped = false;
  {
    const Lock lock(mutex_);
    if (state_ == State::kWaiting || state_ == State::kComing) {
      state_ = is_kept ? State::kKept : State::kFailed;
    }
    file_ = nullptr;
    is_mapped = is_mapped_;
  }
  changed_.notify_all();
  return is_mapped;
}

std::vector<std::uint64_t> ComingShard::wanted() const {
  const Lock lock(mutex_);
  std::vector<std::uint64_t> bytes;
  bytes.reserve(waiting_.size());
  for (const std::uint64_t begin : waiting_) bytes.push_back(there_.first_missing(begin));
  return bytes;
}

bool ComingShard::is_over() const {
  if (!is_here()) return true;
  const Lock lock(mutex_);
  return state_ == State::kKept || state_ == State::kFailed;
}

std::optional<MappedFile> ComingShard::map(const CancelToken& cancel) {
  if (!is_here()) return std::nullopt;
  const Lock lock(mutex_);
  while (state_ == State::kWaiting) changed_.wait(mutex_, cancel);
  if (state_ != State::kComing) return std::nullopt;
  // The mutex is held, so the file is still open.
  MappedFile map = MappedFile::open(*file_);
  is_mapped_ = true;
  return map;
}

bool ComingShard::wait_for(std::uint64_t begin, std::uint64_t end, const CancelToken& cancel) {
  if (!is_here()) return false;
  const Lock lock(mutex_);
  if (state_ != State::kFailed && there_.contains(begin, end)) return true;
  struct Waiting {
    std::list<std::uint64_t>& all;
    const std::list<std::uint64_t>::iterator mine;
    ~Waiting() { all.erase(mine); }
  } const waiting{waiting_, waiting_.insert(waiting_.end(), begin)};
  while (state_ == State::kWaiting || state_ == State::kComing) {
    if (there_.contains(begin, end)) return true;
    changed_.wait(mutex_, cancel);
  }
  return state_ == State::kKept && there_.contains(begin, end);
}

}  // namespace shardwise::detail
