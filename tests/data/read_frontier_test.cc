#include "data/read_frontier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "support/support.h"

namespace shardwise::detail {
namespace {

using ::testing::ElementsAre;

TEST(ReadFrontierTest, IsBeforeWhatTheFirstPartLacks) {
  std::vector<std::uint64_t> moved;
  ReadFrontier frontier([&](std::uint64_t at) { moved.push_back(at); });
  std::optional<ReadFrontier::Part> first = frontier.begin(10, 20);
  ReadFrontier::Part second = frontier.begin(20, 30);
  second.reach(25);
  first->reach(14);
  ReadFrontier::Part moved_part = std::move(second);
  first.reset();
  moved_part.reach(29);
  moved_part = {};
  EXPECT_THAT(moved, ElementsAre(10, 14, 25, 29, 30));
}

TEST(ReadFrontierTest, IsNeverBehindWhatSomeThreadLacks) {
  constexpr std::uint64_t kThings = 20'000;
  std::vector<std::atomic<bool>> read(kThings);
  std::atomic<std::uint64_t> highest{0}, wrong{0};
  ReadFrontier frontier([&](std::uint64_t at) {
    for (std::uint64_t i = at < 64 ? 0 : at - 64; i < at; ++i) wrong += read[i] ? 0 : 1;
    std::uint64_t before = highest;
    while (at > before && !highest.compare_exchange_weak(before, at)) {
    }
  });
  Mutex taking;
  std::uint64_t next = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (;;) {
        std::uint64_t first = 0, last = 0;
        ReadFrontier::Part part;
        {
          const Lock lock(taking);
          if (next == kThings) return;
          first = next;
          last = next = std::min<std::uint64_t>(kThings, next + 1 + random() % 9);
          part = frontier.begin(first, last);
        }
        for (; first < last; ++first) {
          part.reach(first);
          read[first] = true;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(highest, kThings);
}

}  // namespace
}  // namespace shardwise::detail
