#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/file.h"
#include "index/offset_table.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// Reads `size` bytes of a shard, as stored, from `offset` on. Returns fewer bytes only at the
/// shard's end.
using ReadShard = std::function<std::string(std::uint64_t offset, std::size_t size)>;

/// Returns a ReadShard for a local file. `file` must outlive it.
ReadShard reader_of(const File& file);

/// Compares a few bytes of a shard with the index. REQUIRES: the shard has the right size. First
/// compares the first 512 bytes. If the shard is not compressed, then checks up to eight evenly
/// spread members, including the last one. The header right before a member's data must have the
/// member's name and size; pax and GNU long names are supported. If the index has hashes, also
/// compares the data of these members, up to 8 MiB each. A resolved hard link is checked by the
/// name of its target.
/// @return  the difference; nullopt if the shard may be the indexed one.
std::optional<std::string> quick_check(const Index::Shard& row, const SegmentView& segment,
                                       const ReadShard& read);

/// Compares only the first 512 bytes. Returns the difference; nullopt if they are equal.
std::optional<std::string> difference_at_start(const Index::Shard& row, const ReadShard& read);

}  // namespace shardwise
