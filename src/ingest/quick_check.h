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

/// Compares a few bytes of a shard with the index:
/// * The first 512 bytes must be equal. For a compressed shard, nothing else is compared.
/// * The headers of up to eight evenly spread members, including the last one, must have the
///   members' names and sizes. pax and GNU long names are supported. A resolved hard link is
///   checked by the name of its target.
/// * If the index has hashes, the data of these members is compared, up to 8 MiB each.
/// REQUIRES: the shard has the right size.
/// @return  the difference; nullopt if the shard may be the indexed one.
std::optional<std::string> quick_check(const Index::Shard& row, const SegmentView& segment,
                                       const ReadShard& read);

/// Compares only the first 512 bytes. Returns the difference; nullopt if they are equal.
std::optional<std::string> difference_at_start(const Index::Shard& row, const ReadShard& read);

}  // namespace shardwise
