#pragma once

#include <string>

#include "shardwise/base/export.h"
#include "shardwise/index/index.h"
#include "shardwise/index/side_table.h"

namespace shardwise {

/// Attaches the table in `file` to an index: its columns become metadata columns of the index. See
/// SideTable.
///
/// CSV (RFC 4180, with a header), TSV (a file that ends in .tsv or .tab) and SQLite are read. In a
/// CSV column, empty cells are null. The others are integers if all of them are, or reals if all of
/// them are numbers. Otherwise they are texts. A number with a needless leading zero, e.g. 007, is a
/// text. The values of a SQLite file keep their types. Keys are compared as text.
///
/// Datasets that are open keep the side tables that they were opened with.
///
/// @return  the numbers of rows and samples that do not match.
/// Errors: NotFound; CorruptIndex. InvalidArgument, with the row or line, if a key is missing or
///   repeated, or if the file is malformed. InvalidArgument if the index has a column or side table
///   of the same name. Mismatch if no row has the key of a sample. Unsupported for other files. An
///   error changes nothing.
/// Files: the side tables are written to a temporary file, which then replaces `<index>.side`.
/// Cost: O(rows), with memory for about 100,000 rows, and one bit for each sample.
SHARDWISE_EXPORT SideTable::Match attach_table(const std::string& index, const std::string& file,
                                               const SideTable::Options& options);

/// Removes a side table from an index. Errors: NotFound; the text lists the side tables.
SHARDWISE_EXPORT void detach_table(const std::string& index, const std::string& name);

/// Counts how the rows of a side table match the samples of the index. The index may have changed
/// since the table was attached.
/// Errors: NotFound; CorruptIndex.
/// Cost: O(rows).
SHARDWISE_EXPORT SideTable::Match match_side_table(const Index& index, const std::string& name,
                                                   const CancelToken& cancel = {});

}  // namespace shardwise
