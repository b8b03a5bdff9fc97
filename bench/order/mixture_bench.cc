// Costs of computing a mixture and weighted draws, without the orders within the data sets. One
// item is one slot, or one draw.
//
//   BM_MixtureDraws_Locate   slots of one rank, in batches of 1024; stride: number of ranks
//   BM_MixtureDraws_SlotOf   the slot of a draw, in random order
//   BM_MixtureDraws_Before   number of draws before a slot, in random order
//   BM_WeightedDraw_Draw     draws with replacement by weight
//   BM_WeightedDraw_Make     makes the table
//   BM_Peer_RunningSums      the same draws by a binary search in running sums
//
// No files are touched; caches are warm.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "order/arithmetic.h"
#include "order/mixture_draws.h"
#include "order/weighted_draw.h"

namespace shardwise::detail {
namespace {

constexpr std::size_t kBatch = 1024;

std::vector<double> uneven_weights(std::int64_t n) {
  std::mt19937_64 random(7);
  std::vector<double> weights(static_cast<std::size_t>(n));
  for (double& weight : weights) weight = static_cast<double>(1 + random() % 1000);
  return weights;
}

void BM_MixtureDraws_Locate(benchmark::State& state) {
  const MixtureDraws draws(uneven_weights(state.range(0)), 1);
  const auto stride = static_cast<std::uint64_t>(state.range(1));
  std::vector<std::uint32_t> dataset(kBatch);
  std::vector<std::uint64_t> draw(kBatch);
  std::uint64_t first = stride / 2;
  for (auto _ : state) {
    draws.locate(first, stride, dataset, draw);
    benchmark::DoNotOptimize(dataset.data());
    benchmark::DoNotOptimize(draw.data());
    first += kBatch * stride;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}
BENCHMARK(BM_MixtureDraws_Locate)
    ->ArgNames({"datasets", "stride"})
    ->ArgsProduct({{2, 3, 16, 1000}, {1, 8, 64, 1024}});

void BM_MixtureDraws_SlotOf(benchmark::State& state) {
  const MixtureDraws draws(uneven_weights(state.range(0)), 1);
  std::uint64_t draw = 0;
  for (auto _ : state) {
    draw = (draw + 618'033'988'749) % 1'000'000'000'000;
    benchmark::DoNotOptimize(draws.slot_of(1, draw));
  }
}
BENCHMARK(BM_MixtureDraws_SlotOf)->ArgName("datasets")->Arg(2)->Arg(16);

void BM_MixtureDraws_Before(benchmark::State& state) {
  const MixtureDraws draws(uneven_weights(state.range(0)), 1);
  std::uint64_t slot = 0;
  for (auto _ : state) {
    slot = (slot + 618'033'988'749) % 1'000'000'000'000;
    benchmark::DoNotOptimize(draws.draws_before(1, slot));
  }
}
BENCHMARK(BM_MixtureDraws_Before)->ArgName("datasets")->Arg(2)->Arg(16);

void BM_WeightedDraw_Draw(benchmark::State& state) {
  const WeightedDraw draw(uneven_weights(state.range(0)));
  std::uint64_t counter = 0;
  std::uint64_t sum = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < kBatch; ++i) sum += draw(mix64(++counter * 0x9e3779b97f4a7c15U));
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}
BENCHMARK(BM_WeightedDraw_Draw)->ArgName("n")->Arg(1000)->Arg(1'000'000)->Arg(10'000'000);

void BM_WeightedDraw_Make(benchmark::State& state) {
  const std::vector<double> weights = uneven_weights(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(WeightedDraw(weights).digest());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_WeightedDraw_Make)
    ->ArgName("n")
    ->Arg(1000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond);

void BM_Peer_RunningSums(benchmark::State& state) {
  std::vector<std::uint64_t> sums;
  std::uint64_t total = 0;
  for (const double weight : uneven_weights(state.range(0))) {
    sums.push_back(total += static_cast<std::uint64_t>(weight));
  }
  std::uint64_t counter = 0;
  std::uint64_t sum = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      const std::uint64_t u = multiply_high(mix64(++counter * 0x9e3779b97f4a7c15U), total);
      sum +=
          static_cast<std::uint64_t>(std::upper_bound(sums.begin(), sums.end(), u) - sums.begin());
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}
BENCHMARK(BM_Peer_RunningSums)->ArgName("n")->Arg(1000)->Arg(1'000'000)->Arg(10'000'000);

}  // namespace
}  // namespace shardwise::detail

BENCHMARK_MAIN();
