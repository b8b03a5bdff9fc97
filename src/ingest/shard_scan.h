#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "index/catalogue.h"
#include "index/offset_table.h"
#include "ingest/shard_bytes.h"
#include "shardwise/base/cancel.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

/// Everything that an index stores about one shard, except the shard's location.
struct ShardPart {
  std::string segment;
  std::vector<std::uint64_t> key_hashes;  ///< hash64 of the key of each sample
  Index::Shard row;                       ///< the builder sets url and first_sample
  std::vector<Index::Summary::Field> fields;
  std::vector<Index::SkippedMember> skipped;  ///< the builder sets `shard` in each
  bool reused = false;                        ///< copied from an earlier index
  bool resumed = false;                       ///< copied from an unfinished build
  /// The shard's number in the index that is being updated, if its records are copied from there
  /// without being read: `segment`, `key_hashes` and `fields` are then empty.
  std::optional<std::uint64_t> kept = {};
};

struct ShardScanOptions {
  DefectPolicies policies = {};
  std::vector<Index::Column> columns = {};
  bool hash = false;  ///< hash the contents of the shard and of its members
  /// The headers of a compressed shard are kept in a temporary file, which is created in the folder
  /// of this path.
  std::string temporary = {};
  CancelToken cancel = {};
  /// Called from time to time with the number of stored bytes processed so far.
  std::function<void(std::uint64_t stored_bytes)> progress = nullptr;
};

/// Scans one shard, and groups its members into samples by WebDataset's rule.
/// Errors: NotFound, kIo; CorruptShard, Unsupported; StaleIndex if the shard changed during the
///   scan; Cancelled; errors of RemoteShards.
ShardPart scan_shard(const ShardPlace& place, const ShardScanOptions& options);

/// Returns the hash64 of the key of each sample in the segment.
std::vector<std::uint64_t> hash_keys(const SegmentView& segment);
/// Returns the number of members and bytes of each field in a segment, in the segment's order of
/// fields.
std::vector<Index::Summary::Field> count_fields(const SegmentView& segment);

}  // namespace shardwise
