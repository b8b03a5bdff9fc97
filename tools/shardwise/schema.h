#pragma once

#include <string>
#include <vector>

#include "shardwise/index/index.h"

namespace shardwise::tools {

/// A column of the tables that `shardwise query` offers.
struct SchemaColumn {
  std::string table;
  std::string name;
  std::string type;  ///< "any" for metadata, which may have any type
  std::string text;  ///< description, in one line
};

/// The columns that every index has.
std::vector<SchemaColumn> query_schema();
/// All columns, including those that `index --column` made.
std::vector<SchemaColumn> query_schema(const Index& index);

}  // namespace shardwise::tools
