#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardwise {

// Index files of other programs, which lie beside shards.
//
//   DALI      x.idx for x.tar, text: "v1.2 <samples>", then a line a sample of
//             "<field> <offset> <size> <name>" for each of its members; v1.0 and v1.1 have no name,
//             or neither. Offsets are of the data.
//   Energon   x.tar.idx for x.tar, little-endian u64: the offset of each sample's first header, and
//             the offset behind the last sample.

enum class ForeignIndex : std::uint8_t { kNone, kDali, kEnergon };
/// "DALI", "Energon". REQUIRES: not kNone.
std::string_view name_of(ForeignIndex kind);

/// True if a file that begins so is an index of DALI's, in any version.
bool is_dali_index(std::string_view first_bytes);

/// The kind of the file at `path`, by its name and its first bytes; kNone if it cannot be read.
ForeignIndex foreign_index_at(const std::string& path);

/// The shard beside which such a file lies.
std::string shard_of_foreign_index(const std::string& path, ForeignIndex kind);

}  // namespace shardwise
