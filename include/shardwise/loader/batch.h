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

/// The kind of a type: 'f' for floating-point numbers, 'i' for signed and 'u' for unsigned
/// integers, '?' otherwise.
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
  kBFloat16,  ///< the upper half of a float32
  kFloat32,
  kFloat64,
  kComplex64,  ///< two float32: real, imaginary
  kComplex128,
};

/// Bytes per value.
SHARDWISE_EXPORT std::size_t size_of(DType dtype) noexcept;
/// NumPy's name of the type, e.g. "uint8".
SHARDWISE_EXPORT std::string_view to_string(DType dtype) noexcept;

namespace detail {
/// Throws InvalidArgument, naming type and column, unless values of `dtype` can be read as numbers
/// of this size, alignment and kind. An empty `column` means that the values belong to a Row.
SHARDWISE_EXPORT void require_type(DType dtype, std::string_view column, std::size_t size,
                                   std::size_t alignment, char kind);
}  // namespace detail

/// The rows of one step of one rank, as named arrays in plain memory. A Loader delivers them.
///
///     for (const Batch& batch : epoch) {
///       const Batch::Array& images = batch["jpg"];         // uint8 [N, 3, 224, 224]
///       std::span<const std::uint8_t> pixels = images.values<std::uint8_t>();
///       std::string_view caption = batch["txt"].text(0);   // of the first row
///     }
///
/// All arrays have the same rows in the same order, except packed ones (see Loader::ByLength).
///
/// Threads: one thread per batch; different batches may be used by different threads.
/// Lifetime: a Batch owns its memory, and may outlive its loader. The loader reuses the memory when
///   the last Batch, Array or memory() that refers to it is destroyed.
class SHARDWISE_EXPORT Batch {
 public:
  class Array;

  /// Number of rows. It is 0 in an epoch's last step if this rank has no samples left, but other
  /// ranks have.
  [[nodiscard]] std::size_t size() const noexcept { return samples_.size(); }
  [[nodiscard]] bool empty() const noexcept { return samples_.empty(); }

  /// The key of the batch's group. Empty without Loader::ByGroup, and if the batch has no rows.
  [[nodiscard]] const std::string& group() const noexcept { return group_; }

  /// The array of a column. Errors: NotFound; the text lists the columns.
  [[nodiscard]] const Array& operator[](std::string_view column) const&;
  const Array& operator[](std::string_view column) const&& = delete;
  /// All arrays, in the order of the loader's columns.
  [[nodiscard]] std::span<const Array> arrays() const& noexcept;
  std::span<const Array> arrays() const&& = delete;

  /// For each row, the sample's number in the data set.
  [[nodiscard]] std::span<const std::int64_t> samples() const noexcept { return samples_; }
  /// For each row, the sample's position in the epoch, counted over all ranks as if no sample were
  /// left out. Tokens and skip lists use the same positions.
  [[nodiscard]] std::span<const std::int64_t> positions() const noexcept { return positions_; }

 private:
  friend class detail::BatchBuilder;

  std::vector<Array> arrays_;
  std::vector<std::int64_t> samples_;
  std::vector<std::int64_t> positions_;
  std::string group_;
};

/// The rows of one column, in Arrow's memory layout: values one after another, 64-byte aligned.
///
/// If all rows have the same shape, the array is [N, ...] in C order. Columns may define the
/// layout: images with channels last are stored as [N, H, W, C]. Otherwise the array is ragged: row
/// i has the values [offsets()[i], offsets()[i + 1]) and the shape row_shape(i).
class SHARDWISE_EXPORT Batch::Array {
 public:
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] bool is_ragged() const noexcept { return is_ragged_; }
  [[nodiscard]] std::size_t size() const noexcept { return num_rows_; }
  /// The shape of the whole array: [N, ...], or [N] if ragged.
  [[nodiscard]] std::vector<std::int64_t> shape() const;
  /// The shape of one row. REQUIRES: row < size().
  [[nodiscard]] std::span<const std::int64_t> row_shape(std::size_t row) const noexcept;

  /// All values as T. T must be std::uint16_t for kFloat16 and kBFloat16, and the real type for
  /// complex numbers. A T that is char, or not a number (e.g. std::byte), fits all types of its
  /// size and alignment.
  /// Errors: InvalidArgument if T does not fit the values.
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
  /// The bytes of one row as text. REQUIRES: row < size().
  [[nodiscard]] std::string_view text(std::size_t row) const noexcept;
  /// For a ragged array, N + 1 offsets into the values, starting with 0. Otherwise empty.
  [[nodiscard]] std::span<const std::int64_t> offsets() const noexcept { return offsets_; }

  /// Shared ownership of the values' memory, e.g. for tensors of other libraries that use the same
  /// memory. You may write to it. The loader does not write to it as long as you share it.
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
  std::vector<std::int64_t> shapes_;  ///< the shape of one row; if ragged, of each row that has
                                      ///< dimensions
  std::size_t rank_ = 0;              ///< number of dimensions of a row
};

inline std::span<const Batch::Array> Batch::arrays() const& noexcept { return arrays_; }

}  // namespace shardwise
