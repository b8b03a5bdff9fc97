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

/// Everything that an index holds of one shard; it does not depend on the shard's place.
struct ShardPart {
  std::string segment;
  std::vector<std::uint64_t> key_hashes;  ///< hash64 of each sample's key
  Index::Shard row;                       ///< url and first_sample are the builder's to fill in
  std::vector<Index::Summary::Field> fields;
  std::vector<Index::SkippedMember> skipped;  ///< shard is the builder's to fill in
  bool reused = false;                        ///< taken over from what was scanned before
  bool resumed = false;                       ///< and that by a build that did not finish
};

struct ShardScanOptions {
  DefectPolicies policies = {};
  std::vector<Index::Column> columns = {};
  bool hash = false;  ///< of the shard's and its members' contents
  /// Path beside which a compressed shard's headers are kept meanwhile.
  std::string temporary = {};
  CancelToken cancel = {};
  /// Called now and then with how many of the file's bytes, as it is stored, were gone through.
  std::function<void(std::uint64_t stored_bytes)> progress = nullptr;
};

/// Scans one shard and groups its members into samples by WebDataset's rule.
/// Errors: NotFound, kIo; CorruptShard, Unsupported; StaleIndex (it changed meanwhile); Cancelled;
///   those of a remote place.
ShardPart scan_shard(const ShardPlace& place, const ShardScanOptions& options);

/// hash64 of the key of each of the segment's samples.
std::vector<std::uint64_t> hash_keys(const SegmentView& segment);
/// Members and bytes of each field in a segment, in the segment's order of fields.
std::vector<Index::Summary::Field> count_fields(const SegmentView& segment);

}  // namespace shardwise
