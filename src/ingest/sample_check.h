#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "index/offset_table.h"

namespace shardwise::detail {

/// Returns the byte range of an uncompressed shard with all headers and data of a sample. It begins
/// where the member before ends. Returns nothing if the members do not follow each other, e.g.
/// resolved hard links.
/// REQUIRES: local < segment.num_samples().
std::optional<std::pair<std::uint64_t, std::uint64_t>> part_of_sample(const SegmentView& segment,
                                                                      std::uint32_t local);

/// True if `part` holds the sample's members as the index has them, by their headers. If the index
/// has hashes, the data must match them.
/// @param part     the bytes of part_of_sample().
/// @param offset   the offset of `part` in the shard.
/// @param lenient  scan as TarScanOptions::lenient.
/// Cost: reads the part's headers; all of it if the index has hashes.
bool holds_sample(const SegmentView& segment, std::uint32_t local, std::string_view part,
                  std::uint64_t offset, bool lenient);

}  // namespace shardwise::detail
