#pragma once

#include <cstdint>
#include <span>

#include "loader/buffer_pool.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/loader.h"

namespace shardwise::detail {

/// Mixes the images of whole batches, as Loader::Mix says. Immutable; safe from any thread.
class BatchMixer {
 public:
  /// Errors: InvalidArgument if `mix` cannot be done to one of `columns`.
  BatchMixer(const Loader::Mix& mix, std::span<const Column> columns, std::uint64_t seed);

  /// Mixes in place, and adds the arrays "_lambda" and "_partner". The draw is that of the first
  /// sample that is there: a bad one before it is left out at once, or by a later run's skip list.
  void mix(Batch& batch, std::uint64_t epoch, BufferPool& pool) const;

 private:
  /// Returns lambda.
  [[nodiscard]] double mix_pixels(const Batch::Array& images, const Hash128& key) const;

  Loader::Mix mix_;
  ImageTransform::Layout layout_ = ImageTransform::Layout::kChannelsFirst;
  std::uint64_t seed_;
};

}  // namespace shardwise::detail
