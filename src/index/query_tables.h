#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "index/offset_table.h"
#include "shardwise/index/index.h"

struct sqlite3;

namespace shardwise {

/// The tables of queries: samples, members, shards, fields and skipped. All are virtual tables, and
/// read the index with the same checks as other readers.
/// Threads: one.
class QueryTables {
 public:
  explicit QueryTables(const Index& index);

  /// Registers the tables with a connection. REQUIRES: the tables outlive the connection.
  void add_to(sqlite3* db);
  /// Rethrows the exception that a table's function threw, if any. The exception was stored,
  /// because it cannot propagate through SQLite's C code.
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  // The tables call the functions below.
  const Index& index() const noexcept { return index_; }
  /// Returns a shard's segment. Segments, and the lists of fields and of skipped members, are
  /// cached after they were first read.
  const SegmentView& segment(std::uint64_t shard);
  std::uint64_t num_rows(const Index::Shard&) const { return index_.num_shards(); }
  std::uint64_t num_rows(const Index::Summary::Field&) { return fields().size(); }
  std::uint64_t num_rows(const Index::SkippedMember&) { return skipped().size(); }
  /// Returns a row of the catalogue. The second argument only selects the table by its type. The
  /// url of a shard is its path, without secrets.
  Index::Shard row(std::uint64_t place, const Index::Shard&) const;
  const Index::Summary::Field& row(std::uint64_t place, const Index::Summary::Field&) {
    return fields()[place];
  }
  const Index::SkippedMember& row(std::uint64_t place, const Index::SkippedMember&) {
    return skipped()[place];
  }
  /// Returns the names of all fields in SQLite's order, texts before blobs. Empty if the index does
  /// not list the fields of all members.
  const std::vector<std::string>& field_names();
  void keep_error(std::exception_ptr error) noexcept { error_ = std::move(error); }

 private:
  const std::vector<Index::Summary::Field>& fields();
  const std::vector<Index::SkippedMember>& skipped();

  const Index& index_;
  std::exception_ptr error_;
  std::vector<std::optional<SegmentView>> segments_;
  std::optional<std::vector<Index::Summary::Field>> fields_;
  std::optional<std::vector<Index::SkippedMember>> skipped_;
  std::optional<std::vector<std::string>> field_names_;
};

}  // namespace shardwise
