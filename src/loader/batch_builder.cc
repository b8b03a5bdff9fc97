#include "loader/batch_builder.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

std::size_t count_good(const std::vector<bool>& good) {
  return static_cast<std::size_t>(std::count(good.begin(), good.end(), true));
}

}  // namespace

BatchBuilder::BatchBuilder(std::span<const Column> columns, std::size_t num_rows, BufferPool& pool)
    : columns_(columns), num_rows_(num_rows), pool_(pool), rows_(columns.size()) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    rows_[i].dtype = columns[i].maker()->dtype();
    rows_[i].layout = columns[i].maker()->layout();
    if (rows_[i].layout == ColumnMaker::Layout::kRagged) rows_[i].row_buffers.resize(num_rows);
  }
}

void BatchBuilder::set_row_shape(std::size_t column, const std::vector<std::int64_t>& shape) {
  Rows& rows = rows_[column];
  std::uint64_t row_bytes = size_of(rows.dtype);
  std::uint64_t total = num_rows_;
  bool fits = true;
  for (const std::int64_t n : shape) {
    fits = fits && n >= 0 &&
           !__builtin_mul_overflow(row_bytes, static_cast<std::uint64_t>(n), &row_bytes);
  }
  fits = fits && !__builtin_mul_overflow(total, row_bytes, &total);
  if (!fits || total > std::uint64_t{1} << 48) {
    throw InvalidArgument("a batch does not fit into memory", columns_[column].name(),
                          "choose a smaller batch size or smaller rows");
  }
  rows.shape = shape;
  rows.row_bytes = row_bytes;
  rows.memory = take(columns_[column].name(), total);
  size_bytes_ += total;
}

void BatchBuilder::set_sizes(std::size_t column, std::span<const std::uint64_t> sizes) {
  Rows& rows = rows_[column];
  rows.offsets.resize(num_rows_ + 1);
  for (std::size_t i = 0; i < num_rows_; ++i) {
    rows.offsets[i + 1] = rows.offsets[i] + static_cast<std::int64_t>(sizes[i]);
  }
  const auto total = static_cast<std::uint64_t>(rows.offsets.back());
  rows.memory = take(columns_[column].name(), total);
  size_bytes_ += total;
}

std::shared_ptr<std::byte> BatchBuilder::take(const std::string& column,
                                              std::uint64_t num_bytes) const {
  try {
    return pool_.take(num_bytes);
  } catch (const std::bad_alloc&) {
    throw InvalidArgument(
        "a batch does not fit into memory",
        column + ", " + human_bytes(num_bytes) + " for " + counted(num_rows_, "row"),
        "choose a smaller batch size or smaller rows");
  }
}

RowOutput BatchBuilder::output(std::size_t column, std::size_t row) noexcept {
  Rows& rows = rows_[column];
  switch (rows.layout) {
    case ColumnMaker::Layout::kRagged:
      return {{}, &rows.row_buffers[row], rows.dtype, {}};
    case ColumnMaker::Layout::kSized: {
      const auto begin = static_cast<std::size_t>(rows.offsets[row]);
      const auto end = static_cast<std::size_t>(rows.offsets[row + 1]);
      return {{rows.memory.get() + begin, end - begin}, nullptr, rows.dtype, {}};
    }
    case ColumnMaker::Layout::kFixed:
    case ColumnMaker::Layout::kLikeFirst:
      break;
  }
  return {
      {rows.memory.get() + row * rows.row_bytes, rows.row_bytes}, nullptr, rows.dtype, rows.shape};
}

RowSlots BatchBuilder::slots(std::size_t column, std::size_t row) const noexcept {
  const Rows& rows = rows_[column];
  if (rows.layout != ColumnMaker::Layout::kSized) {
    return {rows.memory.get() + row * rows.row_bytes, rows.row_bytes, nullptr};
  }
  return {rows.memory.get() + rows.offsets[row], 0, &rows.offsets[row]};
}

void BatchBuilder::close_up_fixed(Rows& rows, const std::vector<bool>& good) const {
  std::size_t to = 0;
  for (std::size_t i = 0; i < num_rows_; ++i) {
    if (!good[i]) continue;
    if (to != i && rows.row_bytes > 0) {
      std::memcpy(rows.memory.get() + to * rows.row_bytes, rows.memory.get() + i * rows.row_bytes,
                  rows.row_bytes);
    }
    ++to;
  }
}

void BatchBuilder::close_up_sized(Rows& rows, const std::vector<bool>& good) const {
  std::vector<std::int64_t> offsets{0};
  for (std::size_t i = 0; i < num_rows_; ++i) {
    if (!good[i]) continue;
    const std::int64_t size = rows.offsets[i + 1] - rows.offsets[i];
    if (size > 0) {
      std::memmove(rows.memory.get() + offsets.back(), rows.memory.get() + rows.offsets[i],
                   static_cast<std::size_t>(size));
    }
    offsets.push_back(offsets.back() + size);
  }
  rows.offsets = std::move(offsets);
}

