#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/joined_sample.h"
#include "order/shard_use.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/dataset.h"

// A join consists of a first dataset and of other datasets. The first dataset has the
// numbering. A table gives for each of its samples the number of the matching sample in `other`:
//
//     first        0   1   2   3   4        numbers in the index of the first dataset
//     matches     12   -   0   0   7        numbers in the other dataset, which may be a view
//
// The table is indexed by numbers in the index, so all views of a join share it.

namespace shardwise::detail {

/// The matching samples of a dataset, for all samples of an index.
/// Threads: immutable after the last call of set().
/// Memory: 4 bytes per sample, or 8 if the other dataset has 2^32 - 1 samples or more. Pages of the
///   table in which no sample has a match take none.
class SHARDWISE_EXPORT SampleMatches {
 public:
  SampleMatches(std::uint64_t num_samples, std::uint64_t num_others);

  void set(std::uint64_t number, std::uint64_t other) noexcept {
    if (is_wide_) {
      wide()[number] = other + 1;
    } else {
      narrow()[number] = static_cast<std::uint32_t>(other + 1);
    }
  }
  /// Returns the number of the matching sample; nullopt if there is no match.
  /// REQUIRES: number < num_samples.
  [[nodiscard]] std::optional<std::uint64_t> of(std::uint64_t number) const noexcept {
    const std::uint64_t found = is_wide_ ? wide()[number] : narrow()[number];
    return found == 0 ? std::nullopt : std::optional(found - 1);
  }
  /// Returns the address of a sample's entry, for the caller to prefetch.
  [[nodiscard]] const void* entry(std::uint64_t number) const noexcept {
    return is_wide_ ? static_cast<const void*>(wide() + number) : narrow() + number;
  }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  [[nodiscard]] std::uint32_t* narrow() const noexcept {
    return static_cast<std::uint32_t*>(table_.get());
  }
  [[nodiscard]] std::uint64_t* wide() const noexcept {
    return static_cast<std::uint64_t*>(table_.get());
  }

  bool is_wide_;
  // 1 + the number of the matching sample, or 0. calloc() does not write to large blocks.
  std::unique_ptr<void, Free> table_;
};

/// A dataset that is joined to the first dataset.
struct JoinSide {
  /// Matched samples of the other dataset.
  struct Matched {
    std::vector<std::size_t> places;     // of the first dataset's samples in the caller's list
    std::vector<std::uint64_t> numbers;  // of the other dataset's samples
  };

  /// Returns the name in `other` of a field of the join; nullopt if it is not one of this side.
  [[nodiscard]] std::optional<std::string> original(std::string_view field) const;
  /// Returns the matches of the samples `numbers` of `first`. Errors: OutOfRange.
  [[nodiscard]] Matched matched(const Dataset& first, std::span<const std::uint64_t> numbers) const;

  Dataset other;
  SampleMatches matches;
  std::vector<std::string> fields;  // names in `other`
  std::shared_ptr<const JoinedNames> names;
  Dataset::JoinReport report;
};

/// Which shards of a joined dataset each shard of the first dataset needs.
class SHARDWISE_EXPORT ShardsMet {
 public:
  /// Returns the uses of the joined dataset's shards, given the uses of the first dataset's shards.
  /// A joined shard is in use while any shard of the first dataset that needs it is in use. Returns
  /// nullopt if a use in `first` needs more than 8 joined shards on average.
  [[nodiscard]] std::optional<EpochSchedule> uses(const EpochSchedule& first) const;

 private:
  friend SHARDWISE_EXPORT ShardsMet shards_met(const Dataset& first, const JoinSide& side);
  std::vector<std::vector<std::uint64_t>> of_shard_;  // by shard of the first dataset
};
/// Cost: O(samples).
[[nodiscard]] SHARDWISE_EXPORT ShardsMet shards_met(const Dataset& first, const JoinSide& side);

/// All datasets that are joined to a first dataset, in the order of the calls.
struct Joins {
  /// Makes `sample` a sample of the join.
  /// @param number  of the sample in the index of the first dataset.
  /// Errors: as Dataset::operator[].
  void add_to(Sample& sample, std::uint64_t number) const;
  /// Does the same if all shards are open; otherwise returns false, and `sample` may be incomplete.
  [[nodiscard]] bool try_add_to(Sample& sample, std::uint64_t number) const;
  /// Returns the side that has this field; null if no joined dataset has it.
  [[nodiscard]] const JoinSide* find_side(std::string_view field) const;

  std::vector<std::shared_ptr<const JoinSide>> sides;
  Hash128 fingerprint;  // of the first dataset without a view, and of the others

 private:
  template <class Get>
  bool add(Sample& sample, std::uint64_t number, const Get& get) const;
};

/// Returns the names of all fields that samples of the dataset may have.
/// Errors: CorruptIndex; Unsupported without an index.
[[nodiscard]] SHARDWISE_EXPORT std::vector<std::string> field_names(const Dataset& data);
/// Returns the names of the metadata columns of all datasets of a join, the first dataset's first.
[[nodiscard]] SHARDWISE_EXPORT std::vector<std::string> column_names(const Dataset& data);

}  // namespace shardwise::detail
