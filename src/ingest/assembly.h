#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/hasher.h"
#include "index/catalogue.h"
#include "index/index_files.h"
#include "index/table_writer.h"
#include "ingest/shard_scan.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/hash.h"

namespace shardwise {

/// Writes the records of shards into new index files, in the order of the append() calls.
/// Threads: one.
class Assembly {
 public:
  /// @param url_base   common prefix of the shards' URLs (see UrlBase).
  /// @param sources    the sources that named the shards, in the form that the index stores.
  /// @param is_secret  if true, only the index's owner may read the index.
  Assembly(const std::string& path, const Index::Content& content,
           const std::optional<Index::Part>& part, const std::string& url_base,
           std::vector<std::string> sources, bool is_secret);

  /// Prepares for parts that are kept from `old`. REQUIRES: the key section of `old` is intact;
  /// append() has not been called.
  void keep_from(const IndexFiles& old);
  /// Call this after keep_from(), for each shard of the old index that the new index does not keep.
  void drop(const SegmentView& segment);

  /// REQUIRES: part.row.url is set.
  void append(ShardPart& part);

  std::uint64_t num_samples() const noexcept { return summary_.num_samples; }

  /// Writes all remaining bytes of both files, so that commit() needs no more disk space.
  /// Errors: CorruptShard if keys must be unique and two shards have the same key; Cancelled.
  void finish(const CancelToken& cancel);
  /// Renames the files to their final names. This makes the new index visible.
  void commit();

  /// REQUIRES: finish() has returned.
  const Index::Summary& summary() const noexcept { return summary_; }

 private:
  void count(const Index::Summary::Field& field);
  /// Throws CorruptShard.
  void refuse_repeated(const RepeatedKey& repeated) const;

  TableWriter table_;
  CatalogueWriter catalogue_;
  std::vector<std::string> urls_;
  std::map<std::string, Index::Summary::Field> fields_;
  const std::vector<std::string> sources_;
  Index::Summary summary_;
  Hasher128 fingerprint_;
};

}  // namespace shardwise
