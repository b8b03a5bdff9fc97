#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// What one rank goes by: names and values. All ranks of a run must have the same.
using Record = std::vector<std::pair<std::string, std::string>>;

/// Names, lengths and values, for another rank.
SHARDWISE_EXPORT std::string to_bytes(const Record& record);
/// Nothing if these are not the bytes of a record.
SHARDWISE_EXPORT std::optional<Record> record_from(std::string_view bytes);

/// "0 to 2, 5 and 7"; of many, the first ones.
SHARDWISE_EXPORT std::string list_of(const std::vector<int>& ranks);

/// What the ranks do not agree on, as "the batch size is '64' on rank 3 and '32' on ranks 0 to 2";
/// nothing if all records are the same. Of many such names the first three are told.
/// @param of_ranks  one record a rank, by rank.
SHARDWISE_EXPORT std::optional<std::string> find_disagreement(const std::vector<Record>& of_ranks);

}  // namespace shardwise::detail

namespace shardwise {
using detail::find_disagreement;
using detail::list_of;
using detail::Record;
using detail::record_from;
}  // namespace shardwise
