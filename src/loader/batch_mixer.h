#pragma once

#include <cstdint>
#include <span>

#include "loader/buffer_pool.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/loader.h"

namespace shardwise::detail {

/// Mixes the images of whole batches, as Loader::Mix specifies. Immutable; safe from any thread.
class BatchMixer {
 public:
  /// Errors: InvalidArgument if `mix` is invalid, or cannot be applied to `columns`.
  BatchMixer(const Loader::Mix& mix, std::span<const Column> columns, std::uint64_t seed);

  /// Mixes the images in place, and adds the arrays "_lambda" and "_partner". The random draw
  /// depends on the position of the first good sample. The result is thus the same whether earlier
  /// bad samples are found now or were already on the skip list.
  void mix(Batch& batch, std::uint64_t epoch, BufferPool& pool) const;

 private:
  /// Mixes the images of a batch in place. Returns lambda.
  [[nodiscard]] double mix_pixels(const Batch::Array& images, const Hash128& key) const;

  Loader::Mix mix_;
  ImageTransform::Layout layout_ = ImageTransform::Layout::kChannelsFirst;
  std::uint64_t seed_;
};

}  // namespace shardwise::detail
