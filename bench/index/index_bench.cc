// Indexing: 1 M samples of two tiny members in 100 shards, 2 GB, page cache warm.
//
//   BM_IndexScan_HeaderWalk    the limit: map each shard, follow the size fields, unmap
//   BM_IndexScan_Libarchive    the peer: libarchive's archive_read_next_header on the same maps
//   BM_IndexScan_ScanTar       scan_tar alone
//   BM_IndexBuild/threads:N    build_index into a fresh index, both files synced to the disk
//   BM_IndexBuild_Unchanged    build_index again when nothing changed
//   BM_IndexOpen               Index::open
//
// Counters: items_per_second counts members; x_walk is the time relative to the fastest header walk
// of the same run. SHARDWISE_BENCH_SAMPLES reduces the fixture; SHARDWISE_BENCH_DIR is its folder.
// The index is written beside the fixture, so that BM_IndexBuild includes that disk's sync.
#include <archive.h>
#include <archive_entry.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/mapped_file.h"
#include "index/header_walk.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"
#include "support/fixtures.h"
#include "tar/tar_scanner.h"

namespace shardwise::bench {
namespace {

namespace fs = std::filesystem;

double fastest_walk_seconds = std::numeric_limits<double>::infinity();

const ShardSet& fixture() {
  static const ShardSet set = [] {
    ShardSet made = tiny_shards();
    warm_page_cache(made);
    return made;
  }();
  return set;
}

/// Times each iteration of a row, to compare the fastest with the fastest header walk.
class RowTimer {
 public:
  void start() { start_ = std::chrono::steady_clock::now(); }
  void stop(benchmark::State& state) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    fastest_ = std::min(fastest_, took.count());
    state.SetIterationTime(took.count());
  }
  double fastest_seconds() const { return fastest_; }
  void report(benchmark::State& state) const {
    state.SetItemsProcessed(state.iterations() *
                            static_cast<std::int64_t>(2 * fixture().num_samples));
    state.counters["x_walk"] = fastest_ / fastest_walk_seconds;
  }

 private:
  std::chrono::steady_clock::time_point start_;
  double fastest_ = std::numeric_limits<double>::infinity();
};

void require_members(std::uint64_t found) {
  if (found != 2 * fixture().num_samples) throw std::logic_error("not all members were found");
}

void BM_IndexScan_HeaderWalk(benchmark::State& state) {
  fixture();
  RowTimer timer;
  for (auto _ : state) {
    timer.start();
    std::uint64_t members = 0;
    for (const std::string& shard : fixture().shards)
      members += walk_headers(MappedFile::open(shard).bytes());
    timer.stop(state);
    require_members(members);
  }
  fastest_walk_seconds = std::min(fastest_walk_seconds, timer.fastest_seconds());
  timer.report(state);
}

void BM_IndexScan_Libarchive(benchmark::State& state) {
  RowTimer timer;
  for (auto _ : state) {
    timer.start();
    std::uint64_t members = 0;
    for (const std::string& shard : fixture().shards) {
      const MappedFile file = MappedFile::open(shard);
      archive* reader = archive_read_new();
      archive_read_support_format_tar(reader);
      archive_read_open_memory(reader, file.bytes().data(), file.bytes().size());
      archive_entry* entry = nullptr;
      while (archive_read_next_header(reader, &entry) == ARCHIVE_OK) ++members;
      archive_read_free(reader);
    }
    timer.stop(state);
    require_members(members);
  }
  timer.report(state);
}

void BM_IndexScan_ScanTar(benchmark::State& state) {
  RowTimer timer;
  for (auto _ : state) {
    timer.start();
    std::uint64_t members = 0;
    for (const std::string& shard : fixture().shards) {
      const MappedFile file = MappedFile::open(shard);
      scan_tar(file.bytes(), shard, {}, [&](const TarMember&) { ++members; });
    }
    timer.stop(state);
    require_members(members);
  }
  timer.report(state);
}

/// Returns a path for an index in an empty folder beside the fixture.
std::string fresh_index_path() {
  const std::string dir = fixture_dir() + "/index_bench";
  fs::remove_all(dir);
  fs::create_directories(dir);
  return dir + "/train.idx";
}

void BM_IndexBuild(benchmark::State& state) {
  RowTimer timer;
  for (auto _ : state) {
    const std::string path = fresh_index_path();
    timer.start();
    const BuildReport report =
        build_index(path, fixture().shards, {.threads = static_cast<unsigned>(state.range(0))});
    timer.stop(state);
    require_members(report.summary.num_members);
  }
  timer.report(state);
}

void BM_IndexBuild_Unchanged(benchmark::State& state) {
  const std::string path = fresh_index_path();
  build_index(path, fixture().shards);
  RowTimer timer;
  for (auto _ : state) {
    timer.start();
    const BuildReport report = build_index(path, fixture().shards);
    timer.stop(state);
    if (report.shards_scanned != 0) throw std::logic_error("something was scanned again");
  }
  timer.report(state);
}

void BM_IndexOpen(benchmark::State& state) {
  const std::string path = fresh_index_path();
  build_index(path, fixture().shards);
  for (auto _ : state) benchmark::DoNotOptimize(Index::open(path));
}

BENCHMARK(BM_IndexScan_HeaderWalk)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_IndexScan_Libarchive)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_IndexScan_ScanTar)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_IndexBuild)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_IndexBuild_Unchanged)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_IndexOpen)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shardwise::bench

BENCHMARK_MAIN();
