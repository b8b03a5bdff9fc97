#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/options.h"
#include "shardwise/order/skip_list.h"

namespace shardwise {

/// What makes two runs walk through the same order: all that a resumed run must share with the one
/// it goes on with. Rank, number of ranks, batch size and threads are not among it.
struct SHARDWISE_EXPORT OrderSpec {
  std::uint64_t order_version = 1;  ///< of the algorithms: EpochOrder::kVersion
  SamplerKind sampler = SamplerKind::kChunked;
  std::uint64_t num_samples = 0;
  std::uint64_t seed = 0;
  std::uint64_t chunk_size = 0;  ///< 0 where the sampler has none, as with the next two
  std::uint64_t window = 0;
  std::uint64_t streams = 0;
  Tail tail = Tail::kExact;
  bool shuffle = true;
  bool shufflefirst = false;
  bool balance_bytes = false;
  ResampleUnit resample = ResampleUnit::kSample;
  std::uint64_t epoch_size = 0;  ///< resampled and mixture
  std::uint64_t world_size = 0;  ///< wids: its order exists for one number of ranks only; else 0
  std::uint64_t layout = 0;      ///< hash of the shard lengths, or of a mixture; 0: none

  friend bool operator==(const OrderSpec&, const OrderSpec&) = default;
};

/// Each field that differs, as "chunk_size 1000 there, 500 here"; empty if none does.
SHARDWISE_EXPORT std::string difference(const OrderSpec& there, const OrderSpec& here);

/// Where a run stands, in one line of text of about 100 bytes: which data set, which order, and how
/// many global slots were consumed. It says nothing of ranks, so any number of them may go on from
/// it, with any batch size and any number of threads, and no sample is lost or repeated.
///
/// Slots count as consumed when their samples were used, not when a loader fetched them. All ranks
/// of a run in step make the same token; save that of one.
///
/// Format, version 1: "sw1." and then, in base64url (A-Z a-z 0-9 - _) without padding:
///
///     1 byte    format version: 1
///     1 byte    sampler kind
///     1 byte    bits 0-1 tail, 2 shuffle, 3 shufflefirst, 4 balance_bytes, 5 resample by shard, 6
///     audit 16 bytes  fingerprint: low, then high varints   order_version num_samples seed
///     chunk_size window streams epoch_size world_size layout
///               epoch slots
///     varints   number of samples left out, then each as the distance from the one before
///     varints   number of slot ranges left out, then of each: epoch, first slot, length
///     audit     if bit 6: varint count, 16 bytes hashes, 16 bytes numbers
///     8 bytes   hash64 of all that comes before
///
/// A varint has 7 bits a byte, the lowest first, and the top bit set in all bytes but the last. All
/// other integers are little-endian.
struct SHARDWISE_EXPORT ResumeToken {
  static constexpr unsigned kVersion = 1;

  Hash128 fingerprint;  ///< of the data set, given by the caller
  OrderSpec order;
  std::uint64_t epoch = 0;
  std::uint64_t slots = 0;  ///< consumed, numbered as if nothing were left out
  SkipList skip;
  /// What the epoch's proof had added up over all ranks when the token was made.
  std::optional<AuditSum> audit;

  std::string to_text() const;
  /// Errors: VersionMismatch if another version of the library wrote it; InvalidArgument if it is
  /// no token or damaged.
  static ResumeToken from_text(std::string_view text);

  /// Returns if this token continues `here` on the data set `fingerprint_here`.
  /// Errors: Mismatch, naming everything that differs.
  void require(const OrderSpec& here, Hash128 fingerprint_here) const;

  friend bool operator==(const ResumeToken&, const ResumeToken&) = default;
};

}  // namespace shardwise
