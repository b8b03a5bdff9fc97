#include "shardwise/order/epoch_audit.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/spelling.h"
#include "base/text.h"
#include "order/arithmetic.h"
#include "order/key.h"
#include "order/spec.h"

namespace shardwise {

namespace {

using detail::mix64;
using detail::mix64_b;
using detail::uint128;

constexpr std::uint64_t kLow32 = 0xffffffffU;
/// Largest number of samples that an error text names.
constexpr std::size_t kMaxNamed = 10;

uint128 join(Hash128 h) noexcept { return (static_cast<uint128>(h.high) << 64) | h.low; }
Hash128 split(uint128 x) noexcept {
  return {static_cast<std::uint64_t>(x >> 64), static_cast<std::uint64_t>(x)};
}

Hash128 audit_key(Hash128 fingerprint) noexcept {
  return derive_key(fingerprint.low, fingerprint.high, KeyPurpose::kAudit);
}

inline uint128 hash_of(std::uint64_t sample, const Hash128& key) noexcept {
  return (static_cast<uint128>(mix64_b(sample + key.high)) << 64) | mix64(sample + key.low);
}

std::string number(std::uint64_t n) { return std::to_string(n); }

/// Returns e.g. "17, 20 (3 times), 31 and 12 more".
std::string listed(const std::vector<EpochAudit::Verdict::Count>& counts) {
  std::string text;
  const std::size_t named = std::min(counts.size(), kMaxNamed);
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += ", ";
    text += number(counts[i].sample);
    if (counts[i].times > 1) text += " (" + counted(counts[i].times, "time") + ")";
  }
  if (counts.size() > named) text += " and " + human_count(counts.size() - named) + " more";
  return text;
}

}  // namespace

EpochAudit::Sum EpochAudit::Sum::of_range(std::uint64_t begin, std::uint64_t end,
                                          Hash128 fingerprint) {
  const Hash128 key = audit_key(fingerprint);
  uint128 hashes = 0;
  uint128 numbers = 0;
  for (std::uint64_t sample = begin; sample < end; ++sample) {
    hashes += hash_of(sample, key);
    numbers += sample;
  }
  return {begin < end ? end - begin : 0, split(hashes), split(numbers)};
}

EpochAudit::Sum EpochAudit::Sum::of(std::span<const std::uint64_t> samples, Hash128 fingerprint) {
  const Hash128 key = audit_key(fingerprint);
  uint128 hashes = 0;
  uint128 numbers = 0;
  for (const std::uint64_t sample : samples) {
    hashes += hash_of(sample, key);
    numbers += sample;
  }
  return {samples.size(), split(hashes), split(numbers)};
}

EpochAudit::Sum& EpochAudit::Sum::operator+=(const EpochAudit::Sum& other) noexcept {
  count += other.count;
  hashes = split(join(hashes) + join(other.hashes));
  numbers = split(join(numbers) + join(other.numbers));
  return *this;
}

EpochAudit::Sum& EpochAudit::Sum::operator-=(const EpochAudit::Sum& other) noexcept {
  count -= other.count;
  hashes = split(join(hashes) - join(other.hashes));
  numbers = split(join(numbers) - join(other.numbers));
  return *this;
}

std::array<std::int64_t, EpochAudit::Sum::kNumWords> EpochAudit::Sum::to_words() const noexcept {
  std::array<std::int64_t, kNumWords> words{};
  const std::array<std::uint64_t, 5> parts{count, hashes.low, hashes.high, numbers.low,
                                           numbers.high};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    words[2 * i] = static_cast<std::int64_t>(parts[i] & kLow32);
    words[2 * i + 1] = static_cast<std::int64_t>(parts[i] >> 32);
  }
  return words;
}

EpochAudit::Sum EpochAudit::Sum::from_words(std::span<const std::int64_t, kNumWords> words) {
  if (std::any_of(words.begin(), words.end(), [](std::int64_t w) { return w < 0; })) {
    throw InvalidArgument("the words are not the sum of an epoch", "a word is negative",
                          "sum the words as signed 64-bit integers over at most 2^31 ranks");
  }
  const auto join_limbs = [&words](std::size_t first, std::size_t num_limbs) {
    uint128 value = 0;
    for (std::size_t i = 0; i < num_limbs; ++i) {
      // Carries beyond 2^128 are dropped.
      value += static_cast<uint128>(words[first + i]) << (32 * i);
    }
    return value;
  };
  EpochAudit::Sum sum;
  sum.count = static_cast<std::uint64_t>(join_limbs(0, 2));
  sum.hashes = split(join_limbs(2, 4));
  sum.numbers = split(join_limbs(6, 4));
  return sum;
}

