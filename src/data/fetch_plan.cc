#include "shardwise/data/fetch_plan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "base/assert.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "base/text.h"
#include "data/cache_simulation.h"
#include "data/dataset_access.h"
#include "index/claimed_index.h"
#include "order/fields.h"
#include "order/permutation.h"
#include "order/shard_schedule.h"
#include "order/shard_use.h"
#include "order/spec.h"
#include "shardwise/base/hash.h"
#include "storage/cache_request.h"

namespace shardwise {

namespace {
using Node = FetchPlan::Node;
using NodeEpoch = FetchPlan::NodeEpoch;

/// Lists the divisors of a number for a text, e.g. "1, 2, 4, 8".
std::string divisors(std::uint64_t number) {
  std::string low;
  std::string high;
  for (std::uint64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low += (low.empty() ? "" : ", ") + std::to_string(d);
    if (d * d != number) high.insert(0, ", " + std::to_string(number / d));
  }
  return low + high;
}

void check_options(const Sampler& sampler, const FetchPlan::Shards& shards,
                   const FetchPlan::Options& options) {
  if (options.nodes == 0 || sampler.world_size() % options.nodes != 0) {
    throw InvalidArgument(counted(sampler.world_size(), "rank") + " are not divisible by " +
                              std::to_string(options.nodes) + " nodes",
                          {}, "use " + divisors(sampler.world_size()) + " nodes");
  }
  if (options.epochs == 0) throw InvalidArgument("the plan has 0 epochs", {}, "plan at least 1");
  if (shards.starts.size() != shards.sizes_bytes.size() + 1) {
    throw InvalidArgument(std::to_string(shards.sizes_bytes.size()) + " sizes of shards, but " +
                              std::to_string(shards.starts.size()) + " starts",
                          {}, "give one start more than sizes");
  }
}

[[noreturn]] void throw_not_known(const Sampler& sampler, const FetchPlan::Shards& shards) {
  std::uint64_t total = 0;
  for (const std::uint64_t size : shards.sizes_bytes) total += size;
  const Order& order = sampler.order();
  throw Unsupported(
      "cannot plan fetches, because it is unknown in advance when this order needs each shard",
      "the " + std::string(name_of(order.kind)) + " sampler" +
          (order.balance_bytes ? ", balancing bytes over several nodes" : ""),
      "choose chunked with larger chunks, sharded, sequential or wids, or a cache that holds all "
      "shards (" +
          counted(total, "byte") + "), which needs no plan");
}

/// Returns the schedules of the planned epochs. Errors: Unsupported; Cancelled.
std::vector<ShardSchedule> schedules_of(const Sampler& sampler, const FetchPlan::Shards& shards,
                                        const FetchPlan::Options& options) {
  const std::unique_ptr<Sampler> mine = sampler.clone();
  std::vector<ShardSchedule> schedules;
  for (std::uint64_t epoch = 0; epoch < options.epochs; ++epoch) {
    options.cancel.throw_if_cancelled();
    // The first epoch begins at the sampler's position; later epochs are whole.
    if (epoch > 0) mine->set_epoch(sampler.epoch() + epoch);
    auto schedule = ShardSchedule::of(*mine, shards.starts);
    if (!schedule) throw_not_known(sampler, shards);
    schedules.push_back(std::move(*schedule));
  }
  return schedules;
}

Hash128 hash_of(const std::vector<EpochSchedule>& epochs) {
  std::vector<Hash128> hashes;
  hashes.reserve(epochs.size());
  for (const EpochSchedule& epoch : epochs) {
    hashes.push_back(hash128({reinterpret_cast<const char*>(epoch.uses.data()),
                              epoch.uses.size() * sizeof(UseInterval)}));
  }
  return hash128({reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(Hash128)});
}

/// Returns the uses of shards by one node, for every epoch. Errors: Unsupported; Cancelled.
std::vector<EpochSchedule> uses_of(std::uint64_t node, const std::vector<ShardSchedule>& schedules,
                                   const Sampler& sampler, const FetchPlan::Shards& shards,
                                   const FetchPlan::Options& options) {
  const std::uint64_t num_ranks = sampler.world_size() / options.nodes;
  std::vector<EpochSchedule> epochs;
  for (const ShardSchedule& schedule : schedules) {
    options.cancel.throw_if_cancelled();
    auto uses = schedule.uses({node * num_ranks, num_ranks});
    if (!uses) throw_not_known(sampler, shards);
    epochs.push_back(std::move(*uses));
  }
  return epochs;
}

/// Makes the plan of one node, without the results of cache simulations.
Node needs_of(const std::vector<EpochSchedule>& epochs, const std::vector<std::uint64_t>& sizes) {
  Node plan;
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // Last epoch so far that uses each shard.
  std::vector<std::uint64_t> latest(sizes.size(), kNever);
  for (std::uint64_t epoch = 0; epoch < epochs.size(); ++epoch) {
    NodeEpoch row;
    for (const UseInterval& use : epochs[epoch].uses) {
      if (latest[use.shard] == epoch) continue;
      if (latest[use.shard] == kNever) {
        ++plan.shards;
        plan.bytes += sizes[use.shard];
      }
      latest[use.shard] = epoch;
      ++row.shards;
      row.bytes += sizes[use.shard];
    }
    plan.epochs.push_back(row);
    plan.bytes_in_use = std::max(plan.bytes_in_use, peak_bytes_in_use(epochs[epoch], sizes));
    plan.bytes_for_once_an_epoch = std::max(
        plan.bytes_for_once_an_epoch, smallest_budget_without_refetch({&epochs[epoch], 1}, sizes));
  }
  plan.bytes_for_once = smallest_budget_without_refetch(epochs, sizes);
  return plan;
}

void simulate(Node& plan, const std::vector<EpochSchedule>& epochs,
              const std::vector<std::uint64_t>& sizes, std::uint64_t cache_bytes) {
  const auto lru = simulate_cache(epochs, sizes, cache_bytes, Replacement::kLru);
  const auto next_use = simulate_cache(epochs, sizes, cache_bytes, Replacement::kNextUse);
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    plan.epochs[epoch].lru = lru[epoch];
    plan.epochs[epoch].next_use = next_use[epoch];
  }
  plan.counts_of = plan.nodes.front();
}

void copy_counts(const Node& from, Node& plan) {
  for (std::size_t epoch = 0; epoch < plan.epochs.size(); ++epoch) {
    plan.epochs[epoch].lru = from.epochs[epoch].lru;
    plan.epochs[epoch].next_use = from.epochs[epoch].next_use;
  }
  plan.counts_of = from.counts_of;
}

/// False if the shards are known only from a descriptor's claims, and the claims lack a size.
bool knows_sizes(const Index& index) {
  if (IndexAccess::has_records(index)) return true;
  for (std::uint64_t shard = 0; shard < index.num_shards(); ++shard) {
    if (index.shard(shard).size_bytes == 0) return false;
  }
  return true;
}

std::uint64_t max_of(const std::vector<Node>& kinds, std::uint64_t Node::*bytes) noexcept {
  std::uint64_t max = 0;
  for (const Node& kind : kinds) max = std::max(max, kind.*bytes);
  return max;
}

}  // namespace

