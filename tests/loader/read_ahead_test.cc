// Tests which pages the loader asks the kernel to read ahead.
#include "loader/read_ahead.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>

#include "base/file.h"
#include "base/mapped_file.h"
#include "data/page_request.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/loader/loader.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/dataset.h"

namespace shardwise {
namespace {

using detail::BatchPlan;
using detail::PageRequest;
using detail::ReadAheadSource;

constexpr std::size_t kFieldBytes = 1'000'000;
using Names = std::optional<std::vector<std::string>>;

/// Makes samples with two large fields, "a" and "b", and a small one.
Dataset make_large(const test::TempDir& dir, std::size_t count) {
  std::vector<test::Fields> samples;
  for (std::size_t i = 0; i < count; ++i) {
    samples.push_back({{"a", std::string(kFieldBytes, 'a')},
                       {"b", std::string(kFieldBytes, 'b')},
                       {"cls", std::to_string(i)}});
  }
  return test::make_dataset(dir, "large", samples, 4);
}

/// A shard of make_large(), and which of its pages are in the page cache.
class Shard {
 public:
  explicit Shard(std::string path) : path_(std::move(path)), map_(MappedFile::open(path_)) {}

  /// Evicts the shard from the page cache. Returns false if the file system keeps it there.
  bool forget() {
    const File file = File::open_or_create(path_);
    EXPECT_EQ(::fsync(file.fd()), 0);
    EXPECT_EQ(::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
    // Ignore the beginning: pages of an open shard that were accessed stay (some MB if pages are
    // large).
    return !is_there(4 * kFieldBytes, map_.bytes().size(), /*any=*/true);
  }
  /// Returns where the `number`-th field of this letter is, without its first and last pages.
  std::pair<std::size_t, std::size_t> field(char letter, std::size_t number) const {
    // A sample has three headers, and its fields take whole blocks.
    const std::size_t blocks = (kFieldBytes + 511) / 512 * 512;
    const std::size_t sample = number * (2 * blocks + 4 * 512);
    const std::size_t begin = sample + 512 + (letter == 'a' ? 0 : blocks + 512);
    return {begin + 200'000, begin + 800'000};
  }
  /// Whether all of these bytes, or any of them, are in the page cache.
  bool is_there(std::size_t begin, std::size_t end, bool any = false) const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    begin -= begin % page;
    std::vector<unsigned char> pages((end - begin + page - 1) / page);
    EXPECT_EQ(::mincore(const_cast<char*>(map_.bytes().data()) + begin, end - begin, pages.data()),
              0);
    const auto present = static_cast<std::size_t>(
        std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; }));
    return any ? present > 0 : present == pages.size();
  }
  bool is_there(std::pair<std::size_t, std::size_t> range) const {
    return is_there(range.first, range.second);
  }
  bool is_partly_there(std::pair<std::size_t, std::size_t> range) const {
    return is_there(range.first, range.second, /*any=*/true);
  }

 private:
  std::string path_;
  MappedFile map_;
};

TEST(PageRequestTest, OnlyTheFieldsThatAreReadComeIntoThePageCache) {
  const test::TempDir dir;
  const Dataset data = make_large(dir, 8);
  Shard first(dir / "large-0.tar"), second(dir / "large-1.tar");
  // Opening a shard reads its first block, and the kernel reads around it.
  EXPECT_EQ(data[0].index(), 0u);
  EXPECT_EQ(data[4].index(), 4u);
  if (!first.forget() || !second.forget())
    GTEST_SKIP() << "needs to evict files from the page cache; skipped because they stay there";
  const Names only_b = std::vector<std::string>{"b", "cls"};
  const std::vector<std::uint64_t> samples = {7, 2, 2};
  EXPECT_GT(PageRequest(data, only_b).send(samples), 2 * kFieldBytes);
  while (!first.is_there(first.field('b', 2)) || !second.is_there(second.field('b', 3))) {
    std::this_thread::yield();
  }
  for (const char letter : {'a', 'b'}) {
    EXPECT_FALSE(second.is_partly_there(second.field(letter, 2))) << letter;
    EXPECT_FALSE(first.is_partly_there(first.field(letter, 3))) << letter;
  }
  EXPECT_FALSE(first.is_partly_there(first.field('a', 2)));
  const Names any;
  EXPECT_GT(PageRequest(data, any).send(samples), 4 * kFieldBytes);
  while (!first.is_there(first.field('a', 2))) std::this_thread::yield();
}

