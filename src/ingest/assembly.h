#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/hasher.h"
#include "index/catalogue.h"
#include "index/table_writer.h"
#include "ingest/shard_scan.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/hash.h"

namespace shardwise {

/// Puts shards' parts one behind the other into new index files.
class Assembly {
 public:
  /// @param url_base   what the shards' URLs have in common (UrlBase).
  /// @param sources    the words that the shards were named by, as the index keeps them.
  /// @param is_secret  nobody but its owner is to read the index.
  Assembly(const std::string& path, const Index::Content& content,
           const std::optional<Index::Part>& part, const std::string& url_base,
           std::vector<std::string> sources, bool is_secret);

  /// Appends a part, whose row has its url.
  void append(ShardPart& part);

  std::uint64_t num_samples() const noexcept { return summary_.num_samples; }

  /// Writes all that is left of both files, so that commit() needs no more room.
  /// Errors: CorruptShard if a key comes in two shards and must not; Cancelled.
  void finish(const CancelToken& cancel);
  /// Gives the files their names: the moment at which the new index exists.
  void commit();

  /// After finish:
  const Index::Summary& summary() const noexcept { return summary_; }

 private:
  TableWriter table_;
  CatalogueWriter catalogue_;
  std::vector<std::string> urls_;
  std::map<std::string, Index::Summary::Field> fields_;
  const std::vector<std::string> sources_;
  Index::Summary summary_;
  Hasher128 fingerprint_;
};

}  // namespace shardwise
