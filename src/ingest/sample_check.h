#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "index/offset_table.h"

namespace shardwise::detail {

/// The part of a plain shard, in bytes, that has all headers and all bytes of a sample's members:
/// from the end of the member before. Nothing if the members do not follow each other in it, as
/// those of resolved hard links. REQUIRES: local < segment.num_samples().
std::optional<std::pair<std::uint64_t, std::uint64_t>> part_of_sample(const SegmentView& segment,
                                                                      std::uint32_t local);

/// True if the members of a sample lie in its part of the shard as the index has them: so their
/// headers say, and the bytes have the hashes that the index has, if it has any.
/// @param part     the bytes of part_of_sample().
/// @param offset   where it begins in the shard.
/// @param lenient  scan as TarScanOptions::lenient.
/// Cost: reads the part's headers, some us; where there are hashes, all of it.
bool holds_sample(const SegmentView& segment, std::uint32_t local, std::string_view part,
                  std::uint64_t offset, bool lenient);

}  // namespace shardwise::detail
