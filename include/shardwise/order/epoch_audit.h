#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"

namespace shardwise {

/// Records the samples delivered in an epoch, and proves at its end that they were exactly the
/// expected samples. Call add() where the program gets its batches, so that the proof covers
/// everything before that point.
///
/// Each thread and rank has its own audit. merge() adds the audits of threads, and one all-reduce
/// adds those of ranks:
///
///     auto words = audit.sum().to_words();  all_reduce_sum(words);
///     audit.set_sum(EpochAudit::Sum::from_words(words));
///     audit.prove(expectation, epoch);
///
/// If a run resumes within an epoch, one rank must merge() the sum of the token.
///
/// Certainty: two different multisets of samples have equal sums with probability about 2^-128, if
///   the hash behaves like a random function. The proof detects every accident, but not deliberate
///   collisions.
///
/// Threads: one thread per audit.
/// Cost: O(1) per sample.
/// Memory: some 40 bytes; in debug mode also 4 bytes per sample of the data set.
class SHARDWISE_EXPORT EpochAudit {
 public:
  /// The three sums of an epoch's proof over the delivered samples: their count, the sum of their
  /// keyed 128-bit hashes, and the sum of their numbers. They do not depend on the order of
  /// samples, so the sums of ranks, threads and runs can be added. A plain struct of 40 bytes.
  ///
  /// docs/formats/epoch-proof.md specifies it (version 1). The key of the hash depends only on the
  /// data set, so the expected sum is the same in every epoch. Hashes are added instead of combined
  /// by XOR, because with XOR a sample that is delivered twice would cancel out.
  struct SHARDWISE_EXPORT Sum {
    static constexpr std::size_t kNumWords = 10;

    std::uint64_t count = 0;
    Hash128 hashes;   ///< sum modulo 2^128
    Hash128 numbers;  ///< sum modulo 2^128

    /// The sum of all samples in [begin, end). Cost: O(end - begin). Several threads may sum parts
    /// of the range; add their results.
    [[nodiscard]] static Sum of_range(std::uint64_t begin, std::uint64_t end, Hash128 fingerprint);
    [[nodiscard]] static Sum of(std::span<const std::uint64_t> samples, Hash128 fingerprint);

    Sum& operator+=(const Sum& other) noexcept;
    Sum& operator-=(const Sum& other) noexcept;

    /// Returns limbs of 32 bits, lowest first. A SUM all-reduce over 64-bit integers then adds up
    /// to 2^31 ranks without losing a carry.
    [[nodiscard]] std::array<std::int64_t, kNumWords> to_words() const noexcept;
    /// Converts the result of an all-reduce over to_words(). Errors: InvalidArgument if a word is
    /// negative.
    [[nodiscard]] static Sum from_words(std::span<const std::int64_t, kNumWords> words);

    friend bool operator==(const Sum&, const Sum&) = default;
  };

  /// The samples that an epoch must deliver. Normally each sample in [0, num_samples) is expected
  /// once. A tail or skip list removes samples, and padding repeats samples. If the order is not
  /// exact, the expected samples are those that its algorithm draws.
  ///
  /// Threads: one thread while it is modified; then immutable.
  /// Memory: 16 bytes per sample left out or repeated.
  class SHARDWISE_EXPORT Expectation {
   public:
    /// Expects each sample in [0, num_samples) once. Cost: O(num_samples). To pay this cost once,
    /// keep this object or its sum() for later epochs.
    Expectation(std::uint64_t num_samples, Hash128 fingerprint);
    /// Expects each sample in [0, num_samples) once. `all` is Sum::of_range(0, num_samples,
    /// fingerprint), computed before. Cost: O(1).
    Expectation(std::uint64_t num_samples, Hash128 fingerprint, const Sum& all);
    /// Expects only these samples of [0, num_samples), as often as they are listed.
    [[nodiscard]] static Expectation of(std::span<const std::uint64_t> samples,
                                        std::uint64_t num_samples, Hash128 fingerprint);
    /// For an order that is not exact: expects no samples yet; repeat() adds the samples of the
    /// order. The expectation does not store how often each sample is expected, so a failed proof
    /// cannot name samples.
    [[nodiscard]] static Expectation as_ordered(std::uint64_t num_samples, Hash128 fingerprint);

    /// Expects each of `samples` once more (repeat) or once less (leave_out) per listing.
    /// Errors: OutOfRange. leave_out() throws InvalidArgument if the expected count of a sample is
    ///   already 0. After an error the expectation is unchanged.
    /// Cost: O(n log n) per call, where n counts all samples passed so far. Pass many samples per
    ///   call.
    void repeat(std::span<const std::uint64_t> samples);
    void leave_out(std::span<const std::uint64_t> samples);
    void repeat(std::uint64_t sample) { repeat(std::span(&sample, 1)); }
    void leave_out(std::uint64_t sample) { leave_out(std::span(&sample, 1)); }
    /// Sets the text that a proof states, instead of "each exactly once". `claim` must have static
    /// lifetime.
    void set_claim(std::string_view claim) noexcept { claim_ = claim; }

