#pragma once

#include <exception>

#include "shardwise/index/index.h"

struct sqlite3;

namespace shardwise {

/// Makes the virtual tables `samples` and `members` of `index` known to a connection, which must
/// not outlive it. What they throw is kept in `error` while SQLite's own code returns, for the
/// caller to throw on.
void register_sample_tables(sqlite3* db, const Index& index, std::exception_ptr* error);

}  // namespace shardwise