/// Requests all samples in a random order, 50 at a time. Returns the number of bytes requested.
std::uint64_t send_in_random_order(PageRequest& request, std::uint64_t num_samples) {
  std::vector<std::uint64_t> samples(num_samples);
  std::iota(samples.begin(), samples.end(), std::uint64_t{0});
  std::ranges::shuffle(samples, std::mt19937_64(1));
  std::uint64_t bytes = 0;
  for (std::size_t at = 0; at < samples.size(); at += 50) {
    bytes += request.send(
        std::span(samples).subspan(at, std::min<std::size_t>(50, samples.size() - at)));
  }
  return bytes;
}

TEST(PageRequestTest, SmallSamplesNearEachOtherAreRequestedInWholePieces) {
  const test::TempDir dir;
  // As many pieces as a window of the default order, whose first samples are all in new pieces.
  const std::vector<test::Fields> samples(64'000, {{"a", std::string(1500, 'a')}});
  const Dataset data = test::make_dataset(dir, "small", samples, 32'000);
  PageRequest request(data, Names());
  EXPECT_FALSE(request.asks_whole());
  EXPECT_GT(send_in_random_order(request, samples.size()), 0U);
  EXPECT_TRUE(request.asks_whole());
  EXPECT_EQ(send_in_random_order(request, samples.size()), 0U) << "requested before";
  EXPECT_TRUE(request.asks_whole());
  request.forget();
  EXPECT_GT(send_in_random_order(request, samples.size()), 0U);
}

TEST(PageRequestTest, JoinedSamplesAreRequestedInWholePiecesToo) {
  const test::TempDir dir;
  const std::vector<test::Fields> pictures(64'000, {{"a", std::string(1, 'a')}});
  const std::vector<test::Fields> texts(pictures.size(), {{"b", std::string(1500, 'b')}});
  const Dataset first = test::make_dataset(dir, "pictures", pictures, 32'000);
  const Dataset second = test::make_dataset(dir, "texts", texts, 32'000);
  PageRequest request(first.join(second), std::vector<std::string>{"b"});
  EXPECT_GT(send_in_random_order(request, pictures.size()), 0U);
  EXPECT_EQ(send_in_random_order(request, pictures.size()), 0U) << "requested before";
  request.forget();
  EXPECT_GT(send_in_random_order(request, pictures.size()), 0U);
}

TEST(PageRequestTest, SmallSamplesFarFromEachOtherAreRequestedOneByOne) {
  constexpr std::size_t kSamples = 2100, kLargeBytes = 200'192;
  const test::TempDir dir;
  {
    File file = File::open_or_create(dir / "far.tar");
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < kSamples; ++i) {
      const std::string key = std::to_string(i);
      // The file has a hole in the place of the large field.
      const std::string headers = test::TarBuilder().file(key + ".a", "a").bytes() +
                                  test::TarBuilder::header(key + ".b", '0', kLargeBytes);
      file.write_at(offset, headers);
      offset += headers.size() + kLargeBytes;
    }
    file.write_at(offset, std::string(1024, '\0'));
  }
  build_index(dir / "far.idx", {dir / "far.tar"});
  PageRequest request(Dataset::open(dir / "far.idx"), std::vector<std::string>{"a"});
  EXPECT_LE(send_in_random_order(request, kSamples),
            kSamples * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)))
      << "at most a page each";
  EXPECT_FALSE(request.asks_whole());
}

TEST(PageRequestTest, AViewIsAskedForByItsOwnNumbers) {
  const test::TempDir dir;
  const Dataset all = make_large(dir, 8);
  const Names only_a = std::vector<std::string>{"a"};
  const Dataset view = all.subset(std::vector<std::uint64_t>{5, 7});
  Shard second(dir / "large-1.tar");
  if (!second.forget())
    GTEST_SKIP() << "needs to evict files from the page cache; skipped because they stay there";
  const std::vector<std::uint64_t> last = {1}, beyond = {2};
  EXPECT_GE(PageRequest(view, only_a).send(last), kFieldBytes);
  while (!second.is_there(second.field('a', 3))) std::this_thread::yield();
  EXPECT_EQ(test::error_code([&] { PageRequest(view, only_a).send(beyond); }),
            ErrorCode::kOutOfRange);
}

TEST(PageRequestTest, NothingIsAskedOfShardsThatAreNotThere) {
  const test::TempDir dir;
  test::TestHttpServer server;
  server.serve(
      "/0.tar",
      {.body = test::TarBuilder().file("0.txt", "far").file("1.txt", "away").end().bytes()});
  const auto fetchers = std::make_shared<const Fetchers>(test::quick_options());
  build_index(dir / "x.idx", {server.url("/0.tar")}, {.remote = make_remote_access(fetchers)});
  const Dataset cached = Dataset::open(
      dir / "x.idx",
      {.cache = ShardCache::open(
           {.directory = dir / "cache", .budget_bytes = 1 << 20, .fetchers = fetchers})});
  const Dataset ranges =
      Dataset::open(dir / "x.idx", {.access = Dataset::Access::kRange, .fetchers = fetchers});
  const Names any;
  const std::vector<std::uint64_t> samples = {0, 1};
  const std::size_t before = server.requests().size();
  EXPECT_EQ(PageRequest(cached, any).send(samples), 0u);
  EXPECT_EQ(PageRequest(ranges, any).send(samples), 0u);
  EXPECT_EQ(server.requests().size(), before) << "nothing is fetched";
  EXPECT_EQ(cached[0].copy("txt"), "far");
  EXPECT_GT(PageRequest(cached, any).send(samples), 0u) << "it is mapped now";

  const Dataset local = make_large(dir, 4);
  std::filesystem::remove(dir / "large-0.tar");
  EXPECT_EQ(PageRequest(local, any).send(samples), 0u) << "who reads it says what is wrong";
  const Dataset by_read = Dataset::open(dir / "large.idx", {.access = Dataset::Access::kRead});
  EXPECT_EQ(PageRequest(by_read, any).send(samples), 0u);
}

TEST(ReadAheadSourceTest, PlansAndErrorsComeInTheirPlaces) {
  const test::TempDir dir;
  const Dataset data = make_large(dir, 8);
  const std::vector<Column> columns = {columns::bytes("a")};
  for (const std::size_t rows : {1u, 100u}) {
    std::uint64_t planned = 0;
    ReadAheadSource source(
        [&]() -> std::optional<BatchPlan> {
          if (planned == 7) throw std::runtime_error("out of plans");
          ++planned;
          return BatchPlan{std::vector<std::uint64_t>(rows, planned), {planned}};
        },
        data, columns);
    for (std::uint64_t i = 1; i <= 7; ++i) {
      const auto plan = source();
      ASSERT_TRUE(plan.has_value());
      EXPECT_EQ(plan->samples, std::vector<std::uint64_t>(rows, i));
      EXPECT_EQ(plan->positions, std::vector<std::uint64_t>{i});
    }
    EXPECT_THROW(source(), std::runtime_error);
    EXPECT_FALSE(source().has_value());
    EXPECT_EQ(planned, 7u);
  }
}

TEST(ReadAheadSourceTest, AsksOnlyForAsLongAsBytesAreReadFromDisk) {
  const test::TempDir dir;
  const Dataset data = make_large(dir, 4);
  const std::vector<Column> columns = {columns::bytes("a"), columns::key()};
  ReadAheadSource source(
      [] {
        return BatchPlan{std::vector<std::uint64_t>(64, 3), {}};
      },
      data, columns);
  EXPECT_TRUE(source.is_asking());
  while (source.is_asking()) source();  // until everything counts as cached

  Shard shard(dir / "large-0.tar");
  if (!shard.forget())
    GTEST_SKIP() << "needs to evict files from the page cache; skipped because they stay there";
  const File file = File::open_read(dir / "large-0.tar");
  std::string bytes(kFieldBytes, '\0');
  file.read_at(5 * kFieldBytes, bytes.data(), bytes.size());
  source();
  EXPECT_TRUE(source.is_asking()) << "this thread has read from disk";
  while (source.is_asking()) source();
}

TEST(ReadAheadSourceTest, ColdSamplesComeAsTheyAre) {
  const test::TempDir dir;
  make_large(dir, 8);
  for (const unsigned threads : {0u, 3u}) {
    for (const char* const shard : {"large-0.tar", "large-1.tar"}) Shard(dir / shard).forget();
    const Dataset large = Dataset::open(dir / "large.idx");
    for (const bool is_mixed : {false, true}) {
      Loader::Options options{.columns = {columns::bytes("b"), columns::integer("cls")},
                              .batch_size = 3,
                              .threads = threads};
      MixedDataset data = large;
      if (is_mixed) {
        data = MixedDataset({large, large.subset(std::vector<std::uint64_t>{2, 4})});
        options.order.kind = data.mixture(std::array{0.5, 0.5});
      }
      Loader loader(data, options);
      std::size_t count = 0;
      while (const auto batch = loader.next()) {
        for (std::size_t i = 0; i < batch->size(); ++i, ++count) {
          EXPECT_TRUE((*batch)["b"].text(i) == std::string(kFieldBytes, 'b'));
        }
      }
      EXPECT_GE(count, 8u);
      EXPECT_THAT(loader.prove(), testing::HasSubstr("proven"));
    }
  }
}

}  // namespace
}  // namespace shardwise