EpochAudit::Expectation::Expectation(std::uint64_t num_samples, Hash128 fingerprint)
    : EpochAudit::Expectation(num_samples, fingerprint,
                              EpochAudit::Sum::of_range(0, num_samples, fingerprint)) {}

EpochAudit::Expectation::Expectation(std::uint64_t num_samples, Hash128 fingerprint,
                                     const EpochAudit::Sum& all)
    : num_samples_(num_samples), fingerprint_(fingerprint), sum_(all) {}

EpochAudit::Expectation EpochAudit::Expectation::of(std::span<const std::uint64_t> samples,
                                                    std::uint64_t num_samples,
                                                    Hash128 fingerprint) {
  EpochAudit::Expectation expectation;
  expectation.num_samples_ = num_samples;
  expectation.base_times_ = 0;
  expectation.fingerprint_ = fingerprint;
  expectation.num_left_out_ = num_samples;
  expectation.repeat(samples);
  return expectation;
}

EpochAudit::Expectation EpochAudit::Expectation::as_ordered(std::uint64_t num_samples,
                                                            Hash128 fingerprint) {
  EpochAudit::Expectation expectation;
  expectation.num_samples_ = num_samples;
  expectation.base_times_ = 0;
  expectation.knows_times_ = false;
  expectation.fingerprint_ = fingerprint;
  expectation.claim_ = "as ordered";
  return expectation;
}

void EpochAudit::Expectation::check(std::span<const std::uint64_t> samples) const {
  for (const std::uint64_t sample : samples) detail::require_sample(sample, num_samples_);
}

std::uint64_t EpochAudit::Expectation::times(std::uint64_t sample) const {
  SHARDWISE_ASSERT(sample < num_samples_ && knows_times_);
  const auto at =
      std::lower_bound(exceptions_.begin(), exceptions_.end(), sample,
                       [](const Exception& e, std::uint64_t number) { return e.sample < number; });
  return at == exceptions_.end() || at->sample != sample ? base_times_ : at->times;
}

/// Returns the distinct samples, ascending, with the number of times that each is listed.
std::vector<EpochAudit::Expectation::Exception> EpochAudit::Expectation::counted(
    std::span<const std::uint64_t> samples) const {
  std::vector<std::uint64_t> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Exception> counts;
  for (const std::uint64_t sample : sorted) {
    if (!counts.empty() && counts.back().sample == sample) {
      ++counts.back().times;
    } else {
      counts.push_back({sample, 1});
    }
  }
  return counts;
}

/// Replaces or adds the entries of the samples in `changed`. REQUIRES: `changed` is ascending.
void EpochAudit::Expectation::merge(std::vector<Exception> changed) {
  std::vector<Exception> merged;
  merged.reserve(exceptions_.size() + changed.size());
  auto old = exceptions_.begin();
  for (const Exception& exception : changed) {
    while (old != exceptions_.end() && old->sample < exception.sample) merged.push_back(*old++);
    if (old != exceptions_.end() && old->sample == exception.sample) ++old;
    merged.push_back(exception);
  }
  merged.insert(merged.end(), old, exceptions_.end());
  exceptions_ = std::move(merged);
}

void EpochAudit::Expectation::repeat(std::span<const std::uint64_t> samples) {
  if (samples.empty()) return;
  check(samples);
  if (knows_times_) {
    std::vector<Exception> changed = counted(samples);
    for (Exception& exception : changed) {
      const std::uint64_t before = times(exception.sample);
      num_repeated_ += exception.times - (before == 0 ? 1 : 0);
      num_left_out_ -= before == 0 ? 1 : 0;
      exception.times += before;
    }
    merge(std::move(changed));
  }
  sum_ += EpochAudit::Sum::of(samples, fingerprint_);
}

