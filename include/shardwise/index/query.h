#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// The longest query there may be.
inline constexpr std::size_t kMaxQueryBytes = std::size_t{1} << 20;

/// Read-only SQL over an index, as SQLite speaks it. Tables:
///
///   samples   sample, key, shard, members, bytes (of all its members), and the metadata columns
///   members   sample, member (its place in the sample), key, field, shard, offset, size
///   shards    shard, url, size, mtime_ns, first_sample, samples, members, ... (as Index::Shard)
///   fields    field, members, bytes
///   skipped   shard, offset, name, reason
///
/// All are virtual, and read through Index: damage is an error, never a wrong answer, and SQL costs
/// no storage. A shard's url is its path as Index::Shard has it, without a URL's secrets.
/// Conditions on sample, key (compared by its bytes) and shard are looked up, others scan: about
/// 0.2 us a row, of `shards` some us. Keys, fields and names that are not UTF-8 are blobs. SQLite's
/// json_each and json_tree are there too.
///
/// Only SELECT is allowed: nothing can be attached, loaded or written. A value has 2 MiB at most, a
/// pattern of LIKE or GLOB 250 bytes, the query kMaxQueryBytes. There is no json_patch().
///
/// One thread; each has its own. It shares ownership of the index.
class SHARDWISE_EXPORT Query {
 public:
  /// A value of a result or of a metadata column. Only the part that `type` names means anything.
  struct Value {
    /// SQLite's types.
    enum class Type : std::uint8_t { kNull, kInteger, kReal, kText, kBlob };

    Type type = Type::kNull;
    std::int64_t integer = 0;
    double real = 0;
    std::string_view bytes = {};  ///< of a text or a blob

    friend bool operator==(const Value&, const Value&) = default;
  };

  /// Limits on what a query may use.
  struct Limits {
    /// Bytes of scratch files for sorting, grouping and joining what does not fit into memory:
    /// about 16 MiB a sort, 2 MiB a join or group. The files have no names, and lie in TMPDIR, else
    /// in /var/tmp or /tmp.
    std::uint64_t scratch_bytes = std::uint64_t{4} << 30;
  };

  /// Errors: InvalidArgument, with SQLite's reason, if `sql` is not one SELECT that can be run
  /// here; CorruptIndex.
  Query(std::shared_ptr<const Index> index, std::string_view sql);
  Query(std::shared_ptr<const Index> index, std::string_view sql, const Limits& limits);
  ~Query();
  Query(Query&&) noexcept;
  Query& operator=(Query&&) noexcept;

  /// Names of the result's columns.
  [[nodiscard]] const std::vector<std::string>& columns() const noexcept;
  /// Moves to the next row; false at the end.
  /// Errors: InvalidArgument (a function failed, a result too large, more scratch files than
  ///   Limits allow); CorruptIndex; kNoSpace, kIo (the scratch files).
  bool next();
  /// A value of this row; text and blobs are valid until next(). REQUIRES: next() was true,
  /// column < columns().size().
  [[nodiscard]] Value value(std::size_t column) const noexcept;

  /// Makes next() stop with Cancelled soon after `cancel` says so.
  void set_cancel(const CancelToken& cancel) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The numbers of the samples for which an SQL condition over `samples` holds, ascending:
/// "cls = 7 and width >= 256". Errors: as Query.
SHARDWISE_EXPORT std::vector<std::uint64_t> select_samples(std::shared_ptr<const Index> index,
                                                           std::string_view condition);
/// The same of those in [first, last): no others are looked at, so threads can share the work.
/// Errors: Cancelled soon after `cancel` says so, too.
SHARDWISE_EXPORT std::vector<std::uint64_t> select_samples(std::shared_ptr<const Index> index,
                                                           std::string_view condition,
                                                           std::uint64_t first, std::uint64_t last,
                                                           const CancelToken& cancel = {});

}  // namespace shardwise
