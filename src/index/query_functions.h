#pragma once

#include "shardwise/base/cancel.h"

struct sqlite3;

namespace shardwise::sqlite {

/// Puts functions in the place of SQLite's own instr(), replace(), trim(), ltrim() and rtrim() that
/// give the same results in linear time. SQLite's take as long as the product of their arguments'
/// lengths, and cannot be cancelled while they run. LIKE and GLOB ask `cancel`, which must outlive
/// the connection, before each comparison. Called within a ForkSection.
void add_query_functions(sqlite3* db, const CancelToken& cancel);

}  // namespace shardwise::sqlite
