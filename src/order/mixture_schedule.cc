#include "order/mixture_schedule.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/counted.h"
#include "order/arithmetic.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

constexpr std::uint64_t kBlock = MixtureDraws::kBlock;

/// Returns the first position of a block at or after `position`.
std::uint64_t block_at(std::uint64_t position) { return ceil_div(position, kBlock) * kBlock; }

std::vector<double> weights_of(const std::vector<Mixture::Part>& parts) {
  std::vector<double> weights;
  weights.reserve(parts.size());
  for (const Mixture::Part& part : parts) weights.push_back(part.weight);
  return weights;
}

/// Returns the weights at `position`.
std::vector<double> weights_at(const Mixture& mixture, std::uint64_t position) {
  const auto after =
      std::ranges::upper_bound(mixture.schedule, position, {}, &Mixture::Change::from);
  if (after == mixture.schedule.begin()) return weights_of(mixture.parts);
  return std::prev(after)->weights;
}

void check(const Mixture::Change& change, std::uint64_t earlier, std::size_t num_parts) {
  const std::string where = "position " + std::to_string(change.from);
  if (change.from <= earlier) {
    throw InvalidArgument("the positions of a schedule do not ascend", where,
                          "give positions above 0 in ascending order; the mixture's own weights "
                          "apply from position 0 on");
  }
  if (change.from > kMaxSamples) {
    throw InvalidArgument("a position of a schedule is too large", where,
                          "give positions of at most 2^62");
  }
  if (change.weights.size() != num_parts) {
    throw InvalidArgument(
        counted(change.weights.size(), "weight") + " for " + counted(num_parts, "data set"),
        "schedule, " + where, "give one weight for each data set");
  }
}

}  // namespace

Mixture canonical(Mixture mixture) {
  if (mixture.schedule.size() > MixtureSchedule::kMaxChanges) {
    throw InvalidArgument("the schedule has " + counted(mixture.schedule.size(), "change"), {},
                          "give at most 65,536 changes of the weights");
  }
  std::vector<Mixture::Change> kept;
  std::vector<double> current = weights_of(mixture.parts);
  std::uint64_t earlier = 0;
  for (std::size_t i = 0; i < mixture.schedule.size(); ++i) {
    Mixture::Change& change = mixture.schedule[i];
    check(change, earlier, mixture.parts.size());
    earlier = change.from;
    const std::uint64_t from = block_at(change.from);
    // The last one of the changes that are rounded to one block applies.
    const bool is_last_of_block =
        i + 1 == mixture.schedule.size() || block_at(mixture.schedule[i + 1].from) > from;
    if (!is_last_of_block || change.weights == current) continue;
    current = change.weights;
    kept.push_back({from, std::move(change.weights)});
  }
  mixture.schedule = std::move(kept);
  return mixture;
}

bool differ_only_in_weights(const Mixture& one, const Mixture& other) {
  return std::ranges::equal(one.parts, other.parts, [](const auto& x, const auto& y) {
    return x.num_samples == y.num_samples && x.kind == y.kind;
  });
}

Mixture continued(const Mixture& past, const Mixture& future, std::uint64_t from) {
  const std::uint64_t begin = block_at(from);
  if (begin == 0) return future;
  if (begin >= kMaxSamples) return past;
  Mixture made = past;
  std::erase_if(made.schedule, [begin](const auto& change) { return change.from >= begin; });
  made.schedule.push_back({begin, weights_at(future, begin)});
  for (const Mixture::Change& change : future.schedule) {
    if (change.from > begin) made.schedule.push_back(change);
  }
  return canonical(std::move(made));
}

MixtureSchedule::MixtureSchedule(const Mixture& given, std::uint64_t seed) {
  const Mixture mixture = canonical(given);
  const std::size_t num_parts = mixture.parts.size();
  pieces_.reserve(mixture.schedule.size() + 1);
  pieces_.push_back({0, MixtureDraws(weights_of(mixture.parts), seed),
                     std::vector<std::uint64_t>(num_parts), std::vector<std::uint64_t>(num_parts)});
  for (const Mixture::Change& change : mixture.schedule) {
    const std::string unit = "from position " + std::to_string(change.from) + ", data set";
    Piece next{change.from, MixtureDraws(change.weights, seed, unit), {}, {}};
    next.before.reserve(num_parts);
    next.added.reserve(num_parts);
    for (std::size_t i = 0; i < num_parts; ++i) {
      next.before.push_back(draws_before(i, change.from));
      next.added.push_back(next.before[i] - next.draws.draws_before(i, change.from));
    }
    pieces_.push_back(std::move(next));
  }
}

const MixtureSchedule::Piece& MixtureSchedule::piece_at(std::uint64_t slot) const noexcept {
  return *std::prev(std::ranges::upper_bound(pieces_, slot, {}, &Piece::begin));
}

/// The piece that contains a draw, or the last one.
const MixtureSchedule::Piece& MixtureSchedule::piece_of_draw(std::size_t dataset,
                                                             std::uint64_t draw) const noexcept {
  // If a piece has no draw from the data set, its before[dataset] equals that of the next piece.
  // upper_bound() therefore finds the last of such equal pieces, which has the draw.
  return *std::prev(std::ranges::upper_bound(
      pieces_, draw, {}, [dataset](const Piece& piece) { return piece.before[dataset]; }));
}

void MixtureSchedule::locate(std::uint64_t first, std::uint64_t stride,
                             std::span<std::uint32_t> dataset,
                             std::span<std::uint64_t> draw) const noexcept {
  SHARDWISE_ASSERT(dataset.size() == draw.size());
  for (std::size_t at = 0; at < dataset.size();) {
    const std::uint64_t slot = first + at * stride;
    const Piece& piece = piece_at(slot);
    std::size_t end = dataset.size();
    if (&piece != &pieces_.back()) {
      const std::uint64_t left = ceil_div((&piece + 1)->begin - slot, stride);
      end = static_cast<std::size_t>(std::min<std::uint64_t>(end, at + left));
    }
    piece.draws.locate(slot, stride, dataset.subspan(at, end - at), draw.subspan(at, end - at));
    // Before the first change, all constants are 0.
    if (piece.begin != 0) {
      for (std::size_t i = at; i < end; ++i) draw[i] += piece.added[dataset[i]];
    }
    at = end;
  }
}

std::uint64_t MixtureSchedule::draws_before(std::size_t dataset,
                                            std::uint64_t slot) const noexcept {
  const Piece& piece = piece_at(slot);
  return piece.draws.draws_before(dataset, slot) + piece.added[dataset];
}

std::optional<std::uint64_t> MixtureSchedule::slot_of(std::size_t dataset,
                                                      std::uint64_t draw) const noexcept {
  const Piece& piece = piece_of_draw(dataset, draw);
  return piece.draws.slot_of(dataset, draw - piece.added[dataset]);
}

std::pair<std::uint64_t, std::uint64_t> MixtureSchedule::slots_of_draws(
    std::size_t dataset, std::uint64_t first, std::uint64_t last) const noexcept {
  SHARDWISE_ASSERT(first < last);
  const Piece& from = piece_of_draw(dataset, first);
  const Piece& to = piece_of_draw(dataset, last - 1);
  const std::uint64_t begin_added = from.added[dataset];
  const std::uint64_t end_added = to.added[dataset];
  return {from.draws.slots_of_draws(dataset, first - begin_added, first - begin_added + 1).first,
          to.draws.slots_of_draws(dataset, last - 1 - end_added, last - end_added).second};
}

}  // namespace shardwise::detail
