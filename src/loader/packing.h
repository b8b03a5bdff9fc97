#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/buffer_pool.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"

namespace shardwise::detail {

/// Token sequences placed in the rows of a batch. Positions count through all rows, as if they were
/// one long row; each sequence is contiguous in it.
struct PackedBatch {
  std::vector<std::uint32_t> samples;  ///< numbers in the window, sorted by start
  std::vector<std::uint64_t> starts;   ///< position of each sequence's first token in the long row
};

/// Returns the packed batches of one window. A sequence longer than a row begins in a new row, and
/// continues in the next. Sequences never overlap, and none is split between batches.
///
/// A pure function of its arguments, specified by docs/formats/length-batches.md.
/// REQUIRES: no length is above num_rows * row_length.
[[nodiscard]] std::vector<PackedBatch> packed_batches(std::span<const std::uint64_t> lengths,
                                                      std::uint64_t num_rows,
                                                      std::uint64_t row_length, std::uint64_t seed,
                                                      std::uint64_t epoch, std::uint64_t window);

/// Packs the rows of a ragged array into [num_rows, row_length], and adds arrays that map tokens to
/// sequences. Immutable; safe from any thread.
class Packer {
 public:
  /// Throws InvalidArgument if rows of `column` cannot be packed, or if its type cannot represent
  /// `padding`.
  static void require(const Column& column, std::int64_t padding);

  /// REQUIRES: require() accepts the column and the padding.
  Packer(std::string column, std::uint64_t num_rows, std::uint64_t row_length, std::int64_t padding)
      : column_(std::move(column)),
        num_rows_(num_rows),
        row_length_(row_length),
        padding_(padding) {}

  /// Replaces the column of `batch` by the packed one, and adds its "_segments" and "_positions".
  /// @param positions, starts, lengths  as planned; a planned sample that `batch` lacks leaves a
  /// gap.
  /// Errors: NotFound (no such column); InvalidArgument if a sequence does not have its planned
  /// length, or if the batch does not fit into memory.
  void pack(Batch& batch, std::span<const std::uint64_t> positions,
            std::span<const std::uint64_t> starts, std::span<const std::uint64_t> lengths,
            BufferPool& pool) const;

 private:
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t size, BufferPool& pool) const;

  std::string column_;
  std::uint64_t num_rows_;
  std::uint64_t row_length_;
  std::int64_t padding_;
};

}  // namespace shardwise::detail
