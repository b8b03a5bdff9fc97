#pragma once

#include <cstdint>
#include <functional>
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

/// All that an index stores of one shard, except its place.
struct ShardPart {
  std::string segment;
  std::vector<std::uint64_t> key_hashes;  ///< hash64 of each sample's key
  Index::Shard row;                       ///< the builder fills in url and first_sample
  std::vector<Index::Summary::Field> fields;
  std::vector<Index::SkippedMember> skipped;  ///< the builder fills in shard
  bool reused = false;                        ///< taken over from an earlier scan
  bool resumed = false;                       ///< taken over from an unfinished build
};

struct ShardScanOptions {
  DefectPolicies policies = {};
  std::vector<Index::Column> columns = {};
  bool hash = false;  ///< of the shard's and its members' contents
  /// A compressed shard's headers are kept in a temporary file in the folder of this path.
  std::string temporary = {};
  CancelToken cancel = {};
  /// Called now and then with the number of stored bytes processed so far.
  std::function<void(std::uint64_t stored_bytes)> progress = nullptr;
};

/// Scans one shard and groups its members into samples by WebDataset's rule.
/// Errors: NotFound, kIo; CorruptShard, Unsupported; StaleIndex if the shard changed meanwhile;
///   Cancelled; those of a remote place.
ShardPart scan_shard(const ShardPlace& place, const ShardScanOptions& options);

/// hash64 of the key of each of the segment's samples.
std::vector<std::uint64_t> hash_keys(const SegmentView& segment);
/// Members and bytes of each field in a segment, in its order of fields.
std::vector<Index::Summary::Field> count_fields(const SegmentView& segment);

}  // namespace shardwise
