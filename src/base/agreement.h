#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Names and values that describe one rank. They must be equal on all ranks of a run.
using Record = std::vector<std::pair<std::string, std::string>>;

/// Serializes a record, to send it to another rank.
SHARDWISE_EXPORT std::string to_bytes(const Record& record);
/// Parses the result of to_bytes(). Returns nothing if `bytes` is malformed.
SHARDWISE_EXPORT std::optional<Record> record_from(std::string_view bytes);

/// Formats ranks, e.g. "0 to 2, 5 and 7". A long list is cut.
SHARDWISE_EXPORT std::string list_of(const std::vector<int>& ranks);

/// Describes how the ranks disagree, for at most three names, e.g. "the batch size is '64' on rank
/// 3 and '32' on ranks 0 to 2". Returns nothing if all records are equal.
/// @param of_ranks  one record per rank, in rank order.
SHARDWISE_EXPORT std::optional<std::string> find_disagreement(const std::vector<Record>& of_ranks);

}  // namespace shardwise::detail

namespace shardwise {
using detail::find_disagreement;
using detail::list_of;
using detail::Record;
using detail::record_from;
}  // namespace shardwise