FetchPlan::Shards FetchPlan::Shards::of(const Dataset& data) {
  const Index& index = data.index();
  if (!knows_sizes(index)) {
    throw Unsupported(
        "the descriptor lacks the sizes of shards", in_quotes(index.path()),
        "add a filesize to each shard, or run " + spelled("`shardwise index -o INDEX DESCRIPTOR`"));
  }
  FetchPlan::Shards shards;
  shards.starts = data.shard_starts();
  shards.sizes_bytes.reserve(index.num_shards());
  for (std::uint64_t shard = 0; shard < index.num_shards(); ++shard) {
    shards.sizes_bytes.push_back(index.shard(shard).expanded_bytes);
  }
  return shards;
}

FetchPlan::Shards FetchPlan::Shards::of(const MixedDataset& data) {
  FetchPlan::Shards shards;
  shards.starts = data.shard_starts();
  for (std::size_t i = 0; i < data.num_parts(); ++i) {
    const FetchPlan::Shards part = of(data.part(i));
    shards.sizes_bytes.insert(shards.sizes_bytes.end(), part.sizes_bytes.begin(),
                              part.sizes_bytes.end());
  }
  return shards;
}

FetchPlan::Shards FetchPlan::Shards::alike(std::uint64_t count, std::uint64_t samples_per_shard,
                                           std::uint64_t bytes_per_shard) {
  if (samples_per_shard != 0 && count > kMaxSamples / samples_per_shard) {
    throw InvalidArgument(
        "cannot order " + counted(count, "shard") + " of " + counted(samples_per_shard, "sample"),
        {}, "choose at most 2^62 samples");
  }
  constexpr std::uint64_t kMaxShards = 10'000'000;  // the limit of source lists
  if (count > kMaxShards) {
    throw InvalidArgument("cannot plan for " + counted(count, "shard"), {},
                          "choose at most 10 million shards");
  }
  FetchPlan::Shards shards;
  shards.sizes_bytes.assign(count, bytes_per_shard);
  shards.starts.reserve(count + 1);
  for (std::uint64_t shard = 0; shard <= count; ++shard) {
    shards.starts.push_back(shard * samples_per_shard);
  }
  return shards;
}

