#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// Read-only SQL over an index, as SQLite speaks it. Tables:
///
///   samples   sample, key, shard, members, bytes (of all its members), and the metadata columns
///   members   sample, member (its place in the sample), key, field, shard, offset, size
///   shards    shard, url, size, mtime_ns, first_sample, samples, members, ... (see the catalogue)
///   fields    field, members, bytes
///   skipped   shard, offset, name, reason
///
/// `samples` and `members` are virtual: they are read from the offset table as it is, and cost no
/// storage. A shard's url is its path as ShardInfo has it. Conditions on sample, key and shard are looked up, others scan: about 0.2 us a row.
/// Keys, fields and names that are not UTF-8 are blobs.
///
/// Only SELECT is allowed. The catalogue is taken for hostile: no code in its schema runs, nothing
/// can be attached, loaded or written.
///
/// One thread; each has its own. It shares ownership of the index.
class SHARDWISE_EXPORT Query {
 public:
  /// Errors: InvalidArgument, with SQLite's reason, if `sql` is not one SELECT that can be run
  /// here.
  Query(std::shared_ptr<const Index> index, std::string_view sql);
  ~Query();
  Query(Query&&) noexcept;
  Query& operator=(Query&&) noexcept;

  /// Names of the result's columns.
  const std::vector<std::string>& columns() const noexcept;
  /// Moves to the next row; false at the end.
  /// Errors: InvalidArgument (a function failed, a result too large); CorruptIndex.
  bool next();
  /// A value of this row; text and blobs are valid until next(). REQUIRES: next() was true,
  /// column < columns().size().
  MetadataValue value(std::size_t column) const noexcept;

  /// Makes next() stop with Cancelled soon after `cancel` becomes true.
  void set_cancel(const std::atomic<bool>* cancel) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The numbers of the samples for which an SQL condition over `samples` holds, ascending:
/// "cls = 7 and width >= 256". Errors: as Query.
SHARDWISE_EXPORT std::vector<std::uint64_t> select_samples(std::shared_ptr<const Index> index,
                                                           std::string_view condition);

}  // namespace shardwise
