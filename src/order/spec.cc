#include "order/spec.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "order/algorithms.h"
#include "order/arithmetic.h"
#include "order/fields.h"
#include "order/mixture_schedule.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {

namespace {

constexpr Spelling kTail = spelling_of<Order>("tail"),
                   kBalanceBytes = spelling_of<Order>("balance_bytes"),
                   kEpochSize = spelling_of<Order>("epoch_size"),
                   kSkip = spelling_of<Order>("skip");

void require(bool holds, const OrderKind& kind, const Spelling& option, std::string_view used_by) {
  if (holds) return;
  throw InvalidArgument(
      spelled(option) + " does not apply to the " + std::string(name_of(kind)) + " sampler", {},
      "leave " + spelled(option) + " at its default, or choose another sampler (" +
          std::string(used_by) + ")");
}

/// True for orders that are passes over one data set.
bool has_passes(const OrderKind& kind) {
  return std::holds_alternative<Chunked>(kind) || std::holds_alternative<Sharded>(kind) ||
         std::holds_alternative<Sequential>(kind);
}

}  // namespace

std::uint64_t layout_hash(const std::vector<std::uint64_t>& offsets) {
  return hash64(
      {reinterpret_cast<const char*>(offsets.data()), offsets.size() * sizeof(offsets[0])});
}

const std::vector<std::uint64_t>& checked(const ShardOffsets& offsets) {
  if (!offsets || offsets->empty() || offsets->front() != 0 ||
      !std::is_sorted(offsets->begin(), offsets->end()) || offsets->back() > kMaxSamples) {
    throw InvalidArgument("the list of shard offsets is not valid", {},
                          "give the first sample of each shard, in ascending order from 0, then "
                          "the number of samples");
  }
  return *offsets;
}

void require_sample(std::uint64_t sample, std::uint64_t num_samples) {
  if (sample < num_samples) return;
  throw OutOfRange("no sample " + std::to_string(sample), {},
                   "choose a sample in [0, " + std::to_string(num_samples) + ")");
}

const RankOptions& checked(const RankOptions& ranks) {
  constexpr std::uint64_t kMaxWorldSize = std::uint64_t{1} << 31;
  constexpr std::uint64_t kMaxBatchSize = std::uint64_t{1} << 31;
  if (ranks.world_size == 0 || ranks.world_size > kMaxWorldSize) {
    throw InvalidArgument(spelled("world_size") + " is " + std::to_string(ranks.world_size), {},
                          "choose 1 to 2^31");
  }
  if (ranks.rank >= ranks.world_size) {
    throw InvalidArgument(spelled("rank") + " is " + std::to_string(ranks.rank) + " with " +
                              spelled("world_size") + " " + std::to_string(ranks.world_size),
                          {}, "choose a rank in [0, " + std::to_string(ranks.world_size) + ")");
  }
  if (ranks.batch_size == 0 || ranks.batch_size > kMaxBatchSize) {
    throw InvalidArgument(
        spelled("batch_size") + " is " + std::to_string(ranks.batch_size) + " samples", {},
        "choose 1 to 2^31");
  }
  if (ranks.global_batch_size > kMaxWorldSize * kMaxBatchSize) {
    throw InvalidArgument(spelled("global_batch_size") + " is " +
                              std::to_string(ranks.global_batch_size) + " samples",
                          {}, "choose 1 to 2^62");
  }
  if (ranks.replicas == 0 || ranks.world_size % ranks.replicas != 0) {
    throw InvalidArgument(spelled("replicas") + " is " + std::to_string(ranks.replicas) + " with " +
                              spelled("world_size") + " " + std::to_string(ranks.world_size),
                          {}, "choose a divisor of the number of ranks");
  }
  return ranks;
}

