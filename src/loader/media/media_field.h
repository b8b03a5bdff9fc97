#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/byte_source.h"
#include "data/sample_access.h"
#include "decode/video/media_view.h"
#include "loader/column_maker.h"
#include "loader/field_bytes.h"

namespace shardwise::detail {

/// The bytes of a video or sound. A field that is not in memory is read in parts, as far as the
/// decoder needs it.
/// Lifetime: valid while the sample lives.
/// Threads: one.
class MediaField {
 public:
  /// @param place  number of the field in the sample.
  /// Errors: those of FieldBytes.
  MediaField(const RowInput& input, std::size_t place)
      : source_(SampleAccess::open_field(input.sample, place)) {
    if (source_) {
      input.add_bytes(source_->size());
      parts_.emplace(*source_);
    } else {
      whole_.emplace(input, place);
    }
  }

  [[nodiscard]] MediaView view() { return parts_ ? MediaView(*parts_) : MediaView(whole_->view()); }

 private:
  const std::unique_ptr<const ByteSource> source_;  // null if the field is in memory
  std::optional<MediaInput> parts_;
  std::optional<FieldBytes> whole_;
};

}  // namespace shardwise::detail
