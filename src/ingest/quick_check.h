#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/file.h"
#include "index/offset_table.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// Reads `size` bytes of a shard, in stored form, from `offset` on. Returns fewer only at its end.
using ReadShard = std::function<std::string(std::uint64_t offset, std::size_t size)>;

/// Returns a reader of a local file. `file` must outlive it.
ReadShard reader_of(const File& file);

/// Compares a few bytes of a shard with the index. REQUIRES: the shard has the right size.
/// It compares the first 512 bytes. If the shard is not compressed, it checks up to eight members,
/// evenly spread, with the last one. The header right before each member's data must have its name
/// and size; pax and GNU long names are understood. If the index has hashes, the data of these
/// members is compared, up to 8 MiB each. A resolved hard link is checked by its target's name.
/// @return  the difference; nothing if this can be the indexed shard.
std::optional<std::string> quick_check(const Index::Shard& row, const SegmentView& segment,
                                       const ReadShard& read);

/// Compares the first 512 bytes alone. Returns nothing if they are equal.
std::optional<std::string> difference_at_start(const Index::Shard& row, const ReadShard& read);

}  // namespace shardwise