FetchPlan::NodeEpoch FetchPlan::total(std::uint64_t epoch) const {
  NodeEpoch sum;
  for (const Node& kind : kinds) {
    const NodeEpoch& one = kind.epochs[epoch];
    if (one.bytes > sum.bytes) {
      sum.shards = one.shards;
      sum.bytes = one.bytes;
    }
    for (std::size_t i = 0; i < kind.nodes.size(); ++i) {
      sum.lru += one.lru;
      sum.next_use += one.next_use;
    }
  }
  return sum;
}

std::uint64_t FetchPlan::num_not_simulated() const noexcept {
  std::uint64_t count = 0;
  for (const Node& kind : kinds) {
    if (kind.counts_of != kind.nodes.front()) count += kind.nodes.size();
  }
  return count;
}

const FetchPlan::Node& FetchPlan::of_node(std::uint64_t node) const {
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [node](const Node& plan) {
    return std::binary_search(plan.nodes.begin(), plan.nodes.end(), node);
  });
  SHARDWISE_ASSERT(kind != kinds.end());
  return *kind;
}

std::uint64_t FetchPlan::bytes_for_once_an_epoch() const noexcept {
  return max_of(kinds, &Node::bytes_for_once_an_epoch);
}
std::uint64_t FetchPlan::bytes_for_once() const noexcept {
  return max_of(kinds, &Node::bytes_for_once);
}
std::uint64_t FetchPlan::bytes_in_use() const noexcept {
  return max_of(kinds, &Node::bytes_in_use);
}

namespace {

/// Returns a warning if the disk is too small for these shards, or for the part of them that the
/// cache's budget allows.
std::optional<std::string> small_disk_warning(const ShardCache& cache,
                                              std::span<const std::uint64_t> sizes_bytes) {
  std::error_code unknown;
  const auto disk = std::filesystem::space(cache.options().directory, unknown);
  if (unknown) return std::nullopt;
  std::uint64_t wanted = 0;
  for (const std::uint64_t size : sizes_bytes) wanted += size;
  wanted = std::min(wanted, cache.options().budget_bytes);
  const std::uint64_t possible = cache.used_bytes() + disk.available;
  if (wanted <= possible) return std::nullopt;
  return "the disk of the shard cache can hold " + human_bytes(possible) +
         " of shards, less than the cache's budget of " + human_bytes(wanted) +
         ", so shards may be fetched again; free space, or put the cache on another disk";
}

/// True if the next sample may be in any shard, as with draws of single samples and chunks of few
/// samples. Draws of whole shards finish one shard before the next.
bool takes_any_shard(const Order& order) {
  const auto* const resampled = std::get_if<Resampled>(&order.kind);
  return resampled == nullptr || resampled->unit == Resampled::Unit::kSample;
}

std::uint64_t largest_of(std::span<const std::uint64_t> sizes_bytes) {
  const auto largest = std::ranges::max_element(sizes_bytes);
  return largest == sizes_bytes.end() ? 0 : *largest;
}

}  // namespace

std::optional<std::string> small_cache_warning(const Dataset& data, const Sampler& sampler,
                                               const RankOptions::Range& node,
                                               std::uint64_t window) {
  if (!data.cache() || data.cache()->is_read_only() || !knows_sizes(data.index())) {
    return std::nullopt;
  }
  FetchPlan::Shards shards = FetchPlan::Shards::of(data);
  for (std::uint64_t shard = 0; shard < shards.sizes_bytes.size(); ++shard) {
    const bool has_samples = shards.starts[shard] < shards.starts[shard + 1];
    const bool is_cached = has_samples && DatasetAccess::cache_request(data, shard);
    if (!is_cached) shards.sizes_bytes[shard] = 0;  // it is read in place, or not read at all
  }
  if (auto warning = small_disk_warning(*data.cache(), shards.sizes_bytes)) return warning;
  const auto schedule = ShardSchedule::of(sampler, shards.starts);
  const bool is_scattered = !schedule && takes_any_shard(sampler.order());
  std::uint64_t needed = 0;
  if (is_scattered) {
    needed = std::accumulate(shards.sizes_bytes.begin(), shards.sizes_bytes.end(), needed);
  } else {
    const auto uses = schedule ? schedule->uses(node, window) : std::nullopt;
    if (!uses) return std::nullopt;
    needed = peak_bytes_in_use(*uses, shards.sizes_bytes);
  }
  const std::uint64_t budget = data.cache()->options().budget_bytes;
  // A single shard that does not fit is reported elsewhere, or bypasses the cache.
  const std::uint64_t largest = largest_of(shards.sizes_bytes);
  if (needed <= budget || largest > budget) return std::nullopt;
  const std::string compared = human_bytes(needed) + " of shards at one time (" +
                               counted(needed, "byte") + "), more than the cache's budget of " +
                               human_bytes(budget) + " (" + counted(budget, "byte") + ")";
  if (!is_scattered) {
    return "the order needs up to " + compared +
           ", so some samples are read one by one from their source, or some shards are fetched "
           "again; choose " +
           (detail::has_smaller_window(sampler.order()) ? "a smaller window or " : "") +
           "a larger cache";
  }
  return "the order reads any shard at any time, and so needs " + compared +
         "; nearly every sample may fetch a shard; choose the order `sharded` with a window of at "
         "most " +
         counted(budget / largest, "shard") + ", or a cache that holds all shards";
}

