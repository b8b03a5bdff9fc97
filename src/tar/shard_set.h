#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/tar/shard_writer.h"

namespace shardwise::detail {

/// Returns the numbers in the names of existing files that have the form `names`.
/// Errors: kIo.
SHARDWISE_EXPORT std::vector<std::uint64_t> numbers_there(const ShardWriter::Names& names);

/// True if the file begins like a shard of ShardWriter: its first header has owner, group and time
/// 0, no owner names, and ShardWriter's number format. Other programs record owner and time.
/// Python's tarfile formats the numbers differently, even with zeros.
/// Errors: NotFound, kIo.
SHARDWISE_EXPORT bool is_of_shard_writer(const std::string& path);

}  // namespace shardwise::detail
