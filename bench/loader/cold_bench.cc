// Raw bytes through the loader from cold storage: samples of 1,000, 80,000 and 1,000,000 bytes, in
// chunks of 1,000 samples and in fully random order. Each iteration evicts the shards from the page
// cache, and then reads an epoch over 40,000 samples or 320 MB, whichever is less.
//
//   Pread   the limit: one pread() per sample at known offsets, with a thread for each read in
//           flight, like fio --ioengine=psync --numjobs=N
//   Samples copies data[i], with the same number of threads; only the kernel reads ahead, around
//           each page
//   Loader  batches of 64 rows, a bytes column, with N threads
//
// A host often caches a virtual disk. Therefore compare rows of one run that take turns:
//
//   cold_bench --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
//
// SHARDWISE_BENCH_SAMPLES reduces the fixtures; SHARDWISE_BENCH_DIR is their folder, on the disk to
// be measured.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "data/dataset_access.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sampler.h"
#include "support/fixtures.h"

namespace shardwise::bench {
namespace {

constexpr std::uint64_t kMaxSamples = 40'000;
constexpr std::uint64_t kMaxBytes = 320'000'000;
constexpr std::uint64_t kBatchSize = 64;

struct Place {
  std::size_t shard;
  std::uint64_t offset;
};

struct Fixture {
  Fixture(std::uint64_t field_bytes, bool in_chunks)
      : set(cold_shards(field_bytes)), index(set.dir + "/train.idx") {
    build_index(index, set.shards);
    const auto all = Dataset::open(index);
    const std::uint64_t chunk = in_chunks ? std::min<std::uint64_t>(1000, all.size()) : all.size();
    order = {.seed = 1, .kind = Chunked{.chunk_size = chunk, .window = 1}};
    const std::uint64_t count = std::min({kMaxSamples, kMaxBytes / field_bytes, all.size()});
    const auto some = make_sampler(all, order, {});
    while (chosen.size() < count) chosen.push_back(*some->next());
    const Dataset data = open();
    if (!in_chunks) order.kind = Chunked{.chunk_size = data.size(), .window = 1};
    const auto sampler = make_sampler(data, order, {});
    const auto records = DatasetAccess::records(data);
    while (const auto sample = sampler->next()) {
      const std::uint64_t number = data.number_in_index(*sample);
      const std::uint64_t shard = data.index().shard_of(number);
      const auto members = records->of(shard).members(
          static_cast<std::uint32_t>(number - data.index().first_sample(shard)));
      places.push_back({shard, members.front().data_offset()});
    }
  }

  /// Opens the samples to read.
  Dataset open() const { return Dataset::open(index).subset(chosen); }

  /// Evicts the shards from the page cache. REQUIRES: no process has them mapped.
  void forget() const {
    for (const std::string& shard : set.shards) {
      const File file = File::open_read(shard);
      if (::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED) != 0) std::abort();
    }
  }

  ShardSet set;
  std::string index;
  Order order;
  std::vector<std::uint64_t> chosen;
  std::vector<Place> places;  // in the epoch's order
};

void report(benchmark::State& state, const Fixture& fixture) {
  const auto samples = state.iterations() * static_cast<std::int64_t>(fixture.places.size());
  state.SetItemsProcessed(samples);
  state.SetBytesProcessed(samples * static_cast<std::int64_t>(fixture.set.field_bytes));
}

/// Calls read(at, bytes) for every sample of the epoch, in order, with `in_flight` threads.
template <class Read>
void read_all(std::int64_t in_flight, const Fixture& fixture, const Read& read) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < in_flight; ++i) {
    threads.emplace_back([&] {
      std::string bytes(fixture.set.field_bytes, '\0');
      for (std::size_t at = 0; (at = next++) < fixture.places.size();) {
        read(at, bytes);
        benchmark::DoNotOptimize(bytes.data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void pread_all(benchmark::State& state, const Fixture& fixture) {
  std::vector<File> files;
  for (const std::string& shard : fixture.set.shards) files.push_back(File::open_read(shard));
  for (auto _ : state) {
    state.PauseTiming();
    fixture.forget();
    state.ResumeTiming();
    read_all(state.range(0), fixture, [&](std::size_t at, std::string& bytes) {
      const Place& place = fixture.places[at];
      files[place.shard].read_at(place.offset, bytes.data(), bytes.size());
    });
  }
  report(state, fixture);
}

void view_all(benchmark::State& state, const Fixture& fixture) {
  for (auto _ : state) {
    state.PauseTiming();
    auto data = std::make_unique<Dataset>(fixture.open());
    const auto sampler = make_sampler(*data, fixture.order, {});
    std::vector<std::uint64_t> order(fixture.places.size());
    sampler->next_batch(order);
    fixture.forget();
    state.ResumeTiming();
    read_all(state.range(0), fixture, [&](std::size_t at, std::string& bytes) {
      const Sample sample = (*data)[order[at]];
      sample[fixture.set.field].copy(bytes.data(), bytes.size());
    });
    state.PauseTiming();
    data.reset();  // this also unmaps the shards
    state.ResumeTiming();
  }
  report(state, fixture);
}

void load_all(benchmark::State& state, const Fixture& fixture) {
  for (auto _ : state) {
    state.PauseTiming();
    auto data = std::make_unique<Dataset>(fixture.open());
    auto loader = std::make_unique<Loader>(
        *data, Loader::Options{.columns = {columns::bytes(fixture.set.field)},
                               .order = fixture.order,
                               .batch_size = kBatchSize,
                               .threads = static_cast<unsigned>(state.range(0))});
    fixture.forget();
    state.ResumeTiming();
    std::uint64_t samples = 0;
    while (const auto batch = loader->next()) samples += batch->size();
    if (samples != fixture.places.size()) state.SkipWithError("samples are missing");
    state.PauseTiming();
    loader.reset();
    data.reset();  // this also unmaps the shards
    state.ResumeTiming();
  }
  report(state, fixture);
}

void register_rows(std::uint64_t field_bytes, const char* subject, bool in_chunks) {
  const auto fixture = std::make_shared<std::unique_ptr<Fixture>>();
  const auto add = [&](const char* row, void (*run)(benchmark::State&, const Fixture&)) {
    const std::string name =
        std::string("BM_Cold") + subject + (in_chunks ? "_Chunks_" : "_Random_") + row;
    return benchmark::RegisterBenchmark(name.c_str(),
                                        [=](benchmark::State& state) {
                                          if (!*fixture)
                                            *fixture =
                                                std::make_unique<Fixture>(field_bytes, in_chunks);
                                          run(state, **fixture);
                                        })
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond)
        ->Iterations(1);
  };
  add("Pread", pread_all)->ArgName("in_flight")->Arg(1)->Arg(4)->Arg(32);
  add("Samples", view_all)->ArgName("in_flight")->Arg(1)->Arg(4);
  add("Loader", load_all)->ArgName("threads")->Arg(0)->Arg(1)->Arg(2)->Arg(4);
}

}  // namespace
}  // namespace shardwise::bench

int main(int argc, char** argv) {
  using namespace shardwise::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (const bool in_chunks : {true, false}) {
    register_rows(1'000, "1KB", in_chunks);
    register_rows(80'000, "80KB", in_chunks);
    register_rows(1'000'000, "1MB", in_chunks);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
