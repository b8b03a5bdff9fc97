#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loader/buffer_pool.h"
#include "loader/column_maker.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"

namespace shardwise::detail {

/// The memory of one batch while its rows are made. A column's ColumnMaker::Layout decides the
/// form:
///
///   kFixed, kLikeFirst  | row 0 | row 1 | row 2 |      slots of equal size in the final array
///   kSized              | row 0 | 1 |    row 2    |    slots whose sizes the index knows
///   kRagged             RowBuffer, RowBuffer, ...      a buffer per row; finish() joins them
///
/// Threads: several threads may call output() and write different rows. All other calls need one
/// thread at a time.
class BatchBuilder {
 public:
  /// REQUIRES: `columns` and `pool` outlive it.
  BatchBuilder(std::span<const Column> columns, std::size_t num_rows, BufferPool& pool);

  /// Allocates the memory of a kFixed or kLikeFirst column.
  /// Errors: InvalidArgument if the batch is too large for memory, as for every call that
  /// allocates.
  void set_row_shape(std::size_t column, const std::vector<std::int64_t>& shape);
  /// Allocates the memory of a kSized column.
  /// @param sizes  bytes of each row.
  void set_sizes(std::size_t column, std::span<const std::uint64_t> sizes);

  /// Returns the bytes that set_row_shape() and set_sizes() have allocated.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  /// Returns where to write a row. REQUIRES: the column is kRagged, or its memory was allocated.
  [[nodiscard]] RowOutput output(std::size_t column, std::size_t row) noexcept;

  /// Returns where to write the rows from `row` on. REQUIRES: the column's memory was allocated.
  [[nodiscard]] RowSlots slots(std::size_t column, std::size_t row) const noexcept;

  /// Returns a batch of the rows whose `good` is true, in order, without gaps.
  /// @param samples, positions  of all rows, good or not.
  [[nodiscard]] Batch finish(const std::vector<bool>& good, std::span<const std::uint64_t> samples,
                             std::span<const std::uint64_t> positions);

  static void set_group(Batch& batch, std::string key) { batch.group_ = std::move(key); }
  /// Adds an array [num_rows, ...] to the batch. Replaces an array of the same name.
  static void set_array(Batch& batch, const std::string& name, DType dtype, std::size_t num_rows,
                        std::vector<std::int64_t> row_shape, std::shared_ptr<std::byte> memory);

 private:
  /// The rows of one column.
  struct Rows {
    DType dtype = DType::kUInt8;
    ColumnMaker::Layout layout = ColumnMaker::Layout::kFixed;
    std::vector<std::int64_t> shape;     // shape of a row; kFixed, kLikeFirst
    std::size_t row_bytes = 0;           // bytes of each row; kFixed, kLikeFirst
    std::shared_ptr<std::byte> memory;   // for kRagged: set by finish()
    std::vector<std::int64_t> offsets;   // for kSized, and for kRagged: set by finish()
    std::vector<RowBuffer> row_buffers;  // kRagged only
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