void EpochAudit::Expectation::leave_out(std::span<const std::uint64_t> samples) {
  if (samples.empty()) return;
  check(samples);
  if (knows_times_) {
    std::vector<Exception> changed = counted(samples);
    for (const Exception& exception : changed) {
      if (times(exception.sample) >= exception.times) continue;
      throw InvalidArgument("cannot leave out sample " + number(exception.sample),
                            "listed " + number(exception.times) + " times, expected " +
                                number(times(exception.sample)) + " times",
                            "list a sample at most as often as the epoch expects the sample");
    }
    for (Exception& exception : changed) {
      const std::uint64_t before = times(exception.sample);
      const std::uint64_t after = before - exception.times;
      num_left_out_ += after == 0 ? 1 : 0;
      num_repeated_ -= exception.times - (after == 0 ? 1 : 0);
      exception.times = after;
    }
    merge(std::move(changed));
  }
  sum_ -= EpochAudit::Sum::of(samples, fingerprint_);
}

std::string EpochAudit::Verdict::text(std::uint64_t epoch) const {
  std::string text = "epoch " + number(epoch) + ": ";
  if (proven && !claim.empty())
    return text + counted(expected, "sample") + " " + std::string(claim) + ": proven";
  if (proven) {
    text += counted(expected - num_repeated_on_purpose, "sample") + ", each exactly once";
    if (num_repeated_on_purpose > 0)
      text += ", " + human_count(num_repeated_on_purpose) + " repeated on purpose";
    if (num_left_out_on_purpose > 0)
      text += ", " + human_count(num_left_out_on_purpose) + " excluded on purpose";
    return text + ": proven";
  }
  if (expected == 0 && delivered == 0) {
    return text + "no samples, so nothing is proven";
  }
  text += claim.empty() ? "not exact: " : "not as ordered: ";
  text += counted(delivered, "delivery") + ", " + human_count(expected) + " expected: ";
  if (!complete) {
    text += "at least ";
  }
  text += human_count(num_missing) + " missing, " + human_count(num_repeated) + " repeated";
  if (num_unknown > 0) text += ", " + human_count(num_unknown) + " with unknown sample numbers";
  if (!complete) return text + if_there("; ", "a debug audit", " lists them");
  if (!missing.empty()) text += "; missing: " + listed(missing);
  if (!repeated.empty()) text += "; repeated: " + listed(repeated);
  return text;
}

EpochAudit::EpochAudit(Hash128 fingerprint)
    : fingerprint_(fingerprint), key_(audit_key(fingerprint)) {}

EpochAudit EpochAudit::with_debug(std::uint64_t num_samples, Hash128 fingerprint) {
  EpochAudit audit(fingerprint);
  audit.counts_.resize(num_samples);
  return audit;
}

void EpochAudit::add(std::uint64_t sample) noexcept { add({&sample, 1}); }

void EpochAudit::add(std::span<const std::uint64_t> samples) noexcept {
  uint128 hashes = join(sum_.hashes);
  uint128 numbers = join(sum_.numbers);
  for (const std::uint64_t sample : samples) {
    hashes += hash_of(sample, key_);
    numbers += sample;
  }
  sum_.count += samples.size();
  sum_.hashes = split(hashes);
  sum_.numbers = split(numbers);
  if (counts_.empty()) return;
  for (const std::uint64_t sample : samples) {
    if (sample < counts_.size()) ++counts_[sample];
  }
}

