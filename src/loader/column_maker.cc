#include "loader/column_maker.h"

#include "base/counted.h"
#include "base/error_types.h"
#include "base/text.h"

namespace shardwise::detail {

ColumnMaker::~ColumnMaker() = default;

std::span<std::byte> RowBuffer::resize(std::span<const std::int64_t> shape,
                                       std::size_t value_bytes) {
  if (has_shape()) {
    throw InvalidArgument("resize() was called twice for one row", {},
                          "call resize() once per row");
  }
  std::uint64_t size = value_bytes;
  for (const std::int64_t n : shape) {
    if (n < 0 || __builtin_mul_overflow(size, static_cast<std::uint64_t>(n), &size)) {
      throw InvalidArgument("the shape of a row is not valid", std::to_string(n),
                            "give sizes of 0 or more whose product fits into memory");
    }
  }
  try {
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
  } catch (const std::bad_alloc&) {
    throw InvalidArgument("cannot allocate a row",
                          counted(static_cast<std::uint64_t>(size), "byte"),
                          "choose smaller rows, smaller batches, or a smaller prefetch");
  }
  size_ = size;
  shape_.assign(shape.begin(), shape.end());
  return {bytes_.get(), size_};
}

columns::Row RowBuffer::row(RowOutput& output) noexcept {
  return {output.slot, output.ragged, output.dtype};
}

std::vector<std::int64_t> required_shape(std::vector<std::int64_t> shape, const std::string& name) {
  for (const std::int64_t n : shape) {
    if (n >= 0) continue;
    throw InvalidArgument("a column's shape has a negative number",
                          in_quotes(name) + ": " + std::to_string(n),
                          "give the sizes of one row, each 0 or more");
  }
  return shape;
}

}  // namespace shardwise::detail
