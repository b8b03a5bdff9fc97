// Fault under test: tests/faults.md 68.
// Samples of a remote shard that is still being fetched.
#include <atomic>
#include <deque>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "data/early_shard.h"
#include "data/early_shards.h"
#include "index/segment_of.h"
#include "ingest/sample_check.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/order/sampler.h"

namespace shardwise {
namespace {

using test::content;
using test::EarlyShardTest;
using test::error_code;
using test::error_text;
using test::expect_sample;
using test::kLate;
using test::kPauseAt;
using test::kSamples;
using test::name_of;
using test::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(EarlyShardTest, ASampleIsReadBeforeItsShardIsWhole) {
  serve();
  const auto in = cache();
  const Dataset data = open(in);
  const Sample first = data[0];
  expect_sample(data, 0);
  expect_sample(data, 3);
  EXPECT_EQ(in->stats().fetched, 0U);
  EXPECT_FALSE(is_in_cache());
  EXPECT_EQ(data.try_get(0), std::nullopt) << "what may have to be waited for";
  const std::vector<std::uint64_t> some = {2, 0, 1};
  std::size_t next = 0;
  for (const Sample& sample : data.samples(some)) EXPECT_EQ(sample.key(), name_of(some[next++]));
  EXPECT_EQ(next, some.size());

  go_on();
  expect_sample(data, kLate);
  // After the fetch, the shard is opened as a whole.
  while (!data.try_get(0)) expect_sample(data, 0);
  for (std::uint64_t i = 0; i < kSamples; ++i) expect_sample(data, i);
  EXPECT_TRUE(test::same(first["bin"], content(0)));
  EXPECT_EQ(gets(), 1);
  EXPECT_EQ(in->stats().misses, 1U);
  EXPECT_EQ(in->stats().hits, 0U) << "it was not there when it was asked for";
  expect_sample(open(in), 0);
  EXPECT_EQ(in->stats().hits, 1U);
}

TEST_F(EarlyShardTest, AnotherReaderOfTheProcessFollowsTheFetchThatIsThere) {
  serve();
  const auto in = cache();
  const Dataset data = open(in), other = open(in);
  expect_sample(data, 0);
  expect_sample(other, 1);
  go_on();
  expect_sample(other, kLate);
  expect_sample(data, kLate);
  EXPECT_EQ(gets(), 1);
}

TEST_F(EarlyShardTest, AReaderFollowsWhatIsFetchedAhead) {
  serve();
  const auto in = cache();
  const Dataset data = open(in);
  const auto order = make_sampler(data, {.kind = Sharded{}});
  const ShardPrefetcher ahead(data, *order);
  while (gets() == 0) std::this_thread::yield();
  expect_sample(data, 0);
  EXPECT_FALSE(is_in_cache());
  go_on();
  expect_sample(data, kLate);
  EXPECT_EQ(gets(), 1);
}

TEST_F(EarlyShardTest, ViewsOfAShardThatCameAreUses) {
  serve();
  const auto in = cache(body_.size());
  const Dataset data = open(in);
  std::optional<Sample> sample = data[0];
  go_on();
  while (!is_in_cache()) std::this_thread::yield();
  wait_for_the_whole(*in);
  server_.serve("/b", {.body = "another"});
  const auto make_room = [&] {
    CacheAccess::get(*in, {.source = {.url = server_.url("/b"), .source_bytes = 7}});
  };
  make_room();
  EXPECT_EQ(in->stats().evicted, 0U);
  EXPECT_EQ(in->stats().bypassed, 1U);
  EXPECT_TRUE(test::same((*sample)["bin"], content(0)));
  sample.reset();
  // The thread that fetched the shard may not have ended yet.
  while (in->stats().evicted == 0) make_room();
}

TEST_F(EarlyShardTest, WhoWaitsForWholeShardsGetsThem) {
  serve();
  const auto in = cache();
  const Dataset data = open(in, {.wait_for_whole_shards = true});
  std::thread server([&] {
    while (gets() == 0) std::this_thread::yield();
    go_on();
  });
  expect_sample(data, 0);
  EXPECT_EQ(in->stats().fetched, 1U);
  server.join();
}

TEST_F(EarlyShardTest, OfAShardWithAWrongHeaderTheSamplesBeforeItComeAndItIsAnError) {
  serve();
  constexpr std::uint64_t kWrong = 10;
  how_.body.own()[headers_[kWrong]] ^= 1;  // changes the member's name
  test::TarBuilder::fix_checksum(how_.body.own().data() + headers_[kWrong]);
  pause();
  const auto in = cache();
  const Dataset data = open(in);
  expect_sample(data, kWrong - 1);
  go_on();
  const std::string text = error_text([&] { static_cast<void>(data[kWrong]); });
  EXPECT_THAT(text,
              AllOf(HasSubstr("a.tar"), HasSubstr(name_of(kWrong)), HasSubstr("not the shard")));
  EXPECT_EQ(error_code([&] { static_cast<void>(data[kWrong]); }), ErrorCode::kStaleIndex);
  EXPECT_FALSE(is_in_cache());
}

TEST_F(EarlyShardTest, WithHashesNoWrongByteOfAMemberIsGivenOut) {
  serve(/*hashes=*/true);
  constexpr std::uint64_t kWrong = 10;
  how_.body.own()[headers_[kWrong] + 5000] ^= 1;
  pause();
  const auto in = cache();
  const Dataset data = open(in);
  expect_sample(data, kWrong - 1);
  go_on();
  EXPECT_THAT(error_text([&] { static_cast<void>(data[kWrong]); }),
              AllOf(HasSubstr("a.tar"), HasSubstr("fetched bytes")));
  EXPECT_FALSE(is_in_cache());
}

TEST_F(EarlyShardTest, WhatCameWrongOnceIsFetchedAgainAndRead) {
  serve();
  const auto wrong = std::make_shared<std::atomic<int>>(0);
  how_.before_get = [wrong, at = headers_[10]](test::ServedFile& file) {
    // The first fetch changes the byte, the second restores it.
    if ((*wrong)++ < 2) file.body.own()[at] ^= 1;
  };
  pause();
  go_on();
  const Dataset data = open(cache());
  expect_sample(data, 10);
  EXPECT_EQ(gets(), 2);
}

// If the server does not support ranges, an interrupted transfer restarts from the beginning.
TEST_F(EarlyShardTest, ViewsStayAsTheyAreIfTheTransferBeginsAnew) {
  serve(false, {.has_ranges = false});
  const auto begun = std::make_shared<std::atomic<int>>(0);
  how_.cut_after = kPauseAt + (1 << 20);
  how_.num_cuts = 1;
  how_.before_get = [begun, at = headers_[0] + 5000](test::ServedFile& file) {
    // A byte of the first member's data, so no header reveals the change.
    if (++*begun == 2) file.body.own()[at] ^= 1;
  };
  pause();
  const Dataset data = open(cache());
  const Sample early = data[0];
  EXPECT_TRUE(test::same(early["bin"], content(0)));
  go_on();
  expect_sample(data, kLate);
  EXPECT_EQ(gets(), 2);
  EXPECT_TRUE(test::same(early["bin"], content(0))) << "it is of the first transfer";
}

TEST_F(EarlyShardTest, ACutTransferGoesOnAndNothingIsWaitedForTwice) {
  serve();
  how_.cut_after = kPauseAt + 1000;
  how_.num_cuts = 1;
  pause();
  const Dataset data = open(cache());
  expect_sample(data, 0);
  go_on();
  for (std::uint64_t i = 0; i < kSamples; ++i) expect_sample(data, i);
  EXPECT_EQ(gets(), 2);
}

TEST_F(EarlyShardTest, WhatEndsTheFetchIsToldToWhoWaitsAndNotTriedAgain) {
  serve();
  how_.cut_after = kPauseAt + 1000;
  pause();
  const auto in = cache();
  const Dataset data = open(in);
  expect_sample(data, 0);
  server_.remove(kPath);  // the answer that has begun continues up to the cut
  go_on();
  EXPECT_THAT(error_text([&] { static_cast<void>(data[kLate]); }),
              AllOf(HasSubstr("a.tar"), HasSubstr("404")));
  EXPECT_EQ(gets(), 2);
  EXPECT_FALSE(is_in_cache());
}

TEST_F(EarlyShardTest, CancellingEndsWaitingAndADatasetEndsWithoutItsShard) {
  serve();
  std::atomic<bool> cancel{false};
  {
    const Dataset data = open(cache(), {.cancel = &cancel});
    expect_sample(data, 0);
    std::thread user([&] {
      while (gets() == 0) std::this_thread::yield();
      cancel = true;
    });
    EXPECT_EQ(error_code([&] { static_cast<void>(data[kLate]); }), ErrorCode::kCancelled);
    user.join();
  }
  {
    const Dataset data = open(cache());
    expect_sample(data, 0);
  }  // the shard never arrives
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache/shards")) {
    ADD_FAILURE() << entry.path() << " is left";
  }
}

TEST_F(EarlyShardTest, ManyThreadsReadWhileItComes) {
  how_.drip_bytes = 256 << 10;
  how_.drip_wait = std::chrono::milliseconds(1);
  serve(/*hashes=*/true, how_);
  go_on();
  const auto in = cache();
  const Dataset data = open(in);
  std::deque<std::thread> readers;
  std::atomic<int> num_wrong{0};
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    readers.emplace_back([&, thread] {
      std::minstd_rand random(thread + 1);
      for (int n = 0; n < 100; ++n) {
        const std::uint64_t i = random() % kSamples;
        const Sample sample = data[i];
        if (sample["bin"] != content(i)) ++num_wrong;
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_EQ(gets(), 1);
}

// Flips a bit of each byte of a member's header and data, one at a time. The sample's check must
// notice each flip.
TEST(SampleCheckTest, NoFlippedBitOfAHeaderPasses) {
  const TempDir dir;
  test::TarBuilder tar;
  tar.file("a/x.txt", "one").file("a/x.cls", "1").entry("d/", '5', "");
  const std::string long_name(120, 'n');
  tar.pax({{"path", long_name + ".txt"}}).file("short", "two").end();
  const std::string path = dir / "0.tar";
  test::write_file(path, tar.bytes());
  build_index(dir / "x.idx", {path}, {.content = {.hashes = true}});
  const auto index = Index::open(dir / "x.idx");
  const SegmentView segment = segment_of(*index, 0);
  ASSERT_EQ(segment.num_samples(), 2U);
  for (std::uint32_t local = 0; local < 2; ++local) {
    const auto part = detail::part_of_sample(segment, local);
    ASSERT_TRUE(part);
    std::string bytes = tar.bytes().substr(part->first, part->second - part->first);
    EXPECT_TRUE(detail::holds_sample(segment, local, bytes, part->first, false));
    for (const MemberRecord& member : segment.members(local)) {
      const std::size_t data_at = member.data_offset() - part->first;
      for (std::size_t i = data_at - 512; i < data_at + member.size_bytes; ++i) {
        bytes[i] ^= 1;
        EXPECT_FALSE(detail::holds_sample(segment, local, bytes, part->first, false)) << i;
        bytes[i] ^= 1;
      }
    }
  }
}

}  // namespace
}  // namespace shardwise