std::optional<std::string> shared_stream_warning(const Sampler& sampler, std::uint64_t num_shards) {
  constexpr double kFewSamples = 2;      // samples per opening
  constexpr double kFewOpenings = 1000;  // openings per rank and epoch
  constexpr double kEnoughBetter = 4;    // factor by which streams must reduce the openings
  const Order& order = sampler.order();
  const auto* const chunked = std::get_if<Chunked>(&order.kind);
  if (chunked == nullptr && !std::holds_alternative<Sharded>(order.kind) &&
      !std::holds_alternative<Sequential>(order.kind)) {
    return std::nullopt;
  }
  const std::uint64_t num_ranks = sampler.world_size() / sampler.replicas();
  if (num_shards == 0 || num_ranks <= order.streams) return std::nullopt;
  const auto num_samples = static_cast<double>(sampler.num_samples());
  // Number of samples per opening of a shard, for a rank that has a stream for itself.
  double in_own_stream = num_samples / static_cast<double>(num_shards);
  if (chunked != nullptr) {
    in_own_stream = std::min(in_own_stream, static_cast<double>(chunked->chunk_size));
  }
  const double shared = std::max(
      1.0, in_own_stream * static_cast<double>(order.streams) / static_cast<double>(num_ranks));
  const double openings = num_samples / static_cast<double>(num_ranks) / shared;
  if (shared >= kFewSamples || openings < kFewOpenings || in_own_stream < kEnoughBetter * shared) {
    return std::nullopt;
  }
  return "each of the " + human_count(num_ranks) +
         " ranks opens a shard for nearly every sample, " + "about " +
         human_count(static_cast<std::uint64_t>(openings)) +
         " openings per epoch, because the order has " + counted(order.streams, "stream") +
         ", which the ranks share; choose " + spelled(detail::spelling_of<Order>("streams")) + " " +
         std::to_string(num_ranks) + ", so that each rank reads its own shards";
}

FetchPlan plan_fetches(const Sampler& sampler, const FetchPlan::Shards& shards,
                       const FetchPlan::Options& options) {
  check_options(sampler, shards, options);
  const std::vector<ShardSchedule> schedules = schedules_of(sampler, shards, options);
  FetchPlan plan;
  plan.options = options;
  plan.first_epoch = sampler.epoch();
  plan.world_size = sampler.world_size();
  plan.num_shards = shards.sizes_bytes.size();
  for (const std::uint64_t size : shards.sizes_bytes) plan.total_bytes += size;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> kind_of;
  std::uint64_t num_uses = 0;
  for (std::uint64_t node = 0; node < options.nodes; ++node) {
    const std::vector<EpochSchedule> epochs = uses_of(node, schedules, sampler, shards, options);
    const Hash128 hash = hash_of(epochs);
    const auto [place, is_new] =
        kind_of.try_emplace(std::pair(hash.high, hash.low), plan.kinds.size());
    if (is_new) {
      plan.kinds.push_back(needs_of(epochs, shards.sizes_bytes));
      for (const EpochSchedule& epoch : epochs) num_uses += epoch.uses.size();
    }
    plan.kinds[place->second].nodes.push_back(node);
  }
  // Simulate only every `stride`-th kind of node, to stay within max_simulated_uses.
  const std::uint64_t max = std::max<std::uint64_t>(1, options.max_simulated_uses);
  const std::uint64_t stride = std::max<std::uint64_t>(1, num_uses / max + (num_uses % max > 0));
  for (std::size_t i = 0; i < plan.kinds.size(); ++i) {
    Node& kind = plan.kinds[i];
    if (i % stride != 0) {
      copy_counts(plan.kinds[i - i % stride], kind);
      continue;
    }
    const auto epochs = uses_of(kind.nodes.front(), schedules, sampler, shards, options);
    simulate(kind, epochs, shards.sizes_bytes, options.cache_bytes);
  }
  return plan;
}

}  // namespace shardwise
