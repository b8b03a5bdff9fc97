#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace shardwise {

// The key section of an offset table, in words of 64 bits:
//
//   [B + 1]  starts: bucket b has the entries [start[b], start[b + 1])
//   [N]      entries: tag << 40 | sample, ascending within a bucket
//   [C]      hash64 of each block of 128 words (the last of each array may be shorter), of the
//            starts and then of the entries, seeded with its number in its array
//
// The hash of a key is hash64(key): its top bits select the bucket, and the next 24 bits are the
// tag. A lookup checks the blocks that it reads against their hashes, so damage does not look like
// a missing key.

/// Splits a key's hash into bucket and tag, and determines the number of buckets: one for about
/// eight samples.
struct KeyHash {
  static constexpr unsigned kTagBits = 24;
  static constexpr unsigned kSampleBits = 40;

  [[nodiscard]] static std::uint32_t bucket_bits(std::uint64_t num_samples) noexcept;
  [[nodiscard]] static std::uint64_t bucket(std::uint64_t hash, std::uint32_t bits) noexcept {
    return bits == 0 ? 0 : hash >> (64 - bits);
  }
  [[nodiscard]] static std::uint64_t tag(std::uint64_t hash, std::uint32_t bits) noexcept {
    return (hash << bits) >> (64 - kTagBits);
  }
  /// Returns the entry of a sample whose key has this hash.
  [[nodiscard]] static std::uint64_t entry(std::uint64_t hash, std::uint32_t bits,
                                           std::uint64_t sample) noexcept {
    return tag(hash, bits) << kSampleBits | sample;
  }
};

/// The key section within a table. A cheap value, valid while its table lives.
/// Threads: any.
class KeyIndex {
 public:
  static constexpr std::uint64_t kBlockWords = 128;
  static constexpr std::uint64_t kSampleMask = (std::uint64_t{1} << KeyHash::kSampleBits) - 1;

  KeyIndex() = default;
  /// @param words  num_words(bucket_bits, num_samples) words.
  KeyIndex(const std::uint64_t* words, std::uint32_t bucket_bits,
           std::uint64_t num_samples) noexcept;
  [[nodiscard]] static std::uint64_t num_words(std::uint32_t bucket_bits,
                                               std::uint64_t num_samples) noexcept;

  /// Returns the entries of keys with this hash, sorted by sample. Entries of other keys may be
  /// among them. Returns nullopt if the bytes that it reads are damaged.
  std::optional<std::span<const std::uint64_t>> find(std::uint64_t hash) const noexcept;
  /// True if a key with this hash has an entry for `sample`. It does not check the hashes of the
  /// blocks that it reads.
  bool has(std::uint64_t hash, std::uint64_t sample) const noexcept;
  /// True if `key`, the key of an entry from find(hash), has the bucket and tag of `hash`.
  bool matches(std::uint64_t hash, std::string_view key) const noexcept;
  /// Calls visit(entries) for each group of two or more entries with the same bucket and tag. Their
  /// keys may be equal. The entries are sorted by sample. Returns false if the bytes are damaged;
  /// the hashes of blocks are not checked.
  /// Cost: reads all entries.
  bool for_each_shared(
      const std::function<void(std::span<const std::uint64_t> entries)>& visit) const;
  [[nodiscard]] std::uint32_t bucket_bits() const noexcept { return bucket_bits_; }
  /// Returns the entries of a bucket. REQUIRES: is_intact(); bucket < 2^bucket_bits().
  [[nodiscard]] std::span<const std::uint64_t> bucket(std::uint64_t bucket) const noexcept {
    return {entries_.words + starts_.words[bucket], entries_.words + starts_.words[bucket + 1]};
  }
  /// True if the whole section is unchanged since it was written, and consistent.
  bool is_intact(std::uint64_t keys_checksum) const noexcept;

 private:
  /// An array and the hashes of its blocks.
  struct Checked {
    const std::uint64_t* words = nullptr;
    const std::uint64_t* hashes = nullptr;
    std::uint64_t size = 0;
    bool is_intact(std::uint64_t begin, std::uint64_t end) const noexcept;
  };

  Checked starts_;
  Checked entries_;
  std::uint32_t bucket_bits_ = 0;
};

/// Sorts any number of (hash, sample) pairs in bounded memory. Each full buffer is sorted and
/// written to an unnamed spill file in the index's folder. At the end, these runs are merged.
/// Threads: one.
class KeySorter {
 public:
  /// @param path  of the index; the spill file is created in its folder, and exists as long as this
  ///   object.
  explicit KeySorter(std::string path, std::size_t buffer_pairs = std::size_t{1} << 22);

  void add(std::uint64_t hash, std::uint64_t sample);
  std::uint64_t size() const noexcept { return size_; }
  /// Calls `take` with every pair in order of hash, then sample. Call it once.
  void drain(const std::function<void(std::uint64_t hash, std::uint64_t sample)>& take);

 private:
  struct Pair {
    std::uint64_t hash;
    std::uint64_t sample;
    friend auto operator<=>(const Pair&, const Pair&) = default;
  };
  class Run;

  void spill();

  const std::string path_;
  const std::size_t buffer_pairs_;
  std::vector<Pair> buffer_;
  std::uint64_t size_ = 0;
  std::optional<File> file_;
  std::vector<std::uint64_t> run_ends_;  // end of each run in the spill file, counted in pairs
};

/// The values that a table's header stores about its key section.
struct WrittenKeys {
  std::uint32_t bucket_bits = 0;
  std::uint64_t end = 0;  ///< offset in the file at which the section ends
  std::uint64_t checksum = 0;
};

/// The entries of an old table that a new table keeps. Copying them is much cheaper than hashing
/// and sorting the keys again.
struct KeptKeys {
  KeyIndex old;  ///< is_intact()
  std::uint64_t num_kept = 0;
  /// Returns the new number of a sample of the old table, or kGone.
  std::function<std::uint64_t(std::uint64_t old_sample)> new_number;
  static constexpr std::uint64_t kGone = ~std::uint64_t{0};
};

/// Writes the key section at `offset` of `file`, from front to back and through small buffers. In
/// memory it keeps only the hashes of all blocks, and the entries of one bucket.
/// @param keys  the keys that are not in `kept`.
/// @param kept  may be null. REQUIRES: its bucket_bits() are those of the new section.
/// @param see   called with every sample, in order of `prefix`, then sample. `prefix` is the part
///   of the key's hash that the section stores: bucket and tag.
WrittenKeys write_keys(File& file, std::uint64_t offset, KeySorter& keys, const KeptKeys* kept,
                       const std::function<void(std::uint64_t prefix, std::uint64_t sample)>& see);

}  // namespace shardwise
