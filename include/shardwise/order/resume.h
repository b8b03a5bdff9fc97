#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/order.h"
#include "shardwise/order/skip_list.h"

namespace shardwise {

/// Where a run stands, in one line of text of about 100 bytes: which data set, which order, and
/// the point up to which it was read. It says nothing of ranks, so any number of them may go on
/// from it, with any batch size and any number of threads, and no sample is lost or repeated.
///
/// Positions count as read when their samples were used, not when a loader fetched them. All ranks
/// of a run in step make the same token; save that of one. A token from the end of an epoch stands
/// at the beginning of the next.
///
/// docs/formats/resume-token.md specifies the text (version 2, and 3 of batches by length), and
/// what is compared.
struct SHARDWISE_EXPORT ResumeToken {
  static constexpr unsigned kVersion = 2;
  /// Of tokens that have a part `batches`.
  static constexpr unsigned kBatchesVersion = 3;

  /// All that makes two runs walk through the same order, and that a resumed run must therefore
  /// share with the run that it continues. The numbers of ranks and threads and the batch size are
  /// not part of it. An option that has no effect is at its default, see
  /// docs/formats/resume-token.md.
  struct SHARDWISE_EXPORT OrderSpec {
    Order order;  ///< its skip list is empty: a run's own stands beside the spec
    std::uint64_t num_samples = 0;
    std::uint64_t layout = 0;  ///< hash of shard lengths, or weights, that the order uses; 0: none
    std::uint64_t world_size = 0;  ///< wids: its order exists for one number of ranks only; else 0
    /// Versions of the algorithms that the order uses, in the order of the token's specification;
    /// 0: not used.
    std::array<unsigned, 7> versions{};

    friend bool operator==(const OrderSpec&, const OrderSpec&) = default;
  };

  /// A part of the run before it went on with other data or another order.
  struct Stage {
    std::uint64_t end_epoch = 0;  ///< the first epoch that is not of it
    Hash128 fingerprint;
    OrderSpec spec;

    friend bool operator==(const Stage&, const Stage&) = default;
  };

  /// Where a run stands within a window whose samples it delivers in batches by length.
  struct Batches {
    std::string rule;             ///< how the batches are made; another one makes others
    std::uint64_t delivered = 0;  ///< of the window that begins at `position`

    friend bool operator==(const Batches&, const Batches&) = default;
  };

  Hash128 fingerprint;  ///< of the data set
  OrderSpec spec;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< all before it were read; numbered as if nothing were left out
  SkipList skip;
  /// The sum of the epoch's proof over all ranks when the token was made.
  std::optional<EpochAudit::Sum> audit;
  std::vector<Stage> history;  ///< the earliest first
  std::optional<Batches> batches{};

  [[nodiscard]] std::string to_text() const;
  /// White space around the text is ignored.
  /// Errors: VersionMismatch if another version of the library wrote it; InvalidArgument if it is
  /// no token or damaged.
  [[nodiscard]] static ResumeToken from_text(std::string_view text);

  /// Returns if this token continues `here` on the data set `fingerprint_here`.
  /// Errors: VersionMismatch if an algorithm has another version here; Mismatch, naming everything
  /// that differs.
  void require(const OrderSpec& here, const Hash128& fingerprint_here) const;

  friend bool operator==(const ResumeToken&, const ResumeToken&) = default;
};

/// Lists each part that differs, as "chunk_size 1000 there, 500 here", where "there" is the first
/// argument; empty if none does. Versions are not compared.
SHARDWISE_EXPORT std::string difference(const ResumeToken::OrderSpec& there,
                                        const ResumeToken::OrderSpec& here);

}  // namespace shardwise
