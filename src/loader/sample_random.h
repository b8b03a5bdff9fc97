#pragma once

#include <cstdint>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/loader/image_transform.h"

namespace shardwise::detail {

/// Operations that draw random numbers. The values of the enumerators never change:
/// docs/formats/transforms.md lists them.
enum class Operation : std::uint64_t {
  kRandomResizedCrop = 1,
  kRandomCrop = 2,
  kHorizontalFlip = 3,
  kVerticalFlip = 4,
  kColourJitter = 5,
  kGrayscale = 6,
  kRandomErasing = 7,
  kMixup = 8,
  kCutmix = 9,
  kMixing = 10,
  kVideoClip = 11,
  kAudioClip = 12,
};

/// The random numbers of one operation on one sample or batch. They depend only on its key and the
/// operation: an operation does not shift the numbers of another. Threads: one.
class SHARDWISE_EXPORT SampleRandom {
 public:
  /// @param key  sample_key() of the sample, or batch_key() of the batch.
  SampleRandom(const Hash128& key, Operation operation) noexcept;

  /// Returns the next 64 random bits.
  std::uint64_t word() noexcept;
  /// Returns a multiple of 2^-53 in [0, 1).
  double uniform() noexcept;
  double uniform(const ImageTransform::Range& range) noexcept;
  /// Returns an odd multiple of 2^-53 in (0, 1).
  double inside() noexcept;
  /// Returns an integer in [0, n), each equally likely. REQUIRES: n > 0.
  std::uint64_t below(std::uint64_t n) noexcept;
  bool chance(double probability) noexcept { return uniform() < probability; }

 private:
  std::uint64_t state_;
  std::uint64_t step_;
};

/// Returns the key of a batch's random draws. `position` is the position of the batch's first
/// sample in the epoch.
SHARDWISE_EXPORT Hash128 batch_key(std::uint64_t seed, std::uint64_t epoch,
                                   std::uint64_t position) noexcept;

}  // namespace shardwise::detail
