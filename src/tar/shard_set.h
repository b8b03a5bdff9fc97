#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/tar/shard_writer.h"

namespace shardwise::detail {

/// The numbers of the files in the folder that have these names.
/// Errors: kIo.
SHARDWISE_EXPORT std::vector<std::uint64_t> numbers_there(const ShardWriter::Names& names);

/// True if the file begins as a shard of ShardWriter does: with a header of owner, group and time
/// 0 that have no names, in the digits in which it writes them. Other programs write who packed,
/// and when; Python's tarfile, told neither, writes other digits.
/// Errors: NotFound, kIo.
SHARDWISE_EXPORT bool is_of_shard_writer(const std::string& path);

}  // namespace shardwise::detail