ResumeToken::OrderSpec make_spec(const SampleSet& samples, const Order& order,
                                 const RankOptions& ranks) {
  checked(ranks);
  const OrderKind& kind = order.kind;
  const bool is_pass = has_passes(kind);
  const bool is_wids = std::holds_alternative<Wids>(kind);
  const bool is_mixture = std::holds_alternative<Mixture>(kind);
  const Order defaults;
  require(!(is_wids || is_mixture) || order.streams == defaults.streams, kind,
          spelling_of<Order>("streams"), "chunked, sharded, sequential or resampled");
  require(!(is_wids || is_mixture) || order.tail == defaults.tail, kind, kTail,
          "chunked, sharded, sequential or resampled");
  require(!is_wids || !order.balance_bytes, kind, kBalanceBytes,
          "chunked, sharded, sequential, resampled or a mixture");
  require(!is_wids || order.epoch_size == 0, kind, kEpochSize,
          "chunked, sharded, sequential, resampled or a mixture");
  require(!is_wids || order.skip.empty(), kind, kSkip,
          "chunked, sharded, sequential, resampled or a mixture");
  if (samples.size() > kMaxSamples) {
    throw InvalidArgument("cannot order " + counted(samples.size(), "sample"), {},
                          "choose at most 2^62 samples");
  }
  const std::uint64_t num_shares = ranks.world_size / ranks.replicas;
  const bool pads = order.tail == Order::Tail::kPad;
  if ((order.balance_bytes || pads) && ranks.global_batch_size % num_shares != 0) {
    throw InvalidArgument((order.balance_bytes ? spelled(kBalanceBytes) : spelled(kTail) + " pad") +
                              " cannot be used with a " + spelled("global_batch_size") + " of " +
                              std::to_string(ranks.global_batch_size) + " on " +
                              std::to_string(num_shares) + " ranks",
                          {},
                          "choose a number that the ranks can share evenly" +
                              (order.balance_bytes ? "" : ", or " + spelled(kTail) + " exact"));
  }
  if (order.epoch_size > kMaxSamples) {
    throw InvalidArgument(
        spelled(kEpochSize) + " is " + std::to_string(order.epoch_size) + " samples", {},
        "choose at most 2^62");
  }

  ResumeToken::OrderSpec spec;
  spec.order = order;
  spec.order.skip = {};
  spec.num_samples = samples.size();
  if (order.epoch_size == samples.size()) spec.order.epoch_size = 0;  // this equals the default
  if (is_pass && spec.order.epoch_size != 0 && order.tail != Order::Tail::kExact) {
    throw InvalidArgument(spelled(kTail) + " " + std::string(tail_name(order.tail)) +
                              " cannot be used with an " + spelled(kEpochSize),
                          {},
                          "use " + spelled(kTail) + " exact, and choose an " + spelled(kEpochSize) +
                              " that the ranks can share evenly");
  }
  if (auto* const mixture = std::get_if<Mixture>(&spec.order.kind)) {
    *mixture = canonical(std::move(*mixture));
  }
  // A sequential order has no random draws.
  if (std::holds_alternative<Sequential>(kind)) spec.order.seed = 0;
  if (is_wids) {
    spec.world_size = num_shares;
    auto& wids = std::get<Wids>(spec.order.kind);
    // The defaults of wids' DistributedChunkedSampler and ChunkedSampler.
    if (wids.chunk_size == 0) wids.chunk_size = spec.world_size > 1 ? 1'000'000 : 2'000;
  }
  const auto use = [&spec](Algorithm algorithm) {
    spec.versions[static_cast<std::size_t>(algorithm)] = algorithm_version(algorithm);
  };
  if (std::holds_alternative<Chunked>(kind) || std::holds_alternative<Sharded>(kind) ||
      is_mixture) {
    use(Algorithm::kPermutation);
    use(Algorithm::kEpochOrder);
  }
  if (const auto* resampled = std::get_if<Resampled>(&kind)) {
    use(Algorithm::kResampled);
    if (resampled->unit == Resampled::Unit::kShard) use(Algorithm::kPermutation);
  }
  if (is_mixture) use(Algorithm::kMixture);
  if (is_wids) use(Algorithm::kWids);
  if (order.balance_bytes) use(Algorithm::kBalance);
  if (!is_wids) use(Algorithm::kSkip);
  return spec;
}

std::uint64_t position_in_run(const ResumeToken::OrderSpec& spec, SkipList::Point point) {
  const std::uint64_t epoch_size =
      spec.order.epoch_size == 0 ? spec.num_samples : spec.order.epoch_size;
  return static_cast<std::uint64_t>(std::min<uint128>(
      static_cast<uint128>(point.epoch) * epoch_size + point.position, kMaxSamples));
}

ResumeToken::OrderSpec continued(const ResumeToken::OrderSpec& here,
                                 const ResumeToken::OrderSpec& there, std::uint64_t position) {
  const auto* const past = std::get_if<Mixture>(&there.order.kind);
  const auto* const future = std::get_if<Mixture>(&here.order.kind);
  ResumeToken::OrderSpec made = here;
  if (past == nullptr || future == nullptr || !differ_only_in_weights(*past, *future)) return made;
  made.order.kind = there.order.kind;
  if (made != there) return here;
  made.order.kind = continued(*past, *future, position);
  return made;
}

std::vector<std::string> open_passes(const ResumeToken::OrderSpec& spec, std::uint64_t epoch) {
  const std::vector<ResumeToken::Progress> progress = progress_of(spec, {epoch, 0});
  std::vector<std::string> open;
  for (std::size_t i = 0; i < progress.size(); ++i) {
    if (progress[i].remainder == 0) continue;
    open.push_back(std::to_string(progress[i].remainder) + " of " +
                   std::to_string(progress[i].num_samples) + " samples" +
                   (std::holds_alternative<Mixture>(spec.order.kind)
                        ? " of data set " + std::to_string(i)
                        : ""));
  }
  return open;
}

std::vector<ResumeToken::Progress> progress_of(const ResumeToken::OrderSpec& spec,
                                               SkipList::Point point) {
  const auto* const mixture = std::get_if<Mixture>(&spec.order.kind);
  if (mixture == nullptr && !has_passes(spec.order.kind)) return {};
  const std::uint64_t position = position_in_run(spec, point);
  std::vector<ResumeToken::Progress> all;
  const auto add = [&all](std::uint64_t samples, std::uint64_t size) {
    const std::uint64_t passes = size == 0 ? 0 : samples / size;
    all.push_back({.num_samples = size,
                   .samples = samples,
                   .passes = passes,
                   .remainder = samples - passes * size});
  };
  if (mixture == nullptr && spec.order.epoch_size == 0) {  // an epoch is a pass
    all.push_back({.num_samples = spec.num_samples,
                   .samples = position,
                   .passes = point.epoch,
                   .remainder = point.position});
    return all;
  }
  if (mixture == nullptr) {
    add(position, spec.num_samples);
    return all;
  }
  const MixtureSchedule draws(*mixture, spec.order.seed);
  for (std::size_t i = 0; i < mixture->parts.size(); ++i) {
    add(draws.draws_before(i, position), mixture->parts[i].num_samples);
  }
  return all;
}

bool has_smaller_window(const Order& order) {
  const auto* const chunked = std::get_if<Chunked>(&order.kind);
  const auto* const sharded = std::get_if<Sharded>(&order.kind);
  return (chunked != nullptr && chunked->window > 1) || (sharded != nullptr && sharded->window > 1);
}

}  // namespace shardwise::detail
