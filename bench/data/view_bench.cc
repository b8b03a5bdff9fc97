// Access to samples: 1 M tiny samples (300 bytes, 100 shards) and 10,000 images (80,000 bytes, 10
// shards). The page cache is warm, and all pages are mapped before the clock starts.
//
//   BM_TinyView_*, BM_ImageView_*   one random sample: find its bytes, read the first byte. All
//                                   rows use one order; each thread starts at another place in it
//     Bare       the limit: an array of offsets, and the mapped shards' addresses
//     Lmdb       the peer: mdb_get of the same bytes by an 8-byte integer key, one read transaction
//     Dataset    data[i], then the field by name
//     Samples    data.samples() of 65,536 numbers at a time, then the field by name
//     Gather     data.gather() of 512 numbers at a time: each copied, then its first byte read
//     FindByKey  data.find(key), then the field by name
//   BM_ImageEpoch_*                 all images in order, each hashed
//     PlainLoop  for (i...) work(data[i])
//
// SHARDWISE_BENCH_SAMPLES reduces the fixtures; SHARDWISE_BENCH_DIR is their folder.
#include <benchmark/benchmark.h>
#include <lmdb.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/hasher.h"
#include "base/mapped_file.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "support/fixtures.h"

namespace shardwise::bench {
namespace {

namespace fs = std::filesystem;

void require_lmdb(int code) {
  if (code != MDB_SUCCESS) throw std::runtime_error(std::string("lmdb: ") + mdb_strerror(code));
}

/// The payloads of a set of shards in LMDB, keyed by number.
class LmdbStore {
 public:
  LmdbStore(const ShardSet& set, const Dataset& data) {
    const std::string dir = set.dir + "/lmdb";
    const bool complete = fs::exists(dir + "/complete");
    if (!complete) fs::remove_all(dir);
    fs::create_directories(dir);
    require_lmdb(mdb_env_create(&env_));
    require_lmdb(mdb_env_set_mapsize(env_, std::size_t{1} << 36));
    if (!complete) {
      require_lmdb(mdb_env_open(env_, dir.c_str(), MDB_NOSYNC, 0644));
      fill(set, data);
      mdb_env_close(env_);
      fs::copy_file(set.dir + "/complete", dir + "/complete");
      require_lmdb(mdb_env_create(&env_));
      require_lmdb(mdb_env_set_mapsize(env_, std::size_t{1} << 36));
    }
    require_lmdb(mdb_env_open(env_, dir.c_str(), MDB_RDONLY | MDB_NOTLS, 0644));
  }
  ~LmdbStore() { mdb_env_close(env_); }
  LmdbStore(const LmdbStore&) = delete;
  LmdbStore& operator=(const LmdbStore&) = delete;

  /// A read transaction, for use in one thread.
  class Reader {
   public:
    explicit Reader(const LmdbStore& store) {
      require_lmdb(mdb_txn_begin(store.env_, nullptr, MDB_RDONLY, &txn_));
      require_lmdb(mdb_dbi_open(txn_, nullptr, MDB_INTEGERKEY, &dbi_));
    }
    ~Reader() { mdb_txn_commit(txn_); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    std::string_view get(std::uint64_t number) const {
      MDB_val key{sizeof number, &number};
      MDB_val value{};
      require_lmdb(mdb_get(txn_, dbi_, &key, &value));
      return {static_cast<const char*>(value.mv_data), value.mv_size};
    }

   private:
    MDB_txn* txn_ = nullptr;
    MDB_dbi dbi_ = 0;
  };

 private:
  void fill(const ShardSet& set, const Dataset& data) {
    MDB_txn* txn = nullptr;
    MDB_dbi dbi = 0;
    require_lmdb(mdb_txn_begin(env_, nullptr, 0, &txn));
    require_lmdb(mdb_dbi_open(txn, nullptr, MDB_INTEGERKEY | MDB_CREATE, &dbi));
    for (std::uint64_t i = 0; i < data.size(); ++i) {
      const Sample sample = data[i];
      const std::string_view bytes = sample[set.field];
      MDB_val key{sizeof i, &i};
      MDB_val value{bytes.size(), const_cast<char*>(bytes.data())};
      require_lmdb(mdb_put(txn, dbi, &key, &value, MDB_APPEND));
    }
    require_lmdb(mdb_txn_commit(txn));
  }

  MDB_env* env_ = nullptr;
};

/// State that the rows over one set of shards share.
struct Fixture {
  explicit Fixture(const ShardSet& shard_set)
      : set(shard_set), data(open(shard_set)), lmdb(shard_set, data), order(set.num_samples) {
    for (const std::string& shard : set.shards) maps.push_back(MappedFile::open(shard));
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
    for (std::uint64_t shard = 0; shard < data.index().num_shards(); ++shard) {
      const SegmentView segment = segment_of(data.index(), shard);
      for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
        places.push_back(
            {static_cast<std::uint32_t>(shard),
             static_cast<std::uint32_t>(segment.members(i)[0].data_offset() / kTarBlockBytes)});
      }
    }
    // Read every sample in every way, so that the page cache is warm and all pages are mapped.
    const LmdbStore::Reader reader(lmdb);
    for (std::uint64_t i = 0; i < set.num_samples; ++i) {
      const Sample sample = data[i];
      keys.emplace_back(sample.key());
      const Hash128 hash = hash128(sample[set.field]);
      if (hash128(reader.get(i)) != hash || hash128({address(i), set.field_bytes}) != hash ||
          data.get(keys.back()).index() != i) {
        throw std::logic_error("the rows do not read the same bytes");
      }
    }
  }

  static Dataset open(const ShardSet& set) {
    const std::string path = set.dir + "/train.idx";
    build_index(path, set.shards);
    return Dataset::open(path);
  }

