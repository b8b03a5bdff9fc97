#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/expanding_reader.h"
#include "loader/column_maker.h"
#include "loader/field_choice.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Whether the name of one of these fields is that of a compressed file, e.g. "json.gz". The size
/// of such a field is unknown until it is decompressed.
SHARDWISE_EXPORT bool any_compressed(const FieldChoice& fields) noexcept;

/// The bytes of a field as a column needs them: decompressed if the field's name is that of a
/// compressed file, else as stored.
/// Threads: one.
/// Lifetime: valid while the sample lives.
class SHARDWISE_EXPORT FieldBytes {
 public:
  /// @param place  number of the field in the sample.
  /// Errors: BadField if the field cannot be decompressed, or exceeds input.max_expanded_bytes.
  FieldBytes(const RowInput& input, std::size_t place);

  [[nodiscard]] std::string_view view() const noexcept { return view_; }
  [[nodiscard]] std::size_t size() const noexcept { return view_.size(); }
  /// Copies all bytes to `to`, which must have their size. Errors: those of SampleAccess::copy().
  void copy(std::span<std::byte> to) const;

 private:
  void expand(const RowInput& input, Compression compression);

  const Sample& sample_;
  const std::size_t place_;
  std::string_view view_;
  ExpandedBytes expanded_;
};

/// Parses a field as a decimal integer. Errors: BadField, and those of Sample::integer().
SHARDWISE_EXPORT std::int64_t integer_of(const RowInput& input, std::size_t place);

}  // namespace shardwise::detail
