#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"

namespace shardwise {

/// A table whose columns are metadata columns of an index, in addition to those of
/// Index::Column. It is stored in the file `<index>.side`. Index::side_tables() lists the tables of
/// an index.
///
/// A row belongs to the samples that have its key. Building or updating the index does not change
/// its side tables. The values of a sample without a row are null. Side tables change neither the
/// index's fingerprint nor an order.
struct SideTable {
  /// Options of attach_table().
  struct Options {
    std::string key = {};   ///< name of the column that contains the keys of samples
    std::string name = {};  ///< of the side table; empty means the file's name without its ending
    /// The columns to attach, as `COLUMN` or `NAME=COLUMN`. Empty means all except the key and
    /// columns without a name. A name is one for SQL: letters, digits and _, in lower case.
    std::vector<std::string> columns = {};
    std::string sql_table = {};  ///< table of a SQLite file; empty means its only table
    bool replace = false;        ///< replace a side table of the same name
    CancelToken cancel = {};
  };

  /// How the rows of a side table match the samples of an index.
  struct Match {
    std::string name = {};  ///< of the side table
    std::uint64_t num_rows = 0;
    std::uint64_t num_rows_without_sample = 0;
    std::uint64_t num_samples = 0;
    std::uint64_t num_samples_without_row = 0;
    std::string first_row_without_sample = {};  ///< key; empty if all rows match
    std::string first_sample_without_row = {};  ///< key; empty if all samples match

    friend bool operator==(const Match&, const Match&) = default;
  };

  std::string name = {};
  std::string source = {};  ///< name of the file that was attached, or a description
  std::string key = {};     ///< name of the column that contained the keys
  std::vector<std::string> columns = {};
  std::uint64_t num_rows = 0;
  std::string attached_at = {};  ///< time in UTC, ISO 8601
  std::uint64_t checksum = 0;    ///< of the table

  friend bool operator==(const SideTable&, const SideTable&) = default;
};

}  // namespace shardwise
