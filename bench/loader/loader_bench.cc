// Raw bytes through the loader: 1 M tiny samples (300 bytes, 100 shards) and 10,000 images (80,000
// bytes, 10 shards). The page cache is warm. The order is a training run's, in chunks.
//
//   Memcpy       the limit: copies the same bytes in the same order from the mapped shards to one
//                batch's buffer, at known addresses, with one thread
//   DataLoop     for (i : order) copy the bytes of data[i]: what a user writes without a loader
//   Loader       batches of 256 rows, a bytes column, with N threads
//   *Label       DataLoop and Loader with the label, an integer, in addition to the bytes
//
// SHARDWISE_BENCH_SAMPLES reduces the fixtures; SHARDWISE_BENCH_DIR is their folder.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sampler.h"
#include "support/fixtures.h"

namespace shardwise::bench {
namespace {

constexpr std::uint64_t kBatchSize = 256;

struct Fixture {
  explicit Fixture(const ShardSet& shard_set) : set(shard_set) {
    const std::string path = set.dir + "/train.idx";
    build_index(path, set.shards);
    data = std::make_unique<Dataset>(Dataset::open(path));
    ChunkedSampler order(*data, {.seed = 1});
    std::size_t sum = 0;
    while (const auto sample = order.next()) {
      held.push_back((*data)[*sample]);
      const std::string_view bytes = held.back()[set.field];
      addresses.push_back(bytes.data());
      for (std::size_t at = 0; at < bytes.size(); at += 4096) {
        sum += static_cast<unsigned char>(bytes[at]);
      }
    }
    benchmark::DoNotOptimize(sum);
  }

  ShardSet set;
  std::unique_ptr<Dataset> data;
  std::vector<Sample> held;            // so that the shards stay mapped
  std::vector<const char*> addresses;  // in the epoch's order
};

const Fixture& tiny() {
  static const Fixture fixture(tiny_shards());
  return fixture;
}

const Fixture& images() {
  static const Fixture fixture(image_shards());
  return fixture;
}

using GetFixture = const Fixture& (*)();

void report(benchmark::State& state, const Fixture& fixture) {
  const auto samples = state.iterations() * static_cast<std::int64_t>(fixture.set.num_samples);
  state.SetItemsProcessed(samples);
  state.SetBytesProcessed(samples * static_cast<std::int64_t>(fixture.set.field_bytes));
}

void BM_Memcpy(benchmark::State& state, GetFixture get_fixture) {
  const Fixture& fixture = get_fixture();
  std::vector<char> buffer(kBatchSize * fixture.set.field_bytes);
  for (auto _ : state) {
    std::size_t row = 0;
    for (const char* address : fixture.addresses) {
      std::memcpy(buffer.data() + row * fixture.set.field_bytes, address, fixture.set.field_bytes);
      row = (row + 1) % kBatchSize;
    }
    benchmark::ClobberMemory();
  }
  report(state, fixture);
}

void loop(benchmark::State& state, const Fixture& fixture, bool has_label) {
  const Dataset& data = *fixture.data;
  std::vector<char> buffer(kBatchSize * fixture.set.field_bytes);
  std::vector<std::int64_t> labels(kBatchSize);
  for (auto _ : state) {
    ChunkedSampler order(data, {.seed = 1});
    std::size_t row = 0;
    while (const auto i = order.next()) {
      const Sample sample = data[*i];
      const std::string_view bytes = sample[fixture.set.field];
      std::memcpy(buffer.data() + row * fixture.set.field_bytes, bytes.data(), bytes.size());
      if (has_label) labels[row] = sample.integer("cls");
      row = (row + 1) % kBatchSize;
    }
    benchmark::ClobberMemory();
  }
  report(state, fixture);
}

void load(benchmark::State& state, const Fixture& fixture, bool has_label) {
  std::vector<Column> columns = {columns::bytes(fixture.set.field)};
  if (has_label) columns.push_back(columns::integer("cls"));
  Loader loader(*fixture.data, {.columns = std::move(columns),
                                .order = {.seed = 1},
                                .batch_size = kBatchSize,
                                .threads = static_cast<unsigned>(state.range(0))});
  for (auto _ : state) {
    loader.set_epoch(0);
    std::uint64_t bytes = 0;
    while (const auto batch = loader.next()) bytes += batch->arrays()[0].bytes().size();
    if (bytes != fixture.set.num_samples * fixture.set.field_bytes) {
      state.SkipWithError("bytes are missing");
    }
  }
  report(state, fixture);
}

void BM_DataLoop(benchmark::State& state, GetFixture fixture) { loop(state, fixture(), false); }
void BM_DataLoopLabel(benchmark::State& state, GetFixture fixture) { loop(state, fixture(), true); }
void BM_Loader(benchmark::State& state, GetFixture fixture) { load(state, fixture(), false); }
void BM_LoaderLabel(benchmark::State& state, GetFixture fixture) { load(state, fixture(), true); }

void register_rows(const std::string& subject, GetFixture get_fixture) {
  const auto add = [&](const char* row, void (*run)(benchmark::State&, GetFixture)) {
    return benchmark::RegisterBenchmark(("BM_" + subject + "_" + row).c_str(), run, get_fixture)
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("Memcpy", BM_Memcpy);
  add("DataLoop", BM_DataLoop);
  add("Loader", BM_Loader)->ArgName("threads")->Arg(0)->Arg(1)->Arg(2);
  add("DataLoopLabel", BM_DataLoopLabel);
  add("LoaderLabel", BM_LoaderLabel)->ArgName("threads")->Arg(0)->Arg(1)->Arg(2);
}

}  // namespace
}  // namespace shardwise::bench

int main(int argc, char** argv) {
  using namespace shardwise::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_rows("Tiny", tiny);
  register_rows("Image", images);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
