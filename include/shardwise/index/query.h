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

/// The longest query, in bytes.
inline constexpr std::size_t kMaxQueryBytes = std::size_t{1} << 20;

/// A read-only SQL query over an index, in SQLite's dialect. Tables:
///
///     samples   sample, key, shard, members, bytes (of all its members), and the metadata columns
///     members   sample, member (its place in the sample), key, field, shard, offset, size
///     shards    shard, url, size, mtime_ns, first_sample, samples, members, ... (see Index::Shard)
///     fields    field, members, bytes
///     skipped   shard, offset, name, reason
///
/// The tables are virtual and read the Index, so SQL needs no storage. Damage of the index is an
/// error, never a wrong result. A shard's url is Index::Shard::path without secrets. Keys, fields
/// and names that are not UTF-8 are blobs. SQLite's json_each and json_tree are available.
///
/// Limits: only SELECT is allowed, so a query cannot attach, load or write anything. A value has at
///   most 2 MiB, a pattern of LIKE or GLOB at most 250 bytes, and the query at most kMaxQueryBytes.
///   json_patch() is not available.
/// Cost: a condition on sample, key (compared by its bytes) or shard is a lookup. Any other
///   condition scans the table.
/// Threads: one thread at a time. Several queries may run at once.
/// Lifetime: shares ownership of the index.
class SHARDWISE_EXPORT Query {
 public:
  /// A value of a result or of a metadata column. Only the member for `type` is meaningful.
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
    /// Largest size in bytes of all scratch files. Operations use scratch files above about 16 MiB
    /// per sort, and 2 MiB per join or group. The files have no names. They are created in TMPDIR,
    /// else in /var/tmp or /tmp.
    std::uint64_t scratch_bytes = std::uint64_t{4} << 30;
  };

  /// Prepares the query.
  /// Errors: InvalidArgument, with SQLite's reason, unless `sql` is one valid SELECT within the
  ///   limits. CorruptIndex.
  Query(std::shared_ptr<const Index> index, std::string_view sql);
  Query(std::shared_ptr<const Index> index, std::string_view sql, const Limits& limits);
  ~Query();
  Query(Query&&) noexcept;
  Query& operator=(Query&&) noexcept;

  /// Names of the result's columns.
  [[nodiscard]] const std::vector<std::string>& columns() const noexcept;
  /// Moves to the next row. Returns false at the end.
  /// Errors: InvalidArgument if a function fails, a result is too large, or scratch files exceed
  ///   the Limits. CorruptIndex. kNoSpace or kIo from scratch files.
  bool next();
  /// A value of the current row. Text and blobs are valid until the next call of next(). REQUIRES:
  /// next() returned true, column < columns().size().
  [[nodiscard]] Value value(std::size_t column) const noexcept;

  /// Lets next() throw Cancelled soon after `cancel` is cancelled.
  void set_cancel(const CancelToken& cancel) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the numbers, ascending, of the samples that satisfy an SQL condition over the table
/// `samples`, e.g. "cls = 7 and width >= 256". Errors: those of Query.
SHARDWISE_EXPORT std::vector<std::uint64_t> select_samples(std::shared_ptr<const Index> index,
                                                           std::string_view condition);
/// Considers only the samples in [first, last), so that several threads can share the work.
/// Errors: those of Query. Cancelled soon after `cancel` is cancelled.
SHARDWISE_EXPORT std::vector<std::uint64_t> select_samples(std::shared_ptr<const Index> index,
                                                           std::string_view condition,
                                                           std::uint64_t first, std::uint64_t last,
                                                           const CancelToken& cancel = {});

}  // namespace shardwise
