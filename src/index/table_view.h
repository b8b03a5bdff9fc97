#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/hasher.h"
#include "index/key_index.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "shardwise/base/hash.h"

namespace shardwise {

/// The bytes of an offset table, whose header, directory and hints were checked. A cheap value,
/// valid while the bytes are. Segments are checked when they are used.
/// Threads: any.
class TableView {
 public:
  /// The parts of the text of an error.
  struct Texts {
    std::string damaged;  ///< e.g. "the index is damaged"
    std::string place;    ///< the file, in quotes
    std::string remedy;
  };

  TableView() = default;
  /// Errors: CorruptIndex; VersionMismatch.
  TableView(std::string_view bytes, Texts texts);

  /// Looks up single keys in `bytes` from now on: another mapping of the same file, for which the
  /// kernel does not read ahead.
  void look_up_in(std::string_view bytes) noexcept;

  const TableHeader& header() const noexcept { return *header_; }
  const ShardEntry* directory() const noexcept { return directory_; }
  const std::uint32_t* hints() const noexcept { return hints_; }
  const KeyIndex& keys() const noexcept { return keys_; }

  /// The shard of a sample. REQUIRES: sample < header().num_samples.
  std::uint64_t shard_of(std::uint64_t sample) const noexcept {
    return detail::ShardFinder{hints_, directory_, header_->hint_shift}.shard_of(sample);
  }
  /// Returns the bytes of a shard's segment, unverified. REQUIRES: shard < num_shards.
  std::string_view segment_bytes(std::uint64_t shard) const noexcept;
  /// Returns a shard's segment after checking it completely. Errors: CorruptIndex.
  SegmentView segment(std::uint64_t shard) const;
  /// Checks the parts that the constructor does not check: every segment, and the key section.
  /// Errors: CorruptIndex.
  /// Cost: reads the whole table.
  void check_sections() const;
  /// Returns the key of a sample. It checks only the bounds of what it reads.
  /// REQUIRES: sample < header().num_samples. Errors: CorruptIndex.
  std::string_view unchecked_key(std::uint64_t sample) const { return key_in(bytes_, sample); }

  /// Calls `found` with the samples that have this key, ascending, until it returns false.
  /// Errors: CorruptIndex.
  template <class Found>
  void for_each_with_key(std::string_view key, const Found& found) const {
    const std::uint64_t hash = hash64(key);
    const auto entries = lookup_keys_.find(hash);
    if (!entries) damaged("the key section is wrong");
    for (const std::uint64_t entry : *entries) {
      const std::uint64_t sample = entry & KeyIndex::kSampleMask;
      if (sample >= header_->num_samples) damaged("a key entry is wrong");
      const std::string_view stored = key_in(lookup_bytes_, sample);
      if (stored == key) {
        if (!found(sample)) return;
      } else if (!lookup_keys_.matches(hash, stored)) {
        damaged("shard " + std::to_string(shard_of(sample)) + ": a key has changed");
      }
    }
  }

  /// Throws CorruptIndex.
  [[noreturn]] void damaged(std::string_view why) const;

 private:
  KeyIndex keys_in(std::string_view bytes) const noexcept;
  std::string_view segment_in(std::string_view bytes, std::uint64_t shard) const noexcept;
  std::string_view key_in(std::string_view bytes, std::uint64_t sample) const;

  std::string_view bytes_;
  std::string_view lookup_bytes_;
  Texts texts_;
  const TableHeader* header_ = nullptr;
  const ShardEntry* directory_ = nullptr;
  const std::uint32_t* hints_ = nullptr;
  KeyIndex keys_;
  KeyIndex lookup_keys_;
};

}  // namespace shardwise
