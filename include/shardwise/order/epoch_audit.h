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

/// The sums of an epoch's proof: for every sample number that was delivered, one, its keyed 128-bit
/// hash, and the number itself. Sums do not depend on order, so the parts of ranks, threads and
/// runs are simply added. A plain struct of 40 bytes.
///
/// docs/formats/epoch-proof.md specifies it (version 1). The key is the data set's, so the expected
/// sum is computed once and not once an epoch. It is a sum and not XOR, under which a sample that
/// comes twice would cancel out.
struct SHARDWISE_EXPORT AuditSum {
  static constexpr std::size_t kNumWords = 10;

  std::uint64_t count = 0;
  Hash128 hashes;   ///< mod 2^128
  Hash128 numbers;  ///< mod 2^128

  /// The sum of every sample in [begin, end). Cost: about 2 ns a sample; ranges may be shared out
  /// over threads and added.
  static AuditSum of_range(std::uint64_t begin, std::uint64_t end, Hash128 fingerprint);
  static AuditSum of(std::span<const std::uint64_t> samples, Hash128 fingerprint);

  AuditSum& operator+=(const AuditSum& other) noexcept;
  AuditSum& operator-=(const AuditSum& other) noexcept;

  /// Limbs of 32 bits, the lowest first, so that an ordinary SUM all-reduce over 64-bit integers
  /// adds the sums of up to 2^31 ranks without a carry lost.
  std::array<std::int64_t, kNumWords> to_words() const noexcept;
  /// Reads what such an all-reduce gave. Errors: InvalidArgument if a word is negative.
  static AuditSum from_words(std::span<const std::int64_t, kNumWords> words);

  friend bool operator==(const AuditSum&, const AuditSum&) = default;
};

/// The samples that an epoch has to deliver: normally every sample in [0, num_samples) once, less
/// what a tail or a skip list leaves out, plus what a pad repeats. Where an order is not exact,
/// the samples that it holds.
/// One thread while it is made; then immutable. Memory: 16 bytes a sample left out or repeated.
class SHARDWISE_EXPORT AuditExpectation {
 public:
  /// Each sample in [0, num_samples) once. Cost: O(num_samples), about 2 ns each. Where the number
  /// is the same every epoch, keep it, or its sum().
  AuditExpectation(std::uint64_t num_samples, Hash128 fingerprint);
  /// As above, with `all` computed before: AuditSum::of_range(0, num_samples, fingerprint).
  AuditExpectation(std::uint64_t num_samples, Hash128 fingerprint, const AuditSum& all);
  /// A subset: just these samples of [0, num_samples), as often as they are listed.
  static AuditExpectation of(std::span<const std::uint64_t> samples, std::uint64_t num_samples,
                             Hash128 fingerprint);
  /// Expects nothing yet; repeat() adds the samples that an order which is not exact holds. How
  /// often a single sample is expected is not kept: a proof says only whether all was as ordered.
  static AuditExpectation as_ordered(std::uint64_t num_samples, Hash128 fingerprint);

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

  std::uint64_t num_samples() const noexcept { return num_samples_; }
  Hash128 fingerprint() const noexcept { return fingerprint_; }
  const AuditSum& sum() const noexcept { return sum_; }
  std::string_view claim() const noexcept { return claim_; }
  /// False after as_ordered().
  bool knows_times() const noexcept { return knows_times_; }
  /// How often `sample` is expected. REQUIRES: sample < num_samples(), knows_times().
  std::uint64_t times(std::uint64_t sample) const;
  std::uint64_t num_repeated() const noexcept { return num_repeated_; }
  std::uint64_t num_left_out() const noexcept { return num_left_out_; }

 private:
  /// How often a sample is expected that is not expected base_times_ times.
  struct Exception {
    std::uint64_t sample;
    std::uint64_t times;
  };

  AuditExpectation() = default;
  void check(std::span<const std::uint64_t> samples) const;
  std::vector<Exception> counted(std::span<const std::uint64_t> samples) const;
  void merge(std::vector<Exception> changed);

