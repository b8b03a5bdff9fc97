#pragma once

#include <string>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"
#include "shardwise/index/side_table.h"

namespace shardwise {

/// Attaches the table in `file` to an index; see SideTable. CSV (RFC 4180, with a header), TSV (a
/// file that ends in .tsv or .tab) and SQLite are read. docs/side-tables.md has the rules of types.
/// Datasets that are open do not see the table.
/// @return  the numbers of rows and samples that do not match.
/// Errors: NotFound; CorruptIndex. InvalidArgument, with the row or line, if a key is missing or
///   repeated, or if the file is malformed. InvalidArgument if the index has a column or side table
///   of the same name. Mismatch if no row has the key of a sample. Unsupported for other files. An
///   error changes nothing.
/// Files: the side tables are written to a temporary file, which then replaces `<index>.side`.
/// Threads: safe concurrently, also with other processes: all calls take effect.
/// Cost: O(rows), with memory for about 100,000 rows, and one bit for each sample.
SHARDWISE_EXPORT SideTable::Match attach_table(const std::string& index, const std::string& file,
                                               const SideTable::Options& options);

/// Removes a side table from an index.
/// Errors: NotFound; the text lists the side tables.
/// Threads: as for attach_table().
SHARDWISE_EXPORT void detach_table(const std::string& index, const std::string& name,
                                   const CancelToken& cancel = {});

/// Counts how the rows of a side table match the samples of the index. The index may have changed
/// since the table was attached.
/// Errors: NotFound; CorruptIndex.
/// Threads: safe concurrently.
/// Cost: O(rows).
SHARDWISE_EXPORT SideTable::Match match_side_table(const Index& index, const std::string& name,
                                                   const CancelToken& cancel = {});

}  // namespace shardwise
