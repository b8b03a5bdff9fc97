// A shard cache of 10, 1,000 or 100,000 shards, each one block on the disk.
//
//   BM_ShardCache_Open             opens it
//   BM_ShardCache_FetchThatFits    fetches a shard from a file, within the budget
//   BM_ShardCache_FetchThatEvicts  the same, and evicts as much; the cost of listing the cache is
//                                  spread over the fetches until the next listing
//   BM_Bare_List                   the limit of opening: readdir(), and fstatat() for each shard
//   BM_Bare_Fetch                  the limit of fetching: makes both files in such a directory,
//                                  syncs and renames one of them, syncs the directory
//   BM_Bare_FetchThatEvicts        the same, and unlinks both files of another shard; lists the
//                                  directory as rarely as the cache does
//
// SHARDWISE_BENCH_DIR is the cache's folder. A fetch ends with two syncs, so its time depends on
// the disk. The page cache is warm, since each cache was just made.
#include <benchmark/benchmark.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"
#include "storage/eviction.h"

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

/// A new cache filled with this many shards.
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

/// Lists the directory. Returns the bytes of all shards.
std::uint64_t list_bare() {
  std::uint64_t bytes = 0;
  DIR* const shards = ::opendir((folder() + "/shards").c_str());
  while (const dirent* entry = ::readdir(shards)) {
    if (!std::string_view(entry->d_name).ends_with(".tar")) continue;
    struct stat st {};
    if (::fstatat(::dirfd(shards), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
      bytes += static_cast<std::uint64_t>(st.st_size);
    }
  }
  ::closedir(shards);
  return bytes;
}

void BM_Bare_List(benchmark::State& state) {
  const FilledCache filled(static_cast<std::uint64_t>(state.range(0)), 1);
  for (auto _ : state) benchmark::DoNotOptimize(list_bare());
}

std::string bare_path(std::uint64_t number, const char* suffix) {
  return folder() + "/shards/" + CacheAccess::name_of({.source = {.url = std::to_string(number)}}) +
         suffix;
}

/// Makes both files of a shard in the same steps as a fetch.
void make_bare(std::uint64_t number, int shards) {
  const std::string bytes(kShardBytes, 'x');
  const auto make = [&](const std::string& path, bool is_synced) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (::write(file, bytes.data(), bytes.size()) < 0 || (is_synced && ::fsync(file) != 0)) {
      std::abort();
    }
    ::close(file);
  };
  const std::string path = bare_path(number, ".tar");
  make(path + ".tmp", true);
  make(bare_path(number, ".json"), false);
  if (::rename((path + ".tmp").c_str(), path.c_str()) != 0 || ::fsync(shards) != 0) std::abort();
}

/// @param evict  called with the number of earlier fetches.
template <class Evict>
void fetch_bare(benchmark::State& state, const Evict& evict) {
  const auto num_shards = static_cast<std::uint64_t>(state.range(0));
  const FilledCache filled(num_shards, 1);
  const int shards = ::open((folder() + "/shards").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  std::uint64_t number = 0;
  for (auto _ : state) {
    evict(number);
    make_bare(num_shards + number++, shards);
  }
  ::close(shards);
}

void BM_Bare_Fetch(benchmark::State& state) {
  fetch_bare(state, [](std::uint64_t) {});
}

void BM_Bare_FetchThatEvicts(benchmark::State& state) {
  // A listing evicts one shard for the new shard, and further shards down to the low-water mark.
  const auto num_shards = static_cast<std::uint64_t>(state.range(0));
  const std::uint64_t fetches_a_listing = 1 + low_water_bytes(num_shards);
  fetch_bare(state, [&](std::uint64_t number) {
    if (number % fetches_a_listing == 0) benchmark::DoNotOptimize(list_bare());
    ::unlink(bare_path(number, ".tar").c_str());
    ::unlink(bare_path(number, ".json").c_str());
  });
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
BENCHMARK(BM_Bare_List)->Apply(sizes);
BENCHMARK(BM_Bare_Fetch)->Apply(sizes)->Iterations(1000);
BENCHMARK(BM_Bare_FetchThatEvicts)->Apply(sizes)->Iterations(1000);

}  // namespace
}  // namespace shardwise::bench

BENCHMARK_MAIN();
