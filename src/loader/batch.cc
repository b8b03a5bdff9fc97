#include "shardwise/loader/batch.h"

#include <array>

#include "base/assert.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/text.h"

namespace shardwise {
namespace {

struct TypeRow {
  std::string_view name;
  std::size_t bytes;
  std::size_t alignment;
  char kind;  ///< kind_of_number() of the value type
};

// In the order of DType's enumerators.
constexpr std::array<TypeRow, 15> kTypes = {{{"bool", 1, 1, 'u'},
                                             {"uint8", 1, 1, 'u'},
                                             {"int8", 1, 1, 'i'},
                                             {"uint16", 2, 2, 'u'},
                                             {"int16", 2, 2, 'i'},
                                             {"uint32", 4, 4, 'u'},
                                             {"int32", 4, 4, 'i'},
                                             {"uint64", 8, 8, 'u'},
                                             {"int64", 8, 8, 'i'},
                                             {"float16", 2, 2, 'u'},
                                             {"bfloat16", 2, 2, 'u'},
                                             {"float32", 4, 4, 'f'},
                                             {"float64", 8, 8, 'f'},
                                             {"complex64", 8, 4, 'f'},
                                             {"complex128", 16, 8, 'f'}}};
static_assert(kTypes.size() == static_cast<std::size_t>(DType::kComplex128) + 1);

const TypeRow& row_of(DType dtype) noexcept { return kTypes[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t size_of(DType dtype) noexcept { return row_of(dtype).bytes; }
std::string_view to_string(DType dtype) noexcept { return row_of(dtype).name; }

const Batch::Array& Batch::operator[](std::string_view column) const& {
  for (const Array& array : arrays_) {
    if (array.name() == column) return array;
  }
  std::string names;
  for (const Array& array : arrays_) {
    names += (names.empty() ? "" : ", ") + in_quotes(array.name());
  }
  throw NotFound("the batch has no column " + in_quotes(column), {}, "its columns are " + names);
}

std::vector<std::int64_t> Batch::Array::shape() const {
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(num_rows_)};
  if (!is_ragged_) shape.insert(shape.end(), shapes_.begin(), shapes_.end());
  return shape;
}

std::span<const std::int64_t> Batch::Array::row_shape(std::size_t row) const noexcept {
  SHARDWISE_ASSERT(row < num_rows_);
  if (!is_ragged_) return shapes_;
  if (shapes_.empty()) return {};
  return std::span(shapes_).subspan(row * rank_, rank_);
}

std::span<const std::byte> Batch::Array::bytes(std::size_t row) const noexcept {
  SHARDWISE_ASSERT(row < num_rows_);
  if (!is_ragged_) {
    const std::size_t row_bytes = num_bytes_ / num_rows_;
    return {values_.get() + row * row_bytes, row_bytes};
  }
  const std::size_t value_bytes = size_of(dtype_);
  const std::size_t begin = static_cast<std::size_t>(offsets_[row]) * value_bytes;
  const std::size_t end = static_cast<std::size_t>(offsets_[row + 1]) * value_bytes;
  return {values_.get() + begin, end - begin};
}

std::string_view Batch::Array::text(std::size_t row) const noexcept {
  const std::span<const std::byte> found = bytes(row);
  return {reinterpret_cast<const char*>(found.data()), found.size()};
}

void detail::require_type(DType dtype, std::string_view column, std::size_t size,
                          std::size_t alignment, char kind) {
  const TypeRow& type = row_of(dtype);
  const bool fits = alignment == type.alignment && (size == type.bytes || size == type.alignment);
  if (fits && (kind == type.kind || kind == '?')) return;
  throw InvalidArgument("the values of " +
                            (column.empty() ? "the row" : "column " + in_quotes(column)) + " are " +
                            std::string(type.name) + ", " + counted(type.bytes, "byte") + " each",
                        {}, "request values of type " + std::string(type.name));
}

}  // namespace shardwise