void BatchBuilder::join(Rows& rows, const std::vector<bool>& good, Batch::Array& array) const {
  const std::size_t value_bytes = size_of(rows.dtype);
  std::size_t total = 0;
  bool has_rank = false;
  for (std::size_t i = 0; i < num_rows_; ++i) {
    if (!good[i] || !rows.row_buffers[i].has_shape()) continue;
    const RowBuffer& row = rows.row_buffers[i];
    total += row.bytes().size();
    if (std::exchange(has_rank, true) && array.rank_ != row.shape().size()) {
      throw InvalidArgument("the rows of one batch differ in their number of dimensions",
                            array.name_, "use one column per number of dimensions");
    }
    array.rank_ = row.shape().size();
  }
  if (!has_rank) array.rank_ = 1;  // all rows are empty
  rows.memory = take(array.name_, total);
  rows.offsets.assign(1, 0);
  std::size_t at = 0;
  for (std::size_t i = 0; i < num_rows_; ++i) {
    if (!good[i]) continue;
    const RowBuffer& row = rows.row_buffers[i];
    if (!row.bytes().empty()) {
      std::memcpy(rows.memory.get() + at, row.bytes().data(), row.bytes().size());
    }
    at += row.bytes().size();
    rows.offsets.push_back(static_cast<std::int64_t>(at / value_bytes));
    if (row.has_shape()) {
      array.shapes_.insert(array.shapes_.end(), row.shape().begin(), row.shape().end());
    } else {
      array.shapes_.insert(array.shapes_.end(), array.rank_, 0);
    }
  }
}

Batch BatchBuilder::finish(const std::vector<bool>& good, std::span<const std::uint64_t> samples,
                           std::span<const std::uint64_t> positions) {
  const std::size_t num_good = count_good(good);
  const bool all = num_good == num_rows_;
  Batch batch;
  batch.arrays_.resize(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    Rows& rows = rows_[c];
    Batch::Array& array = batch.arrays_[c];
    array.name_ = columns_[c].name();
    array.dtype_ = rows.dtype;
    array.num_rows_ = num_good;
    switch (rows.layout) {
      case ColumnMaker::Layout::kRagged:
        join(rows, good, array);
        break;
      case ColumnMaker::Layout::kSized:
        if (!all) close_up_sized(rows, good);
        array.rank_ = 1;
        array.shapes_.resize(num_good);
        for (std::size_t i = 0; i < num_good; ++i) {
          array.shapes_[i] = rows.offsets[i + 1] - rows.offsets[i];
        }
        break;
      case ColumnMaker::Layout::kFixed:
      case ColumnMaker::Layout::kLikeFirst:
        if (!all) close_up_fixed(rows, good);
        array.rank_ = rows.shape.size();
        array.shapes_ = std::move(rows.shape);
        array.num_bytes_ = num_good * rows.row_bytes;
        break;
    }
    array.is_ragged_ = !rows.offsets.empty();
    if (array.is_ragged_) {
      array.num_bytes_ = static_cast<std::size_t>(rows.offsets.back()) * size_of(rows.dtype);
    }
    array.values_ = std::move(rows.memory);
    array.offsets_ = std::move(rows.offsets);
  }
  if (all) {
    batch.samples_.assign(samples.begin(), samples.end());
    batch.positions_.assign(positions.begin(), positions.end());
    return batch;
  }
  batch.samples_.reserve(num_good);
  batch.positions_.reserve(num_good);
  for (std::size_t i = 0; i < num_rows_; ++i) {
    if (!good[i]) continue;
    batch.samples_.push_back(static_cast<std::int64_t>(samples[i]));
    batch.positions_.push_back(static_cast<std::int64_t>(positions[i]));
  }
  return batch;
}

void BatchBuilder::set_array(Batch& batch, const std::string& name, DType dtype,
                             std::size_t num_rows, std::vector<std::int64_t> row_shape,
                             std::shared_ptr<std::byte> memory) {
  Batch::Array array;
  array.name_ = name;
  array.dtype_ = dtype;
  array.num_rows_ = num_rows;
  array.num_bytes_ = num_rows * size_of(dtype);
  for (const std::int64_t n : row_shape) array.num_bytes_ *= static_cast<std::size_t>(n);
  array.values_ = std::move(memory);
  array.rank_ = row_shape.size();
  array.shapes_ = std::move(row_shape);
  const auto old = std::find_if(batch.arrays_.begin(), batch.arrays_.end(),
                                [&](const Batch::Array& a) { return a.name() == name; });
  if (old != batch.arrays_.end()) {
    *old = std::move(array);
  } else {
    batch.arrays_.push_back(std::move(array));
  }
}

}  // namespace shardwise::detail
