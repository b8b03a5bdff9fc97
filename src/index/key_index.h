#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shardwise/base/file.h"

namespace shardwise {

/// How a key's hash is split, and how many buckets a number of samples gets: about eight a bucket.
struct KeyHash {
  static constexpr unsigned kTagBits = 24;
  static constexpr unsigned kSampleBits = 40;

  static std::uint32_t bucket_bits(std::uint64_t num_samples) noexcept;
  static std::uint64_t bucket(std::uint64_t hash, std::uint32_t bits) noexcept {
    return bits == 0 ? 0 : hash >> (64 - bits);
  }
  static std::uint64_t tag(std::uint64_t hash, std::uint32_t bits) noexcept {
    return (hash << bits) >> (64 - kTagBits);
  }
};

/// Sorts (hash, sample) pairs of any number in bounded memory: full buffers are sorted and spilled
/// to a temporary file beside the index, and merged at the end. One thread.
class KeySorter {
 public:
  /// @param path  of the index: the spill file is a temporary beside it, gone when this object is.
  explicit KeySorter(std::string path, std::size_t buffer_pairs = std::size_t{1} << 22);
  ~KeySorter();

  void add(std::uint64_t hash, std::uint64_t sample);
  std::uint64_t size() const noexcept { return size_; }
  /// Calls `take` with every pair in order of hash, then sample. Once.
  void drain(const std::function<void(std::uint64_t hash, std::uint64_t sample)>& take);

 private:
  struct Pair {
    std::uint64_t hash;
    std::uint64_t sample;
    friend auto operator<=>(const Pair&, const Pair&) = default;  // NOLINT(modernize-use-nullptr)
  };
  class Run;

  void spill();

  const std::string path_;
  const std::size_t buffer_pairs_;
  std::vector<Pair> buffer_;
  std::uint64_t size_ = 0;
  std::unique_ptr<AtomicFile> file_;     // never committed
  std::vector<std::uint64_t> run_ends_;  // in pairs
};

}  // namespace shardwise
