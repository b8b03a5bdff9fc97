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

/// Watches the samples that are delivered in an epoch, and proves at its end that they were exactly
/// those that had to be. It belongs behind everything else, where batches are handed out: in the
/// sampler it would only prove the sampler.
///
/// One thread each; threads and ranks have their own, and merge() or one all-reduce adds them:
///
///     auto words = audit.sum().to_words();  all_reduce_sum(words);
///     audit.set_sum(EpochAudit::Sum::from_words(words));
///     audit.prove(expectation, epoch);
///
/// A run that is resumed in mid-epoch merges the sum in its token, on one rank.
///
/// Certainty: two different multisets of samples have the same sum with probability about 2^-128,
/// as far as the hash behaves like a random function. The proof holds against every mistake, not
/// against someone who constructs a collision.
///
/// Cost: about 2 ns a sample and 40 bytes; in debug mode also 4 bytes a sample of the data set.
class SHARDWISE_EXPORT EpochAudit {
 public:
  /// The three sums of an epoch's proof, over the samples that were delivered: their count, their
  /// keyed 128-bit hashes, and their numbers. Sums do not depend on order, so the parts of ranks,
  /// threads and runs are simply added. A plain struct of 40 bytes.
  ///
  /// docs/formats/epoch-proof.md specifies it (version 1). The key is the data set's, so the
  /// expected sum is computed once and not once an epoch. It is a sum and not XOR, under which a
  /// sample that comes twice would cancel out.
  struct SHARDWISE_EXPORT Sum {
    static constexpr std::size_t kNumWords = 10;

    std::uint64_t count = 0;
    Hash128 hashes;   ///< mod 2^128
    Hash128 numbers;  ///< mod 2^128

    /// The sum of every sample in [begin, end). Cost: about 2 ns a sample; threads may sum parts of
    /// the range, to be added afterwards.
    [[nodiscard]] static Sum of_range(std::uint64_t begin, std::uint64_t end, Hash128 fingerprint);
    [[nodiscard]] static Sum of(std::span<const std::uint64_t> samples, Hash128 fingerprint);

    Sum& operator+=(const Sum& other) noexcept;
    Sum& operator-=(const Sum& other) noexcept;

    /// Limbs of 32 bits, the lowest first, so that an ordinary SUM all-reduce over 64-bit integers
    /// adds the sums of up to 2^31 ranks without a carry lost.
    [[nodiscard]] std::array<std::int64_t, kNumWords> to_words() const noexcept;
    /// Reads what such an all-reduce gave. Errors: InvalidArgument if a word is negative.
    [[nodiscard]] static Sum from_words(std::span<const std::int64_t, kNumWords> words);

    friend bool operator==(const Sum&, const Sum&) = default;
  };

  /// The samples that an epoch has to deliver: normally every sample in [0, num_samples) once, less
  /// what a tail or a skip list leaves out, plus what a pad repeats. If the order is not exact,
  /// they are the samples that its formula gives. One thread while it is made; then immutable.
  /// Memory: 16 bytes a sample left out or repeated.
  class SHARDWISE_EXPORT Expectation {
   public:
    /// Each sample in [0, num_samples) once. Cost: O(num_samples), about 2 ns each. Where the
    /// number is the same every epoch, keep it, or its sum().
    Expectation(std::uint64_t num_samples, Hash128 fingerprint);
    /// As above, with `all` computed before: Sum::of_range(0, num_samples, fingerprint).
    Expectation(std::uint64_t num_samples, Hash128 fingerprint, const Sum& all);
    /// A subset: just these samples of [0, num_samples), as often as they are listed.
    [[nodiscard]] static Expectation of(std::span<const std::uint64_t> samples,
                                        std::uint64_t num_samples, Hash128 fingerprint);
    /// For an order that is not exact: expects nothing yet, and repeat() adds the samples that the
    /// order gives. It does not keep how often each sample is expected, so that a proof says only
    /// whether all was as ordered.
    [[nodiscard]] static Expectation as_ordered(std::uint64_t num_samples, Hash128 fingerprint);

