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

/// Whether one of these fields is compressed by its name, e.g. "json.gz". Its size is then unknown
/// until it is expanded.
SHARDWISE_EXPORT bool any_compressed(const FieldChoice& fields) noexcept;

/// The bytes of a field for a column: expanded if the field is compressed by its name, else those
/// in the shard.
/// Threads: one.
/// Lifetime: valid while the sample lives.
class SHARDWISE_EXPORT FieldBytes {
 public:
  /// @param place  of the field in the sample.
  /// Errors: BadField if it cannot be expanded, or exceeds input.max_expanded_bytes.
  FieldBytes(const RowInput& input, std::size_t place);

  [[nodiscard]] std::string_view view() const noexcept { return view_; }
  [[nodiscard]] std::size_t size() const noexcept { return view_.size(); }
  /// Copies all bytes to `to`, which has the same size. Errors: those of SampleAccess::copy.
  void copy(std::span<std::byte> to) const;

 private:
  void expand(const RowInput& input, Compression compression);

  const Sample& sample_;
  const std::size_t place_;
  std::string_view view_;
  ExpandedBytes expanded_;
};

/// Returns the decimal number in a field. Errors: BadField, and those of Sample::integer().
SHARDWISE_EXPORT std::int64_t integer_of(const RowInput& input, std::size_t place);

}  // namespace shardwise::detail
