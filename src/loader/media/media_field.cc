#include "loader/media/media_field.h"

#include <algorithm>
#include <vector>

#include "data/sample_access.h"
#include "decode/video/container.h"

namespace shardwise::detail {

MediaField::MediaField(const RowInput& input, std::size_t place)
    : source_(SampleAccess::open_field(input.sample, place)) {
  if (!source_) {
    whole_.emplace(input, place);
    return;
  }
  input.add_bytes(source_->size());
  parts_.emplace(*source_);
  if (source_->is_remote() && is_read_whole(*parts_)) fetch();
}

/// Fetches all bytes, in ranges that several connections share.
void MediaField::fetch() {
  constexpr std::size_t kRange = std::size_t{8} << 20;
  const auto size = static_cast<std::size_t>(source_->size());
  fetched_ = std::make_unique_for_overwrite<char[]>(size);
  std::vector<ByteSource::Part> ranges;
  for (std::size_t at = 0; at < size; at += kRange) {
    ranges.push_back({at, {fetched_.get() + at, std::min(kRange, size - at)}});
  }
  source_->read_parts(ranges);
}

MediaView MediaField::view() {
  if (whole_) return whole_->view();
  if (fetched_) return std::string_view(fetched_.get(), static_cast<std::size_t>(source_->size()));
  return *parts_;
}

}  // namespace shardwise::detail
