#include "loader/sample_random.h"

#include "order/arithmetic.h"
#include "order/key.h"

// Compiled without fused multiply-add, so that the numbers are the same on every machine.

namespace shardwise::detail {

SampleRandom::SampleRandom(const Hash128& key, Operation operation) noexcept {
  const Hash128 own =
      derive_key(key.low, key.high, KeyPurpose::kOperation, static_cast<std::uint64_t>(operation));
  state_ = own.low;
  step_ = own.high | 1;
}

std::uint64_t SampleRandom::word() noexcept {
  const std::uint64_t word = mix64(state_);
  state_ += step_;
  return word;
}

double SampleRandom::uniform() noexcept { return static_cast<double>(word() >> 11) * 0x1p-53; }

double SampleRandom::uniform(const ImageTransform::Range& range) noexcept {
  return range.least + uniform() * (range.most - range.least);
}

double SampleRandom::inside() noexcept {
  return static_cast<double>((word() >> 12) * 2 + 1) * 0x1p-53;
}

std::uint64_t SampleRandom::below(std::uint64_t n) noexcept {
  // Reject products whose lower half is below 2^64 mod n, so that all results are equally likely.
  const std::uint64_t least = (0 - n) % n;
  for (;;) {
    const uint128 product = static_cast<uint128>(word()) * n;
    if (static_cast<std::uint64_t>(product) >= least) {
      return static_cast<std::uint64_t>(product >> 64);
    }
  }
}

Hash128 batch_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t position) noexcept {
  return derive_key(seed, epoch, KeyPurpose::kBatch, position);
}

}  // namespace shardwise::detail
