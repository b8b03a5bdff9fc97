#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/buffer_pool.h"
#include "loader/column_maker.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"

namespace shardwise::detail {

/// The memory of one batch while its rows are made.
///
///   kFixed, kLikeFirst  | row 0 | row 1 | row 2 |      a slot of the final array each
///   kSized         | row 0 | 1 |    row 2    |    the same: the index knows their sizes
///   kRagged             RowBuffer, RowBuffer, ...      joined by finish()
///
/// Threads: output() and what it gives of different rows concurrently; the rest by one.
class BatchBuilder {
 public:
  /// REQUIRES: `columns` and `pool` outlive it.
  BatchBuilder(std::span<const Column> columns, std::size_t num_rows, BufferPool& pool);

  /// Takes the memory of a column of kFixed or kLikeFirst. Errors (of all that take memory):
  /// InvalidArgument if a batch of this shape cannot be, or there is no memory for it.
  void set_row_shape(std::size_t column, const std::vector<std::int64_t>& shape);
  /// Takes that of a column of kSized. @param sizes  of each row, in bytes.
  void set_sizes(std::size_t column, std::span<const std::uint64_t> sizes);

  /// Bytes taken so far.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  /// Where to write a row. REQUIRES: the column's memory was taken.
  [[nodiscard]] RowOutput output(std::size_t column, std::size_t row) noexcept;

  /// Where to write the rows from `row` on. REQUIRES: the same, and the column is not kRagged.
  [[nodiscard]] RowSlots slots(std::size_t column, std::size_t row) const noexcept;

  /// The batch of the rows that are `good`, in order; those that are not are closed up.
  /// @param samples, positions  of all rows.
  [[nodiscard]] Batch finish(const std::vector<bool>& good, std::span<const std::uint64_t> samples,
                             std::span<const std::uint64_t> positions);

  /// Puts an array [num_rows, ...] in the place of the one of that name, or behind all.
  static void set_array(Batch& batch, const std::string& name, DType dtype, std::size_t num_rows,
                        std::vector<std::int64_t> row_shape, std::shared_ptr<std::byte> memory);

 private:
  /// One column's.
  struct Rows {
    DType dtype = DType::kUInt8;
    ColumnMaker::Layout layout = ColumnMaker::Layout::kFixed;
    std::vector<std::int64_t> shape;     // of a row: kFixed, kLikeFirst
    std::size_t row_bytes = 0;           // the same
    std::shared_ptr<std::byte> memory;   // all but kRagged
    std::vector<std::int64_t> offsets;   // kSized
    std::vector<RowBuffer> row_buffers;  // kRagged
  };

  [[nodiscard]] std::shared_ptr<std::byte> take(const std::string& column,
                                                std::uint64_t num_bytes) const;
  void close_up_fixed(Rows& rows, const std::vector<bool>& good) const;
  void close_up_sized(Rows& rows, const std::vector<bool>& good) const;
  void join(Rows& rows, const std::vector<bool>& good, Batch::Array& array) const;

  std::span<const Column> columns_;
  std::size_t num_rows_;
  BufferPool& pool_;
  std::vector<Rows> rows_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace shardwise::detail
