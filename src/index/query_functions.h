#pragma once

#include "shardwise/base/cancel.h"

struct sqlite3;

namespace shardwise::sqlite {

/// Replaces SQLite's instr(), replace(), trim(), ltrim() and rtrim() by functions that give the
/// same results in linear time. SQLite's functions take time proportional to the product of their
/// arguments' lengths, and cannot be cancelled. Replaces LIKE and GLOB by functions that poll
/// `cancel` before each comparison. Call it within a ForkSection.
/// @param cancel  must outlive the connection.
void add_query_functions(sqlite3* db, const CancelToken& cancel);

}  // namespace shardwise::sqlite
