// A large index: SHARDWISE_BENCH_SCALE samples (default 10,000,000) of two members, in shards of
// 100,000 samples. The library's writers make only the two files of the index. No shards exist, and
// no row needs them.
//
//   BM_ScaleOpen        Index::open; private_mib is the private memory that this takes
//   BM_ScaleShardOf     sample -> shard
//   BM_ScaleFind        a random key -> sample
//   BM_ScaleFindMiss    a key that does not exist
//
// Counters: record_bytes_a_member is the table's bytes per member, without keys. lookup_bytes_a_key
// is the lookup's bytes per key, without the key itself.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/hasher.h"
#include "index/catalogue.h"
#include "index/offset_table.h"
#include "index/segment.h"
#include "index/table_writer.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/index.h"
#include "support/fixtures.h"

namespace shardwise::bench {
namespace {

constexpr std::uint64_t kShardSamples = 100'000;

std::uint64_t num_samples() {
  const char* text = std::getenv("SHARDWISE_BENCH_SCALE");
  const std::uint64_t wanted = text == nullptr ? 10'000'000 : std::strtoull(text, nullptr, 10);
  return (wanted + kShardSamples - 1) / kShardSamples * kShardSamples;
}

void make_index(const std::string& path) {
  std::fprintf(stderr, "making %s ...\n", path.c_str());
  TableWriter table(path);
  CatalogueWriter catalogue(path, "");
  CatalogueMeta meta;
  for (std::uint64_t first = 0; first < num_samples(); first += kShardSamples) {
    SegmentBuilder builder("simulated");
    std::vector<std::uint64_t> hashes;
    for (std::uint64_t i = 0; i < kShardSamples; ++i) {
      const std::string key = key_of(first + i);
      builder.begin_sample(key);
      builder.add_member("jpg", i * 8192 + 512, 6000);
      builder.add_member("cls", i * 8192 + 7168, 1);
      hashes.push_back(hash64(key));
    }
    const std::string segment = builder.finish();
    SegmentHeader header;
    std::memcpy(&header, segment.data(), sizeof header);
    table.append(segment, hashes);
    Index::Shard row;
    row.url = "train-" + std::to_string(first / kShardSamples) + ".tar";
    row.size_bytes = row.expanded_bytes = kShardSamples * 8192 + 1024;
    row.first_sample = first;
    row.num_samples = header.num_samples;
    row.num_members = header.num_members;
    row.segment_checksum = header.checksum;
    catalogue.add_shard(row);
  }
  table.finish();
  table.commit();
  meta.table_file = table.path().substr(table.path().rfind('/') + 1);
  meta.table_checksum = table.header().header_checksum;
  meta.summary.num_shards = table.header().num_shards;
  meta.summary.num_samples = table.header().num_samples;
  meta.summary.num_members = table.header().num_members;
  catalogue.finish(meta);
  catalogue.commit();
}

const std::string& index_path() {
  static const std::string path = [] {
    std::filesystem::create_directories(fixture_dir());
    std::string made = fixture_dir() + "/scale-v" + std::to_string(kIndexVersion) + "-" +
                       std::to_string(num_samples()) + ".idx";
    if (!std::filesystem::exists(made)) make_index(made);
    return made;
  }();
  return path;
}

double private_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) / 1024;
  }
  return 0;
}

void BM_ScaleOpen(benchmark::State& state) {
  index_path();
  const double before = private_mib();
  double most = 0;
  for (auto _ : state) {
    const auto index = Index::open(index_path());
    benchmark::DoNotOptimize(index->size());
    state.PauseTiming();
    most = std::max(most, private_mib() - before);
    state.ResumeTiming();
  }
  const auto index = Index::open(index_path());
  TableHeader header{};
  for (const auto& entry : std::filesystem::directory_iterator(fixture_dir())) {
    const std::string name = entry.path().string();
    if (!name.starts_with(index_path() + ".") || !name.ends_with(".table")) continue;
    std::ifstream(name, std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
  }
  state.counters["samples"] = static_cast<double>(index->size());
  state.counters["private_mib"] = most;
  const auto samples = static_cast<double>(header.num_samples);
  const auto lookup_bytes = static_cast<double>(header.file_bytes - header.keys_offset);
  const double key_bytes = static_cast<double>(key_of(0).size()) * samples;
  state.counters["record_bytes_a_member"] =
      (static_cast<double>(header.file_bytes) - lookup_bytes - key_bytes) /
      static_cast<double>(header.num_members);
  state.counters["lookup_bytes_a_key"] = lookup_bytes / samples;
}
BENCHMARK(BM_ScaleOpen)->Unit(benchmark::kMicrosecond);

void BM_ScaleShardOf(benchmark::State& state) {
  const auto index = Index::open(index_path());
  std::mt19937_64 random(1);
  for (auto _ : state) benchmark::DoNotOptimize(index->shard_of(random() % index->size()));
}
BENCHMARK(BM_ScaleShardOf);

void BM_ScaleFind(benchmark::State& state) {
  const auto index = Index::open(index_path());
  std::mt19937_64 random(1);
  for (auto _ : state) {
    state.PauseTiming();
    const std::uint64_t sample = random() % index->size();
    const std::string key = key_of(sample);
    state.ResumeTiming();
    if (index->find(key) != sample) state.SkipWithError("another sample was found");
  }
}
BENCHMARK(BM_ScaleFind)->Iterations(20000);

void BM_ScaleFindMiss(benchmark::State& state) {
  const auto index = Index::open(index_path());
  std::uint64_t i = 0;
  for (auto _ : state) {
    if (index->find("none-" + std::to_string(++i))) state.SkipWithError("found");
  }
}
BENCHMARK(BM_ScaleFindMiss);

}  // namespace
}  // namespace shardwise::bench

BENCHMARK_MAIN();