    [[nodiscard]] std::uint64_t num_samples() const noexcept { return num_samples_; }
    [[nodiscard]] Hash128 fingerprint() const noexcept { return fingerprint_; }
    [[nodiscard]] const Sum& sum() const noexcept { return sum_; }
    [[nodiscard]] std::string_view claim() const noexcept { return claim_; }
    /// False after as_ordered().
    [[nodiscard]] bool knows_times() const noexcept { return knows_times_; }
    /// How often `sample` is expected. REQUIRES: sample < num_samples(), knows_times().
    [[nodiscard]] std::uint64_t times(std::uint64_t sample) const;
    [[nodiscard]] std::uint64_t num_repeated() const noexcept { return num_repeated_; }
    [[nodiscard]] std::uint64_t num_left_out() const noexcept { return num_left_out_; }

   private:
    /// A sample that is not expected exactly base_times_ times.
    struct Exception {
      std::uint64_t sample;
      std::uint64_t times;
    };

    Expectation() = default;
    void check(std::span<const std::uint64_t> samples) const;
    [[nodiscard]] std::vector<Exception> counted(std::span<const std::uint64_t> samples) const;
    void merge(std::vector<Exception> changed);

    std::uint64_t num_samples_ = 0;
    std::uint64_t base_times_ = 1;
    bool knows_times_ = true;
    Hash128 fingerprint_;
    Sum sum_;
    std::string_view claim_;
    std::uint64_t num_repeated_ = 0;
    std::uint64_t num_left_out_ = 0;
    std::vector<Exception> exceptions_;  ///< ascending by sample
  };

  /// The outcome of an epoch's proof.
  struct SHARDWISE_EXPORT Verdict {
    /// A sample, and the number of its missing or superfluous deliveries.
    struct Count {
      std::uint64_t sample;
      std::uint64_t times;

      friend bool operator==(const Count&, const Count&) = default;
    };

    bool proven = false;     ///< false, too, for a data set without samples
    std::string_view claim;  ///< Expectation::claim()
    std::uint64_t expected = 0;
    std::uint64_t delivered = 0;
    std::uint64_t num_repeated_on_purpose = 0;
    std::uint64_t num_left_out_on_purpose = 0;
    /// Numbers of missing and of superfluous deliveries: exact if `complete`, otherwise lower
    /// bounds.
    std::uint64_t num_missing = 0;
    std::uint64_t num_repeated = 0;
    /// Deliveries of numbers outside the data set. Counted in debug mode only.
    std::uint64_t num_unknown = 0;
    /// True if `missing` and `repeated` list every deviation: in debug mode, or if a single sample
    /// explains the sums.
    bool complete = false;
    std::vector<Count> missing;   ///< ascending; empty unless complete
    std::vector<Count> repeated;  ///< ascending; empty unless complete

    /// Returns one line: "epoch 3: 20,000 samples, each exactly once: proven", or what is wrong. It
    /// also states how many samples were left out or repeated on purpose.
    [[nodiscard]] std::string text(std::uint64_t epoch) const;
  };

  /// @param fingerprint  of the data set; equal on all ranks.
  explicit EpochAudit(Hash128 fingerprint = {});
  /// Debug mode: also counts each sample of [0, num_samples). The verdict then lists the missing
  /// and repeated samples.
  [[nodiscard]] static EpochAudit with_debug(std::uint64_t num_samples, Hash128 fingerprint = {});

  void add(std::uint64_t sample) noexcept;
  void add(std::span<const std::uint64_t> samples) noexcept;
  /// Adds the deliveries of another audit. Errors: Mismatch if fingerprints or debug sizes differ.
  void merge(const EpochAudit& other);
  /// Adds the sum of deliveries that another audit or run recorded. In debug mode the verdict can
  /// then no longer name samples.
  void merge(const Sum& other) noexcept;
  /// Clears the audit for the next epoch.
  void reset() noexcept;

  [[nodiscard]] const Sum& sum() const noexcept { return sum_; }
  /// Replaces this rank's sum by the sum over all ranks. In debug mode, also all-reduce counts().
  void set_sum(const Sum& sum) noexcept { sum_ = sum; }
  /// In debug mode, the number of deliveries of each sample, for an all-reduce in place. Otherwise
  /// empty.
  std::span<std::int32_t> counts() noexcept { return counts_; }

  /// Cost: O(1) if proven, otherwise O(num_samples) to find a single sample that explains the sums.
  [[nodiscard]] Verdict verdict(const Expectation& expectation) const;
  /// Errors: NotExact, with the verdict's text. Mismatch if the expectation has another
  ///   fingerprint.
  void prove(const Expectation& expectation, std::uint64_t epoch) const;

 private:
  Hash128 fingerprint_;
  Hash128 key_;
  Sum sum_;
  std::vector<std::int32_t> counts_;
  bool counts_complete_ = true;
};

}  // namespace shardwise
