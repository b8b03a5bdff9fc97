#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise {

namespace detail {
class BatchBuilder;

/// 'f', 'i' and 'u', as of a real number, one with a sign and one without; '?' of what else there
/// is.
template <class T>
inline constexpr char kind_of_number = std::is_floating_point_v<T>                           ? 'f'
                                       : !std::is_arithmetic_v<T> || std::is_same_v<T, char> ? '?'
                                       : std::is_signed_v<T>                                 ? 'i'
                                                                                             : 'u';
}  // namespace detail

/// The type of an array's values, in the machine's byte order (little-endian).
enum class DType : std::uint8_t {
  kBool,  ///< a byte, 0 or 1
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kFloat16,   ///< IEEE 754 binary16
  kBFloat16,  ///< its upper half of a float32
  kFloat32,
  kFloat64,
  kComplex64,  ///< two kFloat32: real, imaginary
  kComplex128,
};

/// Bytes of one value.
SHARDWISE_EXPORT std::size_t size_of(DType dtype) noexcept;
/// "uint8", as NumPy names it.
SHARDWISE_EXPORT std::string_view to_string(DType dtype) noexcept;

namespace detail {
/// Throws InvalidArgument, naming type and column, if values of `dtype` are not read as numbers of
/// this size, alignment and kind. Without a column they are those of a row.
SHARDWISE_EXPORT void require_type(DType dtype, std::string_view column, std::size_t size,
                                   std::size_t alignment, char kind);
}  // namespace detail

/// What a Loader delivers: the rows of one step of one rank, as named arrays in plain memory.
///
///     for (const Batch& batch : epoch) {
///       const Batch::Array& images = batch["jpg"];         // uint8 [N, 3, 224, 224]
///       std::span<const std::uint8_t> pixels = images.values<std::uint8_t>();
///       std::string_view caption = batch["txt"].text(0);   // of the first row
///     }
///
/// The order and the number of rows are the same in every array, but for packed ones (see
/// Loader::ByLength). A Batch owns its memory, which
/// goes back to the loader, to be used again, when the last Batch, Array or memory() of it is gone;
/// it may outlive its loader. One thread, as any value; different batches from different threads.
class SHARDWISE_EXPORT Batch {
 public:
  class Array;

  /// Rows. 0 in the last step of a rank that has nothing left while others have.
  [[nodiscard]] std::size_t size() const noexcept { return samples_.size(); }
  [[nodiscard]] bool empty() const noexcept { return samples_.empty(); }

  /// The array of a column. Errors: NotFound; the text lists the columns that there are.
  [[nodiscard]] const Array& operator[](std::string_view column) const&;
  const Array& operator[](std::string_view column) const&& = delete;
  /// All arrays, in the order of the loader's columns.
  [[nodiscard]] std::span<const Array> arrays() const& noexcept;
  std::span<const Array> arrays() const&& = delete;

  /// The sample number of each row in the data set.
  [[nodiscard]] std::span<const std::int64_t> samples() const noexcept { return samples_; }
  /// The position of each row in the epoch, counted over all ranks as if nothing were left out, as
  /// in tokens and skip lists.
  [[nodiscard]] std::span<const std::int64_t> positions() const noexcept { return positions_; }

 private:
  friend class detail::BatchBuilder;

  std::vector<Array> arrays_;
  std::vector<std::int64_t> samples_;
  std::vector<std::int64_t> positions_;
};

/// The rows of one column, in Arrow's memory layout: values one after another, 64-byte aligned.
///
/// If all rows have one shape, the array is [N, ...] in C order, or as the column says (images
/// with channels last lie as [N, H, W, C]). If not, it is ragged: row i has the values
/// [offsets()[i], offsets()[i + 1]), in the shape that row_shape(i) says.
class SHARDWISE_EXPORT Batch::Array {
 public:
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] bool is_ragged() const noexcept { return is_ragged_; }
  [[nodiscard]] std::size_t size() const noexcept { return num_rows_; }
  /// The shape of the whole, [N, ...]; of a ragged one [N].
  [[nodiscard]] std::vector<std::int64_t> shape() const;
  /// The shape of one row. REQUIRES: row < size().
  [[nodiscard]] std::span<const std::int64_t> row_shape(std::size_t row) const noexcept;

  /// All values. For kFloat16 and kBFloat16 T is std::uint16_t, for complex numbers their real
  /// type. A type that is no number, or char, goes with any values of its size.
  /// Errors: InvalidArgument if T is not the type of the values.
  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    detail::require_type(dtype_, name_, sizeof(T), alignof(T), detail::kind_of_number<T>);
    return {reinterpret_cast<const T*>(values_.get()), num_bytes_ / sizeof(T)};
  }
  /// All values as bytes.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {values_.get(), num_bytes_};
  }
  /// The bytes of one row. REQUIRES: row < size().
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t row) const noexcept;
  /// The same, as a text. REQUIRES: row < size().
  [[nodiscard]] std::string_view text(std::size_t row) const noexcept;
  /// Ragged: N + 1 numbers of values, the first 0. Otherwise empty.
  [[nodiscard]] std::span<const std::int64_t> offsets() const noexcept { return offsets_; }

  /// The values' memory, to be kept: for tensors and arrays of other libraries over it. It may be
  /// written to; nothing else does.
  [[nodiscard]] const std::shared_ptr<std::byte>& memory() const noexcept { return values_; }

 private:
  friend class detail::BatchBuilder;

  std::string name_;
  DType dtype_ = DType::kUInt8;
  bool is_ragged_ = false;
  std::size_t num_rows_ = 0;
  std::size_t num_bytes_ = 0;
  std::shared_ptr<std::byte> values_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> shapes_;  ///< of one row; ragged: of each row, if it has dimensions
  std::size_t rank_ = 0;              ///< numbers in the shape of a row
};

inline std::span<const Batch::Array> Batch::arrays() const& noexcept { return arrays_; }

}  // namespace shardwise
