// Fault under test: tests/faults.md 68.
// Samples of a remote shard that is still being fetched, with several processes.
#include <atomic>
#include <string>
#include <thread>

#include "data/early_shard.h"
#include "support/process.h"

namespace shardwise {
namespace {

using test::content;
using test::EarlyShardTest;
using test::expect_sample;
using test::kLate;

TEST_F(EarlyShardTest, WhenTheFetchingProcessIsKilledAnotherFetchesTheShard) {
  serve();
  struct Told {
    std::atomic<bool> has_read{false};
  };
  const test::Shared<Told> told;
  test::Child child([&]() -> std::string {
    const Dataset data = open(cache());
    const Sample sample = data[0];
    if (sample["bin"] != content(0)) return "wrong bytes";
    told->has_read = true;
    const Sample late = data[kLate];
    return late["bin"] == content(kLate) ? "" : "wrong bytes";
  });
  while (!told->has_read) std::this_thread::yield();
  const auto in = cache();
  const Dataset data = open(in);
  std::thread reader([&] { expect_sample(data, 0); });  // waits for the other process
  while (in->stats().waits == 0) std::this_thread::yield();
  child.kill();
  EXPECT_EQ(child.wait(), "killed by signal 9");
  go_on();
  reader.join();
  expect_sample(data, kLate);
  EXPECT_EQ(gets(), 2);
}

TEST_F(EarlyShardTest, AForkedChildReadsWhatItsParentFollows) {
  serve();
  const auto in = cache();
  const Dataset data = open(in);
  const Sample early = data[0];
  test::Child child([&]() -> std::string {
    if (early["bin"] != content(0)) return "wrong bytes";
    const Sample late = data[kLate];  // waits for the parent, as a separate process would
    return late["bin"] == content(kLate) ? "" : "wrong bytes";
  });
  go_on();
  expect_sample(data, kLate);
  EXPECT_EQ(child.wait(), "");
  EXPECT_EQ(gets(), 1);
}

}  // namespace
}  // namespace shardwise
