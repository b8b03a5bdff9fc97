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

/// The point that a run has reached: the data set, the order, and the position up to which samples
/// were read. Its text is one line of about 100 bytes. The numbers of ranks and threads and the
/// batch size are not part of it: a run may continue with other values, and no sample is lost or
/// repeated.
///
/// A position counts as read when its sample was used, not when a loader fetched it. All ranks that
/// have done the same number of steps make the same token, so save the token of one rank. A token
/// that is made at the end of an epoch is for the beginning of the next epoch.
///
/// docs/formats/resume-token.md specifies the text (version 2; version 3 for batches by length;
/// version 4 for mixtures whose weights change), and what a resumed run compares.
struct SHARDWISE_EXPORT ResumeToken {
  static constexpr unsigned kVersion = 2;
  /// Version of tokens with `batches`.
  static constexpr unsigned kBatchesVersion = 3;
  /// Version of tokens with an order that has a Mixture::schedule.
  static constexpr unsigned kScheduleVersion = 4;

  /// Everything that determines the order of a run. A resumed run must have the same OrderSpec. The
  /// numbers of ranks and threads and the batch size are not part of it. Options without effect
  /// have their default value, see docs/formats/resume-token.md.
  struct SHARDWISE_EXPORT OrderSpec {
    Order order;  ///< without its skip list, which ResumeToken::skip has
    std::uint64_t num_samples = 0;
    /// Hash of the shard lengths or weights that the order uses. 0 means that it uses no shard
    /// lengths and no weights.
    std::uint64_t layout = 0;
    /// For wids the number of ranks, because the order depends on it. Otherwise 0.
    std::uint64_t world_size = 0;
    /// Versions of the algorithms that the order uses, in the sequence of the token's
    /// specification. 0 means not used.
    std::array<unsigned, 7> versions{};

    friend bool operator==(const OrderSpec&, const OrderSpec&) = default;
  };

  /// A part of the run before a change of its data or order.
  struct Stage {
    std::uint64_t end_epoch = 0;  ///< the first epoch after the change
    Hash128 fingerprint;
    OrderSpec spec;

    friend bool operator==(const Stage&, const Stage&) = default;
  };

  /// Progress within a window of batches by length or group.
  struct Batches {
    std::string rule;             ///< identifies how batches are made
    std::uint64_t delivered = 0;  ///< batches delivered from the window at `position`

    friend bool operator==(const Batches&, const Batches&) = default;
  };

  /// The samples that a run has read of one data set. Left-out samples count as read.
  struct Progress {
    std::uint64_t num_samples = 0;  ///< of the data set
    std::uint64_t samples = 0;      ///< read so far, in all epochs
    std::uint64_t passes = 0;       ///< whole passes: samples / num_samples
    std::uint64_t remainder = 0;    ///< samples read of the next pass

    friend bool operator==(const Progress&, const Progress&) = default;
  };

  Hash128 fingerprint;  ///< of the data set
  OrderSpec spec;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< all positions before it were read; counted as if no sample were
                               ///< left out
  SkipList skip;
  /// The proof's sum for this epoch over all ranks, up to the token.
  std::optional<EpochAudit::Sum> audit;
  std::vector<Stage> history;  ///< earliest first
  std::optional<Batches> batches{};

  [[nodiscard]] std::string to_text() const;
  /// Parses a token, ignoring surrounding white space.
  /// Errors: VersionMismatch if another version of the library wrote it. InvalidArgument if it is
  ///   damaged or not a token.
  [[nodiscard]] static ResumeToken from_text(std::string_view text);

  /// Returns what the run has read before `position`, by data set: one element for each part of a
  /// mixture, and one for an order of one data set. Empty for resampled and wids, which have no
  /// passes. In a mixture, passes are exact at multiples of 256 positions of the run; elsewhere, up
  /// to 255 samples of a data set's next pass may have been read before the last of this pass. The
  /// stages of `history` do not count.
  /// Cost: O(log data sets) for each data set and each piece of a schedule.
  /// Errors: InvalidArgument if the token's mixture is not valid.
  [[nodiscard]] std::vector<Progress> progress() const;

  /// Throws unless this token can continue with the order `here` on the data set
  /// `fingerprint_here`.
  /// Errors: VersionMismatch if an algorithm has another version here. Mismatch, naming everything
  ///   that differs.
  void require(const OrderSpec& here, const Hash128& fingerprint_here) const;

  friend bool operator==(const ResumeToken&, const ResumeToken&) = default;
};

/// Lists all differences except those of versions, e.g. "chunk_size 1000 there, 500 here". The text
/// is empty if nothing differs.
SHARDWISE_EXPORT std::string difference(const ResumeToken::OrderSpec& there,
                                        const ResumeToken::OrderSpec& here);

}  // namespace shardwise
