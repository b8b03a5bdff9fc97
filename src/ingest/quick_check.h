#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/file.h"
#include "index/offset_table.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// Reads at most `size` bytes of a shard, as it is stored, from `offset` on: fewer only at its end.
using ReadShard = std::function<std::string(std::uint64_t offset, std::size_t size)>;

/// Reads a local file, which must live as long as what is returned.
ReadShard reader_of(const File& file);

/// Compares a few bytes of a shard of the right size with the index: its first 512, and, if it is
/// not compressed, the headers right before the data of up to eight members, evenly spread and with
/// the last one. They must be headers of files of those sizes and names (by pax or GNU long names,
/// too). If the index has hashes, the bytes of those members are compared as well, of each that has
/// 8 MiB at most. A resolved hard link has the name of the member that it names.
/// @return  nothing if this could be the shard that was indexed, else the difference.
/// Cost: 9 calls of `read` for some KiB, 8 more with hashes; 4 MiB more before a wrong name.
/// Errors: those of `read`.
std::optional<std::string> quick_check(const Index::Shard& row, const SegmentView& segment,
                                       const ReadShard& read);

/// The first 512 bytes alone.
std::optional<std::string> difference_at_start(const Index::Shard& row, const ReadShard& read);

}  // namespace shardwise
