// Keys that an attacker chose to have equal hashes.
#include <ctime>
#include <string>

#include "base/hasher.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_text;
using test::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kKeys = 40'000;

std::string digits(int number) {
  std::string text = std::to_string(number);
  return std::string(8 - text.size(), '0') + text;
}

/// Returns a key of 32 bytes. If its first eight bytes equal those of XXH3's secret, the next eight
/// do not affect the hash.
std::string key(bool collides, int number) {
  const std::string first = collides ? "\xb8\xfe\x6c\x39\x23\xa4\x4b\xbe" : "no-hash-";
  return first + digits(number) + "sixteen-bytes---";
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class CollidingKeysTest : public ::testing::Test {
 protected:
  std::string shard(const std::string& name, bool collides, int begin, int end) const {
    test::TarBuilder tar;
    for (int i = begin; i < end; ++i) tar.file(key(collides, i) + ".x", "");
    test::write_file(dir_ / name, tar.end().bytes());
    return dir_ / name;
  }
  /// Returns how many seconds it takes to index such keys with unique_keys.
  double seconds_for(bool collides) const {
    const std::string half = shard("1.tar", collides, 0, kKeys / 2);
    const std::string other = shard("2.tar", collides, kKeys / 2, kKeys);
    const double begin = cpu_seconds();
    build_index(dir_ / (collides ? "collides.idx" : "plain.idx"), {half, other},
                {.threads = 1, .content = {.unique_keys = true}});
    return cpu_seconds() - begin;
  }

  TempDir dir_;
};

TEST_F(CollidingKeysTest, TheyDoCollide) {
  ASSERT_EQ(hash64(key(true, 1)), hash64(key(true, 2)));
  ASSERT_NE(hash64(key(false, 1)), hash64(key(false, 2)));
}

// Comparing each key with each other key would take several hundred times as long.
TEST_F(CollidingKeysTest, TakeAboutAsLongAsOthers) {
  const double plain = seconds_for(false);
  const double colliding = seconds_for(true);
  RecordProperty("plain", std::to_string(plain));
  RecordProperty("colliding", std::to_string(colliding));
  EXPECT_LT(colliding, 20 * plain)
      << plain << " s of CPU without collisions, " << colliding << " s with";
  const auto index = Index::open(dir_ / "collides.idx");
  for (const int i : {0, 1, 777, kKeys / 2, kKeys - 1}) {
    EXPECT_EQ(index->find(key(true, i)), static_cast<std::uint64_t>(i));
  }
}

TEST_F(CollidingKeysTest, ARepeatedOneIsFoundAmongThem) {
  test::TarBuilder tar;
  for (const int i : {1, 2, 3, 4, 3, 5, 1}) tar.file(key(true, i) + ".x", std::to_string(i));
  test::write_file(dir_ / "twice.tar", tar.end().bytes());
  EXPECT_THAT(error_text([&] { build_index(dir_ / "x.idx", {dir_ / "twice.tar"}); }),
              AllOf(HasSubstr("two places of the shard"), HasSubstr("first at offset 0"),
                    HasSubstr("twice.tar")));
  Index::Content content;
  content.policies.repeated_key = DefectPolicies::OnDefect::kSkip;
  build_index(dir_ / "x.idx", {dir_ / "twice.tar"}, {.content = content});
  const auto index = Index::open(dir_ / "x.idx");
  EXPECT_EQ(index->size(), 5u);
  EXPECT_EQ(index->skipped(10).size(), 2u);

  const std::string one = shard("one.tar", true, 0, 50);
  const std::string other = shard("other.tar", true, 30, 60);
  EXPECT_THAT(error_text([&] {
                build_index(dir_ / "y.idx", {one, other}, {.content = {.unique_keys = true}});
              }),
              AllOf(HasSubstr("in two shards"), HasSubstr("and 19 more samples"),
                    HasSubstr("sample 30 in"), HasSubstr("sample 50 in")));
}

}  // namespace
}  // namespace shardwise