    /// Expects `samples` once more, or once less, each as often as it is listed.
    /// Errors: OutOfRange; `leave_out` InvalidArgument if one is not expected any more. Nothing has
    ///         changed then.
    /// Cost:   O(n log n) in all that were ever given, so give many at once.
    void repeat(std::span<const std::uint64_t> samples);
    void leave_out(std::span<const std::uint64_t> samples);
    void repeat(std::uint64_t sample) { repeat(std::span(&sample, 1)); }
    void leave_out(std::uint64_t sample) { leave_out(std::span(&sample, 1)); }
    /// Sets what a proof says of the epoch instead of "each exactly once". `claim` must live for
    /// ever.
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
    /// How often a sample is expected that is not expected base_times_ times.
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
    /// A sample and how often it is missing, or came too often.
    struct Count {
      std::uint64_t sample;
      std::uint64_t times;

      friend bool operator==(const Count&, const Count&) = default;
    };

    bool proven = false;     ///< false, too, over a data set without samples
    std::string_view claim;  ///< as Expectation::claim
    std::uint64_t expected = 0;
    std::uint64_t delivered = 0;
    std::uint64_t num_repeated_on_purpose = 0;
    std::uint64_t num_left_out_on_purpose = 0;
    /// Numbers of deliveries that are missing, and that are too many: exact if `complete`,
    /// otherwise lower bounds.
    std::uint64_t num_missing = 0;
    std::uint64_t num_repeated = 0;
    /// Deliveries of numbers that are no sample of the data set; counted in debug mode only.
    std::uint64_t num_unknown = 0;
    /// True if all that is wrong is known: from debug mode, or because one sample alone explains
    /// the sums.
    bool complete = false;
    std::vector<Count> missing;   ///< ascending; empty unless complete
    std::vector<Count> repeated;  ///< ascending; empty unless complete

    /// "epoch 3: 20000 samples, each exactly once: proven", or what is wrong; one line. It counts
    /// the samples that were left out or repeated on purpose.
    [[nodiscard]] std::string text(std::uint64_t epoch) const;
  };

  /// `fingerprint` is the data set's, the same on all ranks.
  explicit EpochAudit(Hash128 fingerprint = {});
  /// Debug mode: also counts every sample of [0, num_samples), and the verdict then says which are
  /// missing or repeated.
  [[nodiscard]] static EpochAudit with_debug(std::uint64_t num_samples, Hash128 fingerprint = {});

  void add(std::uint64_t sample) noexcept;
  void add(std::span<const std::uint64_t> samples) noexcept;
  /// Errors: Mismatch if the audits have other fingerprints or debug sizes.
  void merge(const EpochAudit& other);
  /// Adds the sum of deliveries elsewhere. In debug mode the verdict no longer knows which samples.
  void merge(const Sum& other) noexcept;
  /// Clears the audit for the next epoch.
  void reset() noexcept;

  [[nodiscard]] const Sum& sum() const noexcept { return sum_; }
  /// Puts the sum over all ranks in place of this rank's. In debug mode counts() is to be reduced
  /// too.
  void set_sum(const Sum& sum) noexcept { sum_ = sum; }
  /// Debug mode: how often each sample came, for an all-reduce in place; else empty.
  std::span<std::int32_t> counts() noexcept { return counts_; }

  /// Cost: O(1) if proven. Otherwise up to 5 ns a sample, to find the one sample that explains it.
  [[nodiscard]] Verdict verdict(const Expectation& expectation) const;
  /// Errors: NotExact, with the verdict's text; Mismatch if the expectation has another
  /// fingerprint.
  void prove(const Expectation& expectation, std::uint64_t epoch) const;

 private:
  Hash128 fingerprint_;
  Hash128 key_;
  Sum sum_;
  std::vector<std::int32_t> counts_;
  bool counts_complete_ = true;
};

}  // namespace shardwise
