#include "index/key_index.h"

#include <algorithm>
#include <memory>
#include <queue>

#include "base/assert.h"
#include "base/hasher.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

std::uint64_t num_blocks(std::uint64_t num_words) noexcept {
  return (num_words + KeyIndex::kBlockWords - 1) / KeyIndex::kBlockWords;
}

std::string_view bytes_of_words(const std::uint64_t* words, std::uint64_t count) noexcept {
  return {reinterpret_cast<const char*>(words), count * sizeof(std::uint64_t)};
}

/// Writes one array of the key section through a buffer of whole blocks.
class BlockWriter {
 public:
  BlockWriter(File& file, std::uint64_t offset) : file_(file), offset_(offset) {}

  std::uint64_t size() const noexcept { return written_ + buffer_.size(); }
  const std::vector<std::uint64_t>& hashes() const noexcept { return hashes_; }
  void add(std::uint64_t word) {
    buffer_.push_back(word);
    if (buffer_.size() == kBufferWords) flush();
  }
  void flush() {
    for (std::size_t at = 0; at < buffer_.size(); at += KeyIndex::kBlockWords) {
      const std::uint64_t count =
          std::min<std::uint64_t>(KeyIndex::kBlockWords, buffer_.size() - at);
      hashes_.push_back(hash64(bytes_of_words(buffer_.data() + at, count), hashes_.size()));
    }
    file_.write_at(offset_ + written_ * sizeof(std::uint64_t),
                   bytes_of_words(buffer_.data(), buffer_.size()));
    written_ += buffer_.size();
    buffer_.clear();
  }

 private:
  static constexpr std::size_t kBufferWords = KeyIndex::kBlockWords * 512;

