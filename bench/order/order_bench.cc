// Costs of a sampler's steps, by the calls that users make. One item is one sample number.
//
//   BM_Step_*         one rank goes through an epoch of n samples by iterator (or by next_batch)
//   BM_FirstIndex_*   makes a sampler over n samples and takes its first number; state_bytes is the
//                     sampler's size, which does not grow with n
//   BM_At_*           positions of an epoch in random order
//   BM_Map_*          many positions of an epoch, ascending
//   BM_Deal           deals one step's samples to ranks by their bytes
//   BM_Permutation_*  the permutation alone
//   BM_Audit_*        adds delivered samples to an epoch's proof; computes the expected sum
//   BM_Peer_*         limits and peers: a vector of numbers shuffled as torch.randperm does it
//                     (Fisher and Yates over a vector of int64), std::shuffle, and a loop over
//                     such a vector; state_bytes is the vector's size
//
// No files are touched; caches are warm.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "order/deal.h"
#include "order/epoch_order.h"
#include "order/key.h"
#include "order/permutation.h"
#include "order/wids_sampler.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/sampler.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kSteps = 1 << 16;

/// Goes through the sampler by iterator, again and again.
void walk(benchmark::State& state, Sampler& sampler) {
  std::uint64_t sum = 0;
  std::uint64_t steps = 0;
  for (auto _ : state) {
    std::uint64_t left = kSteps;
    for (const std::uint64_t sample : sampler) {
      sum += sample;
      if (--left == 0) break;
    }
    steps += kSteps - left;
    if (left > 0) sampler.reset();  // at the end of the epoch
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(static_cast<std::int64_t>(steps));
  state.counters["step"] = benchmark::Counter(
      static_cast<double>(steps), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_Step_Chunked(benchmark::State& state) {
  ChunkedSampler sampler(state.range(0), {.seed = 1,
                                          .chunk_size = static_cast<std::uint64_t>(state.range(1)),
                                          .window = static_cast<std::uint64_t>(state.range(2))});
  walk(state, sampler);
}
BENCHMARK(BM_Step_Chunked)
    ->ArgNames({"n", "chunk_size", "window"})
    ->Args({10'000'000, 1000, 1})
    ->Args({10'000'000, 1000, 8})
    ->Args({10'000'000, 1000, 64})
    ->Args({10'000'000, 1000, 1000})
    ->Args({10'000'000, 100, 1})
    ->Args({10'000'000, 50, 1})
    ->Args({10'000'000, 10'000'000, 1})
    ->Args({1'000'000'000'000, 1000, 8});

void BM_Step_ChunkedRank(benchmark::State& state) {
  ChunkedSampler sampler(
      10'000'000, {.seed = 1, .window = 8, .streams = static_cast<std::uint64_t>(state.range(1))},
      {.rank = 3, .world_size = static_cast<std::uint64_t>(state.range(0))});
  walk(state, sampler);
}
BENCHMARK(BM_Step_ChunkedRank)
    ->ArgNames({"world_size", "streams"})
    ->Args({8, 1})
    ->Args({8, 8})
    ->Args({8, 64})
    ->Args({64, 1})
    ->Args({1024, 1});

std::vector<std::uint64_t> uneven_lengths(std::uint64_t n, std::uint64_t mean) {
  std::mt19937_64 random(7);
  std::vector<std::uint64_t> lengths;
  while (n > 0) {
    lengths.push_back(std::min(n, 1 + random() % (2 * mean)));
    n -= lengths.back();
  }
  return lengths;
}

void BM_Step_Sharded(benchmark::State& state) {
  const auto lengths = uneven_lengths(10'000'000, static_cast<std::uint64_t>(state.range(0)));
  const Sharded kind{.window = static_cast<std::uint64_t>(state.range(1))};
  walk(state, *make_sampler(SampleSet::of_shards(lengths), {.seed = 1, .kind = kind}));
}
BENCHMARK(BM_Step_Sharded)
    ->ArgNames({"mean_length", "window"})
    ->Args({1000, 1})
    ->Args({1000, 8})
    ->Args({10'000, 16});

void BM_Step_ChunkedNextBatch(benchmark::State& state) {
  ChunkedSampler sampler(10'000'000, {.seed = 1, .window = 8});
  std::vector<std::uint64_t> batch(static_cast<std::size_t>(state.range(0)));
  std::uint64_t steps = 0;
  for (auto _ : state) {
    const std::size_t count = sampler.next_batch(batch);
    benchmark::DoNotOptimize(batch.data());
    steps += count;
    if (count < batch.size()) sampler.reset();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(steps));
}
BENCHMARK(BM_Step_ChunkedNextBatch)->ArgName("batch")->Arg(64)->Arg(1024);

void BM_Step_Resampled(benchmark::State& state) {
  walk(state, *make_sampler(10'000'000, {.seed = 1, .kind = Resampled{}}));
}
BENCHMARK(BM_Step_Resampled);

void BM_Step_ResampledByShard(benchmark::State& state) {
  walk(state, *make_sampler(SampleSet::of_shards(uneven_lengths(10'000'000, 1000)),
                            {.seed = 1, .kind = Resampled{Resampled::Unit::kShard}}));
}
BENCHMARK(BM_Step_ResampledByShard);

void BM_Step_ResampledByWeight(benchmark::State& state) {
  const auto n = static_cast<std::uint64_t>(state.range(0));
  const SampleSet samples = SampleSet(n).with_column([n](const std::string& /*name*/) {
    std::vector<double> weights(n);
    for (std::uint64_t i = 0; i < n; ++i) weights[i] = static_cast<double>(1 + i * 7919 % 101);
    return weights;
  });
  walk(state, *make_sampler(samples, {.seed = 1, .kind = Resampled{.weights = "weight"}}));
}
BENCHMARK(BM_Step_ResampledByWeight)->ArgName("n")->Arg(10'000)->Arg(10'000'000);

void BM_Step_Mixture(benchmark::State& state) {
  const std::vector<Mixture::Part> parts{{.num_samples = 10'000'000, .weight = 5},
                                         {.num_samples = 1'000'000, .weight = 1},
                                         {.num_samples = 50'000, .weight = 0.5}};
  walk(state, *make_sampler(11'050'000, {.seed = 1, .kind = Mixture{parts}},
                            {.world_size = static_cast<std::uint64_t>(state.range(0))}));
}
BENCHMARK(BM_Step_Mixture)->ArgName("world_size")->Arg(1)->Arg(64);

void BM_Step_Balanced(benchmark::State& state) {
  const SampleSet samples = SampleSet(10'000'000).with_bytes([](std::uint64_t sample) {
    return (sample * 0x9e3779b97f4a7c15U) >> 47;  // computing a size costs as much as reading it
                                                  // from an index
  });
  const auto sampler = make_sampler(samples, {.seed = 1, .balance_bytes = true},
                                    {.world_size = static_cast<std::uint64_t>(state.range(0)),
                                     .batch_size = static_cast<std::uint64_t>(state.range(1))});
  walk(state, *sampler);
}
BENCHMARK(BM_Step_Balanced)
    ->ArgNames({"world_size", "batch_size"})
    ->Args({8, 32})
    ->Args({64, 32})
    ->Args({64, 128});

void BM_Step_Wids(benchmark::State& state) {
  WidsSampler sampler(10'000'000, {.seed = 1, .kind = Wids{}});
  walk(state, sampler);
}
BENCHMARK(BM_Step_Wids);

void BM_FirstIndex_Chunked(benchmark::State& state) {
  std::uint64_t seed = 0;
  for (auto _ : state) {
    ChunkedSampler sampler(state.range(0), {.seed = ++seed, .window = 8});
    benchmark::DoNotOptimize(sampler.next());
  }
  state.counters["state_bytes"] = sizeof(ChunkedSampler);
}
BENCHMARK(BM_FirstIndex_Chunked)->ArgName("n")->Arg(1'000'000)->Arg(1'000'000'000'000);

void BM_At_Chunked(benchmark::State& state) {
  const ChunkedSampler sampler(1'000'000'000'000, {.seed = 1, .window = 8});
  std::uint64_t position = 0;
  for (auto _ : state) {
    position = (position + 618'033'988'749) % 1'000'000'000'000;
    benchmark::DoNotOptimize(sampler[position]);
  }
}
BENCHMARK(BM_At_Chunked);

void BM_At_ChunkedInverse(benchmark::State& state) {
  const EpochOrder order = EpochOrder::chunked(1'000'000'000'000, 1000, {1, 0, 8});
  std::uint64_t sample = 0;
  for (auto _ : state) {
    sample = (sample + 618'033'988'749) % 1'000'000'000'000;
    benchmark::DoNotOptimize(order.position_of(sample));
  }
}
BENCHMARK(BM_At_ChunkedInverse);

/// Ascending positions in a large group, `gap` apart on average.
void BM_Map_Thin(benchmark::State& state) {
  const std::uint64_t n = 100'000'000;
  const EpochOrder order =
      EpochOrder::chunked(n, 1000, {1, 2, static_cast<std::uint64_t>(state.range(0))});
  const auto gap = static_cast<std::uint64_t>(state.range(1));
  std::mt19937_64 random(5);
  std::vector<std::uint64_t> gaps(2048);
  for (std::uint64_t& each : gaps) each = 1 + random() % (2 * gap - 1);
  std::vector<std::uint64_t> positions(gaps.size());
  std::uint64_t position = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < gaps.size(); ++i) {
      positions[i] = position;
      position += gaps[i];
      if (position >= n) position -= n;
    }
    order.map(positions);
    benchmark::DoNotOptimize(positions.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(positions.size()));
}
BENCHMARK(BM_Map_Thin)
    ->ArgNames({"window", "gap"})
    ->Args({1, 1})
    ->Args({8, 1})
    ->Args({8, 64})
    ->Args({1000, 64})
    ->Args({100'000, 64});

/// Samples have log-normal sizes; one item is one dealt sample.
void BM_Deal(benchmark::State& state) {
  const auto world = static_cast<std::uint64_t>(state.range(0));
  const auto batch = static_cast<std::uint64_t>(state.range(1));
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> bytes(11, 1);  // median about 60,000, sigma 1
  std::vector<std::vector<std::uint64_t>> steps(32, std::vector<std::uint64_t>(world * batch));
  for (std::vector<std::uint64_t>& sizes : steps) {
    for (std::uint64_t& size : sizes) size = static_cast<std::uint64_t>(bytes(random));
  }
  detail::Dealer dealer(world);
  std::vector<std::uint32_t> slots;
  std::uint64_t step = 0;
  for (auto _ : state) {
    dealer.slots_of(1, step, steps[step % steps.size()], slots);
    benchmark::DoNotOptimize(slots.data());
    ++step;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(world * batch));
}
BENCHMARK(BM_Deal)
    ->ArgNames({"world_size", "batch"})
    ->Args({8, 8})
    ->Args({8, 32})
    ->Args({64, 32})
    ->Args({1024, 32});

void BM_Permutation_Apply(benchmark::State& state) {
  const auto n = static_cast<std::uint64_t>(state.range(0));
  const Permutation permutation(n, derive_key(1, 2, KeyPurpose::kSamples));
  std::vector<std::uint64_t> values(512);
  std::uint64_t first = 0;
  for (auto _ : state) {
    for (std::uint64_t& value : values) {
      value = first;
      if (++first == n) first = 0;
    }
    permutation.apply(values);
    benchmark::DoNotOptimize(values.data());
  }
  state.SetItemsProcessed(state.iterations() * 512);
}
BENCHMARK(BM_Permutation_Apply)->ArgName("n")->Arg(50)->Arg(100)->Arg(1000)->Arg(1'000'000'000'000);

void BM_Permutation_Make(benchmark::State& state) {
  const PermutationDomain domain(static_cast<std::uint64_t>(state.range(0)));
  std::uint64_t index = 0;
  for (auto _ : state) {
    const Permutation permutation(domain, derive_key(1, 2, KeyPurpose::kSamples, ++index));
    benchmark::DoNotOptimize(permutation(0));
  }
}
BENCHMARK(BM_Permutation_Make)->ArgName("n")->Arg(16)->Arg(64)->Arg(1000);

void BM_Audit_Add(benchmark::State& state) {
  EpochAudit audit(Hash128{1, 2});
  std::vector<std::uint64_t> batch(static_cast<std::size_t>(state.range(0)));
  std::iota(batch.begin(), batch.end(), 12345);
  for (auto _ : state) {
    audit.add(batch);
    EpochAudit::Sum sum = audit.sum();
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Audit_Add)->ArgName("batch")->Arg(1)->Arg(64)->Arg(1024);

void BM_Audit_Expect(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(EpochAudit::Sum::of_range(0, 1'000'000, Hash128{1, 2}));
  state.SetItemsProcessed(state.iterations() * 1'000'000);
}
BENCHMARK(BM_Audit_Expect);

/// Shuffles n int64 numbers like torch.randperm: swaps each number with a later one, chosen by a
/// random 64-bit number modulo the count of the rest.
void BM_Peer_TorchRandperm(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  std::mt19937_64 random(1);
  for (auto _ : state) {
    std::vector<std::int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + random() % (n - i)]);
    benchmark::DoNotOptimize(order.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["state_bytes"] = static_cast<double>(n * sizeof(std::int64_t));
}
BENCHMARK(BM_Peer_TorchRandperm)
    ->ArgName("n")
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond);

void BM_Peer_StdShuffle(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> order(n);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  for (auto _ : state) {
    std::shuffle(order.begin(), order.end(), random);
    benchmark::DoNotOptimize(order.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["state_bytes"] = static_cast<double>(n * sizeof(std::uint64_t));
}
BENCHMARK(BM_Peer_StdShuffle)
    ->ArgName("n")
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond);

void BM_Peer_BareVectorWalk(benchmark::State& state) {
  std::vector<std::uint64_t> order(10'000'000);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::uint64_t sum = 0;
  for (auto _ : state) {
    for (const std::uint64_t sample : order) benchmark::DoNotOptimize(sum += sample);
  }
  state.SetItemsProcessed(state.iterations() * 10'000'000);
}
BENCHMARK(BM_Peer_BareVectorWalk)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardwise

BENCHMARK_MAIN();
