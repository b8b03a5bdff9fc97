#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "order/mixture_draws.h"
#include "shardwise/order/order.h"

namespace shardwise::detail {

/// Returns `mixture` with its schedule in the canonical form: `from` is a multiple of
/// MixtureDraws::kBlock, and each change differs in position and weights from the change before it.
/// Errors: InvalidArgument for a change that is not valid.
Mixture canonical(Mixture mixture);

/// True if the mixtures differ at most in their weights.
bool differ_only_in_weights(const Mixture& one, const Mixture& other);

/// Returns a mixture that has the weights of `past` up to the first block that begins at or after
/// `from`, and those of `future` from there on. Returns `past` if that block would begin at
/// kMaxSamples or later.
/// REQUIRES: differ_only_in_weights(past, future); both are canonical. Errors: as canonical().
Mixture continued(const Mixture& past, const Mixture& future, std::uint64_t from);

/// Maps each slot of a mixture to a data set and a draw from that data set, like MixtureDraws, with
/// weights that change at borders of blocks. A stretch of equal weights is a piece.
///
///     slots     0 ............... b1 ............... b2 ................ 2^62
///     piece     |  weights 0      |   weights 1      |   weights 2      |
///     draws     d(0, x)           d(1, x) + c1       d(2, x) + c2
///
/// For each data set, d(i, x) is its number of draws before slot x in a MixtureDraws with weights
/// i. A constant is added for each piece and data set, so that the numbers continue at the border:
/// c1 = d(0, b1) - d(1, b1). At borders of blocks d() never falls, so the draws of a data set are
/// numbered without gap or repetition in all pieces. A change to the same weights changes nothing.
///
/// Threads: immutable; safe from any thread.
/// Memory: for each piece that of MixtureDraws, and 16 bytes per data set.
/// Cost: that of MixtureDraws, and O(log pieces).
/// Source: docs/formats/order.md (Schedules of weights).
class MixtureSchedule {
 public:
  static constexpr std::size_t kMaxChanges = std::size_t{1} << 16;

  /// Errors: InvalidArgument, those of canonical() and of MixtureDraws.
  MixtureSchedule(const Mixture& mixture, std::uint64_t seed);

  /// These functions work as in MixtureDraws.
  void locate(std::uint64_t first, std::uint64_t stride, std::span<std::uint32_t> dataset,
              std::span<std::uint64_t> draw) const noexcept;
  std::uint64_t draws_before(std::size_t dataset, std::uint64_t slot) const noexcept;
  std::optional<std::uint64_t> slot_of(std::size_t dataset, std::uint64_t draw) const noexcept;
  std::pair<std::uint64_t, std::uint64_t> slots_of_draws(std::size_t dataset, std::uint64_t first,
                                                         std::uint64_t last) const noexcept;

 private:
  struct Piece {
    std::uint64_t begin;  ///< first slot
    MixtureDraws draws;
    std::vector<std::uint64_t> before;  ///< for each data set, the number of draws before the piece
    std::vector<std::uint64_t> added;   ///< for each data set, the constant, modulo 2^64
  };

  const Piece& piece_at(std::uint64_t slot) const noexcept;
  const Piece& piece_of_draw(std::size_t dataset, std::uint64_t draw) const noexcept;

  std::vector<Piece> pieces_;  ///< ascending; the first begins at slot 0
};

}  // namespace shardwise::detail
