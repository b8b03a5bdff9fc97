#include "index/key_index.h"

#include <algorithm>
#include <memory>
#include <queue>

namespace shardwise {

std::uint32_t KeyHash::bucket_bits(std::uint64_t num_samples) noexcept {
  std::uint32_t bits = 0;
  while (bits < 36 && (num_samples >> bits) > 8) ++bits;
  return bits;
}

/// Reads one sorted run of the spill file back, a buffer at a time.
class KeySorter::Run {
 public:
  Run(const File& file, std::uint64_t begin, std::uint64_t end)
      : file_(file), at_(begin), end_(end) {
    refill();
  }
  bool empty() const noexcept { return next_ == buffer_.size(); }
  const Pair& front() const noexcept { return buffer_[next_]; }
  void pop() {
    if (++next_ == buffer_.size()) refill();
  }

 private:
  void refill() {
    constexpr std::uint64_t kPairs = 16384;
    buffer_.resize(std::min(kPairs, end_ - at_));
    next_ = 0;
    file_.read_at(at_ * sizeof(Pair), reinterpret_cast<char*>(buffer_.data()),
                  buffer_.size() * sizeof(Pair));
    at_ += buffer_.size();
  }

  const File& file_;
  std::uint64_t at_;
  std::uint64_t end_;
  std::vector<Pair> buffer_;
  std::size_t next_ = 0;
};

KeySorter::KeySorter(std::string path, std::size_t buffer_pairs)
    : path_(std::move(path)), buffer_pairs_(buffer_pairs) {}
KeySorter::~KeySorter() = default;

void KeySorter::add(std::uint64_t hash, std::uint64_t sample) {
  if (buffer_.size() == buffer_pairs_) spill();
  buffer_.push_back({hash, sample});
  ++size_;
}

void KeySorter::spill() {
  std::sort(buffer_.begin(), buffer_.end());
  if (!file_) file_ = std::make_unique<AtomicFile>(path_);
  file_->file().write(
      {reinterpret_cast<const char*>(buffer_.data()), buffer_.size() * sizeof(Pair)});
  run_ends_.push_back((run_ends_.empty() ? 0 : run_ends_.back()) + buffer_.size());
  buffer_.clear();
}

void KeySorter::drain(const std::function<void(std::uint64_t, std::uint64_t)>& take) {
  if (run_ends_.empty()) {
    std::sort(buffer_.begin(), buffer_.end());
    for (const Pair& pair : buffer_) take(pair.hash, pair.sample);
    return;
  }
  spill();
  std::vector<std::unique_ptr<Run>> runs;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : run_ends_) {
    runs.push_back(std::make_unique<Run>(file_->file(), begin, end));
    begin = end;
  }
  const auto later = [](const Run* a, const Run* b) { return b->front() < a->front(); };
  std::priority_queue<Run*, std::vector<Run*>, decltype(later)> heads(later);
  for (const auto& run : runs) {
    if (!run->empty()) heads.push(run.get());
  }
  while (!heads.empty()) {
    Run* run = heads.top();
    heads.pop();
    take(run->front().hash, run->front().sample);
    run->pop();
    if (!run->empty()) heads.push(run);
  }
}

}  // namespace shardwise