  std::uint64_t num_samples_ = 0;
  std::uint64_t base_times_ = 1;
  bool knows_times_ = true;
  Hash128 fingerprint_;
  AuditSum sum_;
  std::string_view claim_;
  std::uint64_t num_repeated_ = 0;
  std::uint64_t num_left_out_ = 0;
  std::vector<Exception> exceptions_;  ///< ascending by sample
};

/// The outcome of an epoch's proof.
struct SHARDWISE_EXPORT AuditVerdict {
  /// A sample and how often it is missing, or came too often.
  struct Count {
    std::uint64_t sample;
    std::uint64_t times;

    friend bool operator==(const Count&, const Count&) = default;
  };

  bool proven = false;
  std::string_view claim;  ///< as AuditExpectation::claim
  std::uint64_t expected = 0;
  std::uint64_t delivered = 0;
  std::uint64_t num_repeated_on_purpose = 0;
  std::uint64_t num_left_out_on_purpose = 0;
  /// Numbers of deliveries that are missing, and that are too many: exact if `complete`, otherwise
  /// lower bounds.
  std::uint64_t num_missing = 0;
  std::uint64_t num_repeated = 0;
  /// Deliveries of numbers that are no sample of the data set; counted in debug mode only.
  std::uint64_t num_unknown = 0;
  /// True if all that is wrong is known: from debug mode, or because one sample alone explains the
  /// sums.
  bool complete = false;
  std::vector<Count> missing;   ///< ascending; empty unless complete
  std::vector<Count> repeated;  ///< ascending; empty unless complete

  /// "epoch 3: 20000 samples, each exactly once: proven", or what is wrong; one line. It counts the
  /// samples that were left out or repeated on purpose.
  std::string text(std::uint64_t epoch) const;
};

/// Watches the samples that are delivered in an epoch, and proves at its end that they were exactly
/// those that had to be. It belongs behind everything else, where batches are handed out: in the
/// sampler it would only prove the sampler.
///
/// One thread each; threads and ranks have their own, and merge() or one all-reduce adds them:
///
///     auto words = audit.sum().to_words();  all_reduce_sum(words);
///     audit.set_sum(AuditSum::from_words(words));
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
  /// `fingerprint` is the data set's, the same on all ranks.
  explicit EpochAudit(Hash128 fingerprint = {});
  /// Debug mode: also counts every sample of [0, num_samples), and the verdict then says which are
  /// missing or repeated.
  static EpochAudit with_debug(std::uint64_t num_samples, Hash128 fingerprint = {});

  void add(std::uint64_t sample) noexcept;
  void add(std::span<const std::uint64_t> samples) noexcept;
  /// Errors: Mismatch if the audits have other fingerprints or debug sizes.
  void merge(const EpochAudit& other);
  /// Adds the sum of deliveries elsewhere. In debug mode the verdict no longer knows which samples.
  void merge(const AuditSum& other) noexcept;
  /// Clears the audit for the next epoch.
  void reset() noexcept;

  const AuditSum& sum() const noexcept { return sum_; }
  /// Puts the sum over all ranks in place of this rank's. In debug mode counts() is to be reduced
  /// too.
  void set_sum(const AuditSum& sum) noexcept { sum_ = sum; }
  /// Debug mode: how often each sample came, for an all-reduce in place; else empty.
  std::span<std::int32_t> counts() noexcept { return counts_; }

  /// Cost: O(1) if proven. Otherwise up to 5 ns a sample, to find the one sample that explains it.
  AuditVerdict verdict(const AuditExpectation& expectation) const;
  /// Errors: NotExact, with the verdict's text; Mismatch if the expectation has another
  /// fingerprint.
  void prove(const AuditExpectation& expectation, std::uint64_t epoch) const;

 private:
  Hash128 fingerprint_;
  Hash128 key_;
  AuditSum sum_;
  std::vector<std::int32_t> counts_;
  bool counts_complete_ = true;
};

}  // namespace shardwise
