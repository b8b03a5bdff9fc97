#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/byte_source.h"
#include "decode/video/media_view.h"
#include "loader/column_maker.h"
#include "loader/field_bytes.h"

namespace shardwise::detail {

/// The bytes of a video or sound. A field that is not in memory is read in parts, as far as the
/// decoder needs it. If it is remote, and the decoder needs most of it, it is fetched as a whole.
/// Lifetime: valid while the sample lives.
/// Threads: one.
class MediaField {
 public:
  /// @param place  number of the field in the sample.
  /// Errors: those of FieldBytes, and those of reading the sample.
  MediaField(const RowInput& input, std::size_t place);

  [[nodiscard]] MediaView view();

 private:
  void fetch();

  const std::unique_ptr<const ByteSource> source_;  // null if the field is in memory
  std::optional<MediaInput> parts_;
  std::unique_ptr<char[]> fetched_;
  std::optional<FieldBytes> whole_;
};

}  // namespace shardwise::detail
