// faults.md 7: a shard is truncated during a scan or a verification. The process survives, and a
// typed error is thrown, whatever the moment of the truncation.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/verify.h"
#include "support/support.h"

namespace shardwise {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;
using test::TarBuilder;
using test::TempDir;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int kSamples = 3000;
/// Rounds are repeated until a truncation occurred in the middle. A busy machine may need more
/// rounds.
constexpr int kMaxRounds = 10'000;

std::string big_tar() {
  TarBuilder tar;
  for (int i = 0; i < kSamples; ++i) {
    const std::string key = "s" + std::to_string(i);
    tar.file(key + ".txt", std::string(static_cast<std::size_t>(i % 700), 'x'));
    tar.file(key + ".json", "{\"n\": " + std::to_string(i) + "}");
  }
  return tar.end().bytes();
}

struct Kind {
  const char* name;
  Compression compression;
  bool reads_data;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class TruncationTest : public testing::TestWithParam<Kind> {
 protected:
  TruncationTest() {
    bytes_ = GetParam().compression == Compression::kNone
                 ? big_tar()
                 : test::compress(big_tar(), GetParam().compression);
    options_.threads = 2;
    options_.content.hashes = GetParam().reads_data;
    if (GetParam().reads_data) options_.content.columns = {parse_column("json:$.n")};
    test::write_file(shards_[1], TarBuilder().file("other.txt", "x").end().bytes());
    restore();
  }

  /// Restores the shard's content and time.
  void restore() const {
    test::write_file(shards_[0], bytes_);
    const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, shards_[0].c_str(), times, 0), 0);
  }

  /// Runs `work` while another thread truncates the shard. Early and late moments are equally
  /// likely.
  template <class Work>
  void run_while_cut(const Work& work) {
    const auto size = static_cast<off_t>(random_() % bytes_.size());
    const microseconds delay(random_() % static_cast<std::uint64_t>(longest_.count() + 1));
    std::thread cutter([&] {
      std::this_thread::sleep_for(delay);
      EXPECT_EQ(::truncate(shards_[0].c_str(), size), 0);
    });
    work();
    cutter.join();
  }

  /// Runs `work` without truncation, and records its shortest time. Moments are drawn from that
  /// time, because a busy machine delays some runs.
  template <class Work>
  void measure(const Work& work) {
    const auto begin = steady_clock::now();
    work();
    longest_ =
        std::min(longest_, std::chrono::duration_cast<microseconds>(steady_clock::now() - begin));
  }

  const int rounds_ = test::repeats(30, 300);
  const TempDir dir_;
  const std::vector<std::string> shards_ = {dir_ / "a.tar", dir_ / "b.tar"};
  const std::string index_ = dir_ / "x.idx";
  std::string bytes_;
  BuildOptions options_;
  std::mt19937_64 random_{test::random_seed()};
  microseconds longest_ = microseconds::max();
};

INSTANTIATE_TEST_SUITE_P(Kinds, TruncationTest,
                         testing::Values(Kind{"headers", Compression::kNone, false},
                                         Kind{"every byte", Compression::kNone, true},
                                         Kind{"gzip", Compression::kGzip, true}),
                         [](const auto& kind) {
                           std::string name = kind.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST_P(TruncationTest, InTheMiddleOfABuildIsATypedErrorAndNoIndex) {
  int built = 0, corrupt = 0, changed = 0;
  for (int round = 0; round < rounds_ || (changed == 0 && round < kMaxRounds); ++round) {
    restore();
    std::filesystem::remove(index_);
    if (round % 20 == 0) {
      measure([&] { build_index(index_, shards_, options_); });
      std::filesystem::remove(index_);
    }
    run_while_cut([&] {
      try {
        EXPECT_EQ(build_index(index_, shards_, options_).summary.num_samples, kSamples + 1U);
        ++built;
      } catch (const StaleIndex& e) {
        ++changed;
        EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("changed while"),
                                             HasSubstr("'" + shards_[0] + "'"), HasSubstr("wait")));
      } catch (const CorruptShard& e) {  // truncated before it was opened
        ++corrupt;
        EXPECT_THAT(e.what(), HasSubstr("'" + shards_[0] + "'"));
      }
    });
    if (std::filesystem::exists(index_)) {
      Index::open(index_)->validate();
      EXPECT_EQ(Index::open(index_)->size(), kSamples + 1U);
    }
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  std::printf("%d built, %d changed meanwhile, %d cut before\n", built, changed, corrupt);
  EXPECT_GT(changed, 0) << "no cut came in the middle";
}

TEST_P(TruncationTest, InTheMiddleOfVerifyIsFound) {
  build_index(index_, shards_, options_);
  const std::shared_ptr<const Index> index = Index::open(index_);
  const VerifyOptions how{.full = GetParam().reads_data};
  int passed = 0, before = 0, meanwhile = 0;
  for (int round = 0; round < rounds_ || (meanwhile == 0 && round < kMaxRounds); ++round) {
    restore();
    if (round % 20 == 0) {
      measure([&] { EXPECT_EQ(verify_shard(*index, 0, how), std::nullopt); });
    }
    run_while_cut([&] {
      const std::optional<std::string> problem = verify_shard(*index, 0, how);
      if (!problem) {
        ++passed;
        return;
      }
      EXPECT_THAT(*problem, HasSubstr("'" + shards_[0] + "'"));
      EXPECT_THAT(*problem,
                  AnyOf(HasSubstr("shard changed since"), HasSubstr("shard changed while")));
      ++(problem->find("while it was read") == std::string::npos ? before : meanwhile);
    });
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  std::printf("%d passed, %d changed meanwhile, %d cut before\n", passed, meanwhile, before);
  EXPECT_GT(meanwhile, 0) << "no cut came in the middle";
}

}  // namespace
}  // namespace shardwise
