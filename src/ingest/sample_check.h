#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "index/offset_table.h"

namespace shardwise::detail {

/// Returns the byte range of an uncompressed shard that has all headers and data of a sample. The
/// range begins at the end of the previous member. Returns nullopt if the sample's members are not
/// contiguous, e.g. because of resolved hard links.
/// REQUIRES: local < segment.num_samples().
std::optional<std::pair<std::uint64_t, std::uint64_t>> part_of_sample(const SegmentView& segment,
                                                                      std::uint32_t local);

/// True if `part` has the headers of the sample's members, as the index records them. If the index
/// has hashes, also compares the data with them.
/// @param part     the bytes of part_of_sample().
/// @param offset   offset of `part` in the shard.
/// @param lenient  scan as with TarScanOptions::lenient.
/// Cost: reads the part's headers; reads all of the part if the index has hashes.
bool holds_sample(const SegmentView& segment, std::uint32_t local, std::string_view part,
                  std::uint64_t offset, bool lenient);

}  // namespace shardwise::detail
