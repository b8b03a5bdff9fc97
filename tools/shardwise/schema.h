#pragma once

#include <string>
#include <vector>

#include "shardwise/index/index.h"

namespace shardwise::tools {

/// A column of the tables that `shardwise query` can ask.
struct SchemaColumn {
  std::string table;
  std::string name;
  std::string type;  ///< "any": of metadata, which may hold anything
  std::string text;  ///< what it is, in one line
};

/// All of them, those that `index --column` made included.
std::vector<SchemaColumn> query_schema(const Index& index);

}  // namespace shardwise::tools
