#pragma once

#include <string>
#include <vector>

#include "shardwise/index/index.h"

namespace shardwise::tools {

/// A column of a table that `shardwise query` offers.
struct SchemaColumn {
  std::string table;
  std::string name;
  std::string type;  ///< "any" for metadata columns, whose values may have any type
  std::string text;  ///< description, in one line
};

/// The columns that every index has.
std::vector<SchemaColumn> query_schema();
/// Returns all columns, including those made by `index --column`.
std::vector<SchemaColumn> query_schema(const Index& index);

}  // namespace shardwise::tools
