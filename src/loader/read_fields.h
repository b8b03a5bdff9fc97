#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardwise/loader/columns.h"

namespace shardwise::detail {

/// Returns the names of the fields that the columns read as a whole; nullopt if they may read any
/// field.
[[nodiscard]] std::optional<std::vector<std::string>> whole_fields(std::span<const Column> columns);

/// Returns the names of the fields of which no column needs more than parts, see
/// ColumnMaker::reads_whole_fields(). Compressed fields are read as a whole.
[[nodiscard]] std::vector<std::string> fields_in_parts(std::span<const Column> columns);

}  // namespace shardwise::detail