  File& file_;
  const std::uint64_t offset_;
  std::uint64_t written_ = 0;
  std::vector<std::uint64_t> buffer_;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace

std::uint32_t KeyHash::bucket_bits(std::uint64_t num_samples) noexcept {
  std::uint32_t bits = 0;
  while (bits < 36 && (num_samples >> bits) > 8) ++bits;
  return bits;
}

KeyIndex::KeyIndex(const std::uint64_t* words, std::uint32_t bucket_bits,
                   std::uint64_t num_samples) noexcept
    : bucket_bits_(bucket_bits) {
  starts_ = {words, nullptr, (std::uint64_t{1} << bucket_bits) + 1};
  entries_ = {words + starts_.size, nullptr, num_samples};
  starts_.hashes = entries_.words + entries_.size;
  entries_.hashes = starts_.hashes + num_blocks(starts_.size);
}

std::uint64_t KeyIndex::num_words(std::uint32_t bucket_bits, std::uint64_t num_samples) noexcept {
  const std::uint64_t starts = (std::uint64_t{1} << bucket_bits) + 1;
  return starts + num_samples + num_blocks(starts) + num_blocks(num_samples);
}

bool KeyIndex::Checked::is_intact(std::uint64_t begin, std::uint64_t end) const noexcept {
  for (std::uint64_t block = begin / kBlockWords; block < num_blocks(end); ++block) {
    const std::uint64_t first = block * kBlockWords;
    if (hash64(bytes_of_words(words + first, std::min(kBlockWords, size - first)), block) !=
        hashes[block]) {
      return false;
    }
  }
  return true;
}

std::optional<std::span<const std::uint64_t>> KeyIndex::find(std::uint64_t hash) const noexcept {
  const std::uint64_t bucket = KeyHash::bucket(hash, bucket_bits_);
  if (!starts_.is_intact(bucket, bucket + 2)) return std::nullopt;
  const std::uint64_t begin = starts_.words[bucket];
  const std::uint64_t end = starts_.words[bucket + 1];
  if (begin > end || end > entries_.size) return std::nullopt;
  if (begin == end) return std::span<const std::uint64_t>();
  if (!entries_.is_intact(begin, end)) return std::nullopt;
  const std::uint64_t first = KeyHash::entry(hash, bucket_bits_, 0);
  const auto range = std::equal_range(
      entries_.words + begin, entries_.words + end, first,
      [](std::uint64_t a, std::uint64_t b) { return (a & ~kSampleMask) < (b & ~kSampleMask); });
  return std::span<const std::uint64_t>(range.first, range.second);
}

bool KeyIndex::has(std::uint64_t hash, std::uint64_t sample) const noexcept {
  const std::uint64_t bucket = KeyHash::bucket(hash, bucket_bits_);
  const std::uint64_t begin = starts_.words[bucket];
  const std::uint64_t end = starts_.words[bucket + 1];
  return begin <= end && end <= entries_.size &&
         std::binary_search(entries_.words + begin, entries_.words + end,
                            KeyHash::entry(hash, bucket_bits_, sample));
}

bool KeyIndex::matches(std::uint64_t hash, std::string_view key) const noexcept {
  const std::uint64_t own = hash64(key);
  return KeyHash::bucket(own, bucket_bits_) == KeyHash::bucket(hash, bucket_bits_) &&
         KeyHash::entry(own, bucket_bits_, 0) == KeyHash::entry(hash, bucket_bits_, 0);
}

bool KeyIndex::for_each_shared(
    const std::function<void(std::span<const std::uint64_t>)>& visit) const {
  for (std::uint64_t bucket = 0; bucket + 1 < starts_.size; ++bucket) {
    const std::uint64_t end = starts_.words[bucket + 1];
    if (starts_.words[bucket] > end || end > entries_.size) return false;
    for (std::uint64_t i = starts_.words[bucket]; i < end;) {
      const std::uint64_t first = i;
      const std::uint64_t tag = entries_.words[first] >> KeyHash::kSampleBits;
      while (i < end && entries_.words[i] >> KeyHash::kSampleBits == tag) ++i;
      if (i - first > 1) visit({entries_.words + first, i - first});
    }
  }
  return true;
}

bool KeyIndex::is_intact(std::uint64_t keys_checksum) const noexcept {
  return starts_.is_intact(0, starts_.size) && entries_.is_intact(0, entries_.size) &&
         std::is_sorted(starts_.words, starts_.words + starts_.size) &&
         starts_.words[starts_.size - 1] == entries_.size &&
         std::all_of(entries_.words, entries_.words + entries_.size,
                     [&](std::uint64_t entry) { return (entry & kSampleMask) < entries_.size; }) &&
         hash64(bytes_of_words(starts_.hashes, num_blocks(starts_.size) +
                                                   num_blocks(entries_.size))) == keys_checksum;
}

/// Reads one sorted run of the spill file through a buffer.
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
    const std::size_t size = buffer_.size() * sizeof(Pair);
    if (file_.read_at(at_ * sizeof(Pair), reinterpret_cast<char*>(buffer_.data()), size) != size) {
      throw Error(ErrorCode::kIo, "the temporary file of sorted keys was truncated",
                  in_quotes(file_.path()), "check the disk, and build the index again");
    }
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

void KeySorter::add(std::uint64_t hash, std::uint64_t sample) {
  if (buffer_.size() == buffer_pairs_) spill();
  buffer_.push_back({hash, sample});
  ++size_;
}

void KeySorter::spill() {
  std::sort(buffer_.begin(), buffer_.end());
  if (!file_) file_ = File::create_nameless(path_);
  file_->write({reinterpret_cast<const char*>(buffer_.data()), buffer_.size() * sizeof(Pair)});
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
    runs.push_back(std::make_unique<Run>(*file_, begin, end));
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

WrittenKeys write_keys(File& file, std::uint64_t offset, KeySorter& keys, const KeptKeys* kept,
                       const std::function<void(std::uint64_t, std::uint64_t)>& see) {
  WrittenKeys written;
  const std::uint64_t num_samples = keys.size() + (kept == nullptr ? 0 : kept->num_kept);
  const std::uint32_t bits = written.bucket_bits = KeyHash::bucket_bits(num_samples);
  SHARDWISE_ASSERT(kept == nullptr || kept->old.bucket_bits() == bits);
  const std::uint64_t num_buckets = std::uint64_t{1} << bits;
  const std::uint64_t entries_offset = offset + (num_buckets + 1) * sizeof(std::uint64_t);
  BlockWriter starts(file, offset);
  BlockWriter entries(file, entries_offset);
  std::uint64_t bucket = 0;
  std::vector<std::uint64_t> in_bucket;
  const auto sort_from = [&](std::size_t first) {
    const auto begin = in_bucket.begin() + static_cast<std::ptrdiff_t>(first);
    if (!std::is_sorted(begin, in_bucket.end())) std::sort(begin, in_bucket.end());
  };
  const auto end_bucket = [&] {
    sort_from(0);
    if (kept != nullptr) {
      const std::size_t num_added = in_bucket.size();
      for (const std::uint64_t entry : kept->old.bucket(bucket)) {
        const std::uint64_t number = kept->new_number(entry & KeyIndex::kSampleMask);
        if (number != KeptKeys::kGone)
          in_bucket.push_back((entry & ~KeyIndex::kSampleMask) | number);
      }
      // Usually in order already, and many if many shards have the same keys.
      sort_from(num_added);
      std::inplace_merge(in_bucket.begin(),
                         in_bucket.begin() + static_cast<std::ptrdiff_t>(num_added),
                         in_bucket.end());
    }
    starts.add(entries.size());
    for (const std::uint64_t entry : in_bucket) {
      see(bucket << KeyHash::kTagBits | entry >> KeyHash::kSampleBits,
          entry & KeyIndex::kSampleMask);
      entries.add(entry);
    }
    in_bucket.clear();
    ++bucket;
  };
  keys.drain([&](std::uint64_t hash, std::uint64_t sample) {
    while (bucket < KeyHash::bucket(hash, bits)) end_bucket();
    in_bucket.push_back(KeyHash::entry(hash, bits, sample));
  });
  while (bucket < num_buckets) end_bucket();
  starts.add(entries.size());
  starts.flush();
  entries.flush();
  std::vector<std::uint64_t> hashes = starts.hashes();
  hashes.insert(hashes.end(), entries.hashes().begin(), entries.hashes().end());
  const std::uint64_t hashes_offset = entries_offset + num_samples * sizeof(std::uint64_t);
  const std::string_view bytes = bytes_of_words(hashes.data(), hashes.size());
  file.write_at(hashes_offset, bytes);
  written.end = hashes_offset + bytes.size();
  written.checksum = hash64(bytes);
  return written;
}

}  // namespace shardwise
