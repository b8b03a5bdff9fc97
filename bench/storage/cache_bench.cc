// A shard cache that holds 10 shards, 1,000, and 100,000, of one block each.
//
//   BM_ShardCache_Open             opens it
//   BM_ShardCache_FetchThatFits    fetches a shard of a file into it, within the budget
//   BM_ShardCache_FetchThatEvicts  the same, where as much must leave: with the listings, spread
//                                  over the fetches that do without one
//
// SHARDWISE_BENCH_DIR says where it lies. A fetch ends with two syncs, so the disk counts.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"

namespace shardwise::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kShardBytes = 512;

std::string folder() {
  const char* const set = std::getenv("SHARDWISE_BENCH_DIR");
  return (set != nullptr ? std::string(set) : fs::temp_directory_path().string()) +
         "/shardwise-cache-bench";
}

void write(const std::string& path) { std::ofstream(path) << std::string(kShardBytes, 'x'); }

/// A cache with this many shards, made anew.
class FilledCache {
 public:
  FilledCache(std::uint64_t num_shards, std::uint64_t budget_shards)
      : options_{.directory = folder(), .budget_bytes = budget_shards * kShardBytes} {
    fs::remove_all(folder());
    static_cast<void>(ShardCache::open(options_));
    for (std::uint64_t i = 0; i < num_shards; ++i) {
      const std::string name = CacheAccess::name_of({.source = {.url = std::to_string(i)}});
      write(folder() + "/shards/" + name + ".tar");
      std::ofstream(folder() + "/shards/" + name + ".json");
    }
  }
  ~FilledCache() { fs::remove_all(folder()); }
  FilledCache(const FilledCache&) = delete;
  FilledCache& operator=(const FilledCache&) = delete;

  std::shared_ptr<ShardCache> open() const { return ShardCache::open(options_); }

 private:
  ShardCache::Options options_;
};

void BM_ShardCache_Open(benchmark::State& state) {
  const auto num_shards = static_cast<std::uint64_t>(state.range(0));
  const FilledCache filled(num_shards, 2 * num_shards);
  for (auto _ : state) benchmark::DoNotOptimize(filled.open());
}

void fetch(benchmark::State& state, std::uint64_t budget_shards) {
  const FilledCache filled(static_cast<std::uint64_t>(state.range(0)), budget_shards);
  const auto cache = filled.open();
  std::uint64_t number = 0;
  for (auto _ : state) {
    const std::string source = folder() + "/source" + std::to_string(number++);
    state.PauseTiming();
    write(source);
    state.ResumeTiming();
    benchmark::DoNotOptimize(
        CacheAccess::get(*cache, {.source = {.url = source, .size_bytes = kShardBytes}}));
  }
  state.counters["evicted"] = static_cast<double>(cache->stats().evicted);
}

void BM_ShardCache_FetchThatFits(benchmark::State& state) {
  fetch(state, static_cast<std::uint64_t>(state.range(0)) + 1'000'000);
}

void BM_ShardCache_FetchThatEvicts(benchmark::State& state) {
  fetch(state, static_cast<std::uint64_t>(state.range(0)));
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("shards")
      ->Arg(10)
      ->Arg(1000)
      ->Arg(100'000)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}
BENCHMARK(BM_ShardCache_Open)->Apply(sizes);
BENCHMARK(BM_ShardCache_FetchThatFits)->Apply(sizes)->Iterations(1000);
BENCHMARK(BM_ShardCache_FetchThatEvicts)->Apply(sizes)->Iterations(1000);

}  // namespace
}  // namespace shardwise::bench

BENCHMARK_MAIN();