  const char* address(std::uint64_t sample) const {
    return maps[places[sample].shard].bytes().data() + places[sample].block * kTarBlockBytes;
  }

  struct Place {
    std::uint32_t shard;
    std::uint32_t block;
  };

  ShardSet set;
  Dataset data;
  LmdbStore lmdb;
  std::vector<std::uint64_t> order;
  std::vector<MappedFile> maps;
  std::vector<Place> places;
  std::vector<std::string> keys;
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

/// Times `first_byte_of(sample)` over the shared random order.
template <class View>
void random_views(benchmark::State& state, const Fixture& fixture, View&& first_byte_of) {
  const std::vector<std::uint64_t>& order = fixture.order;
  const auto threads = static_cast<std::size_t>(state.threads());
  std::size_t at = order.size() * static_cast<std::size_t>(state.thread_index()) / threads;
  unsigned sum = 0;
  for (auto _ : state) {
    sum += static_cast<unsigned char>(first_byte_of(order[at]));
    if (++at == order.size()) at = 0;
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations());
}

void BM_View_Bare(benchmark::State& state, GetFixture get_fixture) {
  const Fixture& fixture = get_fixture();
  random_views(state, fixture, [&](std::uint64_t i) { return *fixture.address(i); });
}

void BM_View_Lmdb(benchmark::State& state, GetFixture get_fixture) {
  const Fixture& fixture = get_fixture();
  const LmdbStore::Reader reader(fixture.lmdb);
  random_views(state, fixture, [&](std::uint64_t i) { return reader.get(i)[0]; });
}

void BM_View_Dataset(benchmark::State& state, GetFixture get_fixture) {
  const Fixture& fixture = get_fixture();
  random_views(state, fixture, [&, field = fixture.set.field](std::uint64_t i) {
    const Sample sample = fixture.data[i];
    return sample[field][0];
  });
}

/// Returns runs of the shared random order, endlessly. Each thread starts at another place in it.
class Runs {
 public:
  Runs(const benchmark::State& state, const std::vector<std::uint64_t>& order, std::size_t length)
      : order_(order),
        length_(std::min(length, order.size())),
        at_(order.size() * static_cast<std::size_t>(state.thread_index()) /
            static_cast<std::size_t>(state.threads())) {}

  [[nodiscard]] std::size_t length() const { return length_; }
  std::span<const std::uint64_t> next() {
    if (order_.size() - at_ < length_) at_ = 0;
    return {order_.data() + std::exchange(at_, at_ + length_), length_};
  }

 private:
  const std::vector<std::uint64_t>& order_;
  const std::size_t length_;
  std::size_t at_;
};

void BM_View_Samples(benchmark::State& state, GetFixture get_fixture) {
  const Fixture& fixture = get_fixture();
  Runs runs(state, fixture.order, 65536);
  unsigned sum = 0;
  while (state.KeepRunningBatch(static_cast<std::int64_t>(runs.length()))) {
    for (const Sample& sample : fixture.data.samples(runs.next())) {
      sum += static_cast<unsigned char>(sample[fixture.set.field][0]);
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations());
}

void BM_View_Gather(benchmark::State& state, GetFixture get_fixture) {
  const Fixture& fixture = get_fixture();
  Runs runs(state, fixture.order, 512);
  std::vector<std::int64_t> offsets;
  std::vector<std::byte> bytes;
  unsigned sum = 0;
  while (state.KeepRunningBatch(static_cast<std::int64_t>(runs.length()))) {
    fixture.data.gather(runs.next(), fixture.set.field, offsets, bytes);
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      sum += static_cast<unsigned>(bytes[static_cast<std::size_t>(offsets[i])]);
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations());
}

void BM_View_FindByKey(benchmark::State& state, GetFixture get_fixture) {
  const Fixture& fixture = get_fixture();
  random_views(state, fixture, [&, field = fixture.set.field](std::uint64_t i) {
    const std::optional<Sample> sample = fixture.data.find(fixture.keys[i]);
    return (*sample)[field][0];
  });
}

/// Hashes an image, which costs about as much as reading all its bytes.
std::uint64_t work(const Sample& sample) { return hash64(sample["jpg"]); }

void report_epoch(benchmark::State& state) {
  const std::int64_t samples = state.iterations() * static_cast<std::int64_t>(images().data.size());
  state.SetItemsProcessed(samples);
  state.SetBytesProcessed(samples * static_cast<std::int64_t>(images().set.field_bytes));
}

void BM_ImageEpoch_PlainLoop(benchmark::State& state) {
  const Dataset& data = images().data;
  for (auto _ : state) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < data.size(); ++i) sum += work(data[i]);
    benchmark::DoNotOptimize(sum);
  }
  report_epoch(state);
}

void register_views(const std::string& subject, GetFixture get_fixture) {
  const std::pair<const char*, void (*)(benchmark::State&, GetFixture)> rows[] = {
      {"Bare", BM_View_Bare},       {"Lmdb", BM_View_Lmdb},     {"Dataset", BM_View_Dataset},
      {"Samples", BM_View_Samples}, {"Gather", BM_View_Gather}, {"FindByKey", BM_View_FindByKey},
  };
  for (const auto& [variant, row] : rows) {
    benchmark::RegisterBenchmark(("BM_" + subject + "_" + variant).c_str(), row, get_fixture)
        ->UseRealTime()
        ->Threads(1)
        ->Threads(2);
  }
}

}  // namespace
}  // namespace shardwise::bench

int main(int argc, char** argv) {
  using namespace shardwise::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_views("TinyView", tiny);
  register_views("ImageView", images);
  benchmark::RegisterBenchmark("BM_ImageEpoch_PlainLoop", BM_ImageEpoch_PlainLoop)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
