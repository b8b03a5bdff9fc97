// Joins of 1 M tiny samples (300 bytes, 100 shards) with 1 M captions (300 bytes, 100 shards). The
// keys come in the same order, or scattered. The page cache is warm.
//
//   BM_Join_*                join() itself; the counter "MB" is the memory that the result takes
//   BM_JoinedView_*          one sample: find its bytes, read the first byte of a field per side
//     Plain                  the limit to compare with: one dataset, one field
//     Two                    data[i] of both datasets, by the same number: a join by hand
//     Joined                 data[i] of the join
//     Samples                data.samples() of 65,536 numbers at a time; Plain* of one dataset
//
// SHARDWISE_BENCH_SAMPLES reduces the fixtures; SHARDWISE_BENCH_DIR is their folder.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "support/fixtures.h"

namespace shardwise::bench {
namespace {

Dataset open(const ShardSet& set) {
  const std::string path = set.dir + "/train.idx";
  build_index(path, set.shards);
  return Dataset::open(path);
}

struct Fixture {
  explicit Fixture(bool in_order)
      : first(open(tiny_shards())),
        other(open(caption_shards(in_order))),
        joined(first.join(other)),
        shuffled(joined.size()),
        ascending(joined.size()) {
    std::iota(ascending.begin(), ascending.end(), std::uint64_t{0});
    shuffled = ascending;
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(1));
    std::size_t sum = 0;  // map all pages
    for (std::uint64_t i = 0; i < joined.size(); ++i) {
      const Sample sample = joined[i];
      sum += static_cast<unsigned char>(sample["bin"][0]) + sample["txt"].size();
    }
    benchmark::DoNotOptimize(sum);
  }

  Dataset first;
  Dataset other;
  Dataset joined;
  std::vector<std::uint64_t> shuffled;
  std::vector<std::uint64_t> ascending;
};

const Fixture& fixture(bool in_order) {
  static const Fixture same(true);
  if (in_order) return same;
  static const Fixture mixed(false);
  return mixed;
}

void BM_Join(benchmark::State& state) {
  const Fixture& t = fixture(state.range(0) != 0);
  double bytes = 0;
  for (auto _ : state) {
    const auto before = mallinfo2();
    const Dataset joined = t.first.join(t.other);
    const auto after = mallinfo2();
    bytes = static_cast<double>(after.uordblks + after.hblkhd) -
            static_cast<double>(before.uordblks + before.hblkhd);
    if (joined.size() != t.first.size()) state.SkipWithError("not all samples match");
  }
  state.counters["MB"] = bytes / 1e6;
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(t.first.size()));
}

/// Times first_byte_of(sample) over an order.
template <class View>
void views(benchmark::State& state, const View& first_byte_of) {
  const Fixture& t = fixture(state.range(0) != 0);
  const std::vector<std::uint64_t>& order = state.range(1) != 0 ? t.shuffled : t.ascending;
  std::size_t at = 0;
  unsigned sum = 0;
  for (auto _ : state) {
    sum += static_cast<unsigned>(first_byte_of(t, order[at]));
    if (++at == order.size()) at = 0;
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations());
}

void BM_JoinedView_Plain(benchmark::State& state) {
  views(state, [](const Fixture& t, std::uint64_t i) {
    const Sample sample = t.first[i];
    return sample["bin"][0];
  });
}

void BM_JoinedView_Two(benchmark::State& state) {
  views(state, [](const Fixture& t, std::uint64_t i) {
    const Sample sample = t.first[i];
    const Sample other = t.other[i];
    return sample["bin"][0] + other["txt"][0];
  });
}

void BM_JoinedView_Joined(benchmark::State& state) {
  views(state, [](const Fixture& t, std::uint64_t i) {
    const Sample sample = t.joined[i];
    return sample["bin"][0] + sample["txt"][0];
  });
}

/// Times data.samples().
template <class View>
void samples(benchmark::State& state, const Dataset& data, const View& first_byte_of) {
  constexpr std::size_t kRun = 65536;
  const Fixture& t = fixture(state.range(0) != 0);
  const std::vector<std::uint64_t>& order = state.range(1) != 0 ? t.shuffled : t.ascending;
  const std::size_t length = std::min(kRun, order.size());
  std::size_t at = 0;
  unsigned sum = 0;
  while (state.KeepRunningBatch(static_cast<std::int64_t>(length))) {
    if (order.size() - at < length) at = 0;
    for (const Sample& sample : data.samples(std::span(order).subspan(at, length))) {
      sum += static_cast<unsigned>(first_byte_of(sample));
    }
    at += length;
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations());
}

void BM_JoinedView_PlainSamples(benchmark::State& state) {
  samples(state, fixture(state.range(0) != 0).first,
          [](const Sample& sample) { return sample["bin"][0]; });
}

void BM_JoinedView_Samples(benchmark::State& state) {
  samples(state, fixture(state.range(0) != 0).joined,
          [](const Sample& sample) { return sample["bin"][0] + sample["txt"][0]; });
}

void orders(benchmark::internal::Benchmark* row) {
  row->ArgNames({"same_order", "random"})->ArgsProduct({{1, 0}, {0, 1}})->UseRealTime();
}

BENCHMARK(BM_Join)->ArgName("same_order")->Arg(1)->Arg(0)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_JoinedView_Plain)->Apply(orders);
BENCHMARK(BM_JoinedView_Two)->Apply(orders);
BENCHMARK(BM_JoinedView_Joined)->Apply(orders);
BENCHMARK(BM_JoinedView_PlainSamples)->Apply(orders);
BENCHMARK(BM_JoinedView_Samples)->Apply(orders);

}  // namespace
}  // namespace shardwise::bench

BENCHMARK_MAIN();