void EpochAudit::merge(const EpochAudit& other) {
  if (other.fingerprint_ != fingerprint_ || other.counts_.size() != counts_.size()) {
    throw Mismatch("cannot merge two epoch audits", {},
                   "merge audits of one data set, all with or all without debug mode");
  }
  sum_ += other.sum_;
  counts_complete_ = counts_complete_ && other.counts_complete_;
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

void EpochAudit::merge(const EpochAudit::Sum& other) noexcept {
  sum_ += other;
  if (other.count > 0) counts_complete_ = false;
}

void EpochAudit::reset() noexcept {
  sum_ = {};
  std::fill(counts_.begin(), counts_.end(), 0);
  counts_complete_ = true;
}

namespace {

/// Tests whether a single error explains the difference of the sums: one sample is missing, one
/// sample was delivered once too often, or one sample was delivered instead of another. If so,
/// stores it in `verdict`.
void explain_by_one(const EpochAudit::Expectation& expectation, const EpochAudit::Sum& sum,
                    const Hash128& key, EpochAudit::Verdict& verdict) {
  const uint128 hashes = join(expectation.sum().hashes) - join(sum.hashes);
  const uint128 numbers = join(expectation.sum().numbers) - join(sum.numbers);
  const std::uint64_t n = expectation.num_samples();
  if (verdict.expected == verdict.delivered + 1) {
    const auto sample = static_cast<std::uint64_t>(numbers);
    if (numbers >= n || expectation.times(sample) == 0 || hash_of(sample, key) != hashes) return;
    verdict.missing = {{sample, 1}};
  } else if (verdict.expected + 1 == verdict.delivered) {
    const uint128 extra = uint128{0} - numbers;
    const auto sample = static_cast<std::uint64_t>(extra);
    if (extra >= n || hash_of(sample, key) != uint128{0} - hashes) return;
    verdict.repeated = {{sample, 1}};
  } else if (verdict.expected == verdict.delivered) {
    // Search for a missing and a repeated sample, both below n, with missing - repeated = numbers.
    const auto shift = static_cast<std::uint64_t>(numbers);
    for (std::uint64_t repeated = 0; repeated < n; ++repeated) {
      const std::uint64_t missing = repeated + shift;
      if (missing >= n || hash_of(missing, key) - hash_of(repeated, key) != hashes) continue;
      if (expectation.times(missing) == 0) return;
      verdict.missing = {{missing, 1}};
      verdict.repeated = {{repeated, 1}};
      break;
    }
  }
  verdict.complete = !verdict.missing.empty() || !verdict.repeated.empty();
}

}  // namespace

EpochAudit::Verdict EpochAudit::verdict(const EpochAudit::Expectation& expectation) const {
  EpochAudit::Verdict verdict;
  verdict.expected = expectation.sum().count;
  verdict.delivered = sum_.count;
  verdict.claim = expectation.claim();
  verdict.num_repeated_on_purpose = expectation.num_repeated();
  verdict.num_left_out_on_purpose = expectation.num_left_out();
  // An epoch without samples is not proven. Otherwise an epoch over a view whose condition no
  // sample satisfies would look proven.
  const bool is_as_expected = sum_ == expectation.sum();
  verdict.proven = is_as_expected && expectation.num_samples() > 0;
  if (is_as_expected) {
    verdict.complete = true;
    return verdict;
  }
  if (!counts_.empty() && counts_complete_ && expectation.knows_times() &&
      counts_.size() == expectation.num_samples()) {
    std::uint64_t known = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const auto came = static_cast<std::uint64_t>(counts_[i]);
      const std::uint64_t expected = expectation.times(i);
      known += came;
      if (came < expected) {
        verdict.missing.push_back({i, expected - came});
        verdict.num_missing += expected - came;
      } else if (came > expected) {
        verdict.repeated.push_back({i, came - expected});
        verdict.num_repeated += came - expected;
      }
    }
    verdict.num_unknown = verdict.delivered - std::min(verdict.delivered, known);
    verdict.complete = true;
    return verdict;
  }
  if (expectation.knows_times()) explain_by_one(expectation, sum_, key_, verdict);
  if (verdict.complete) {
    verdict.num_missing = verdict.missing.size();
    verdict.num_repeated = verdict.repeated.size();
  } else if (verdict.expected > verdict.delivered) {
    verdict.num_missing = verdict.expected - verdict.delivered;
  } else if (verdict.expected < verdict.delivered) {
    verdict.num_repeated = verdict.delivered - verdict.expected;
  } else {
    verdict.num_missing = 1;
    verdict.num_repeated = 1;
  }
  return verdict;
}

void EpochAudit::prove(const EpochAudit::Expectation& expectation, std::uint64_t epoch) const {
  if (expectation.fingerprint() != fingerprint_) {
    throw Mismatch("cannot prove epoch " + number(epoch), {},
                   "use an expectation and an audit of the same data set");
  }
  const EpochAudit::Verdict outcome = verdict(expectation);
  if (!outcome.proven) throw NotExact(outcome.text(epoch));
}

}  // namespace shardwise
