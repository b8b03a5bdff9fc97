#include "base/ordered_pipeline.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "support/support.h"

namespace shardwise {
namespace {

using namespace std::chrono_literals;

/// Returns a source of the items 0, 1, ..., n - 1.
auto numbers(int n) {
  return [next = 0, n]() mutable { return next < n ? std::optional<int>(next++) : std::nullopt; };
}

template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(100us);
}

/// A gate that opens once, for all waiting threads.
class Gate {
 public:
  void wait() const { opened_.wait(); }
  void open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
};

TEST(OrderedPipelineTest, DeliversInOrderForAnyNumberOfThreads) {
  constexpr int kItems = 500;
  for (unsigned threads = 0; threads <= 8; ++threads) {
    OrderedPipeline<int, int> pipeline(
        numbers(kItems),
        [](int& i) {
          if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 300));
          return i * i;
        },
        {.threads = threads});
    for (int i = 0; i < kItems; ++i) ASSERT_EQ(pipeline.next(), i * i) << threads << " threads";
    EXPECT_EQ(pipeline.next(), std::nullopt);
    EXPECT_EQ(pipeline.next(), std::nullopt);
  }
}

TEST(OrderedPipelineTest, AnEmptySourceEndsAtOnce) {
  for (unsigned threads = 0; threads <= 3; ++threads) {
    OrderedPipeline<int, int> pipeline(numbers(0), [](int& i) { return i; }, {.threads = threads});
    EXPECT_EQ(pipeline.next(), std::nullopt);
    EXPECT_EQ(pipeline.next(), std::nullopt);
  }
}

TEST(OrderedPipelineTest, WithoutThreadsTheConsumerDoesTheWork) {
  OrderedPipeline<int, std::thread::id> pipeline(
      numbers(3), [](int&) { return std::this_thread::get_id(); }, {.threads = 0});
  while (const auto id = pipeline.next()) EXPECT_EQ(*id, std::this_thread::get_id());
}

TEST(OrderedPipelineTest, NoMoreThanPrefetchIsInFlight) {
  for (const std::size_t prefetch : {1U, 2U, 5U}) {
    std::atomic<std::size_t> taken{0};
    std::atomic<std::size_t> made{0};
    OrderedPipeline<int, int> pipeline(
        [&]() -> std::optional<int> { return static_cast<int>(taken++); },
        [&](int& i) {
          ++made;
          return i;
        },
        {.threads = 3, .prefetch = prefetch});
    for (std::size_t delivered = 0; delivered < 20; ++delivered) {
      wait_until([&] { return made >= delivered + prefetch; });
      std::this_thread::sleep_for(500us);
      ASSERT_EQ(taken, delivered + prefetch);
      ASSERT_EQ(pipeline.next(), static_cast<int>(delivered));
    }
  }
}

TEST(OrderedPipelineTest, PrefetchIsTwoAThreadUnlessSaid) {
  std::atomic<std::size_t> taken{0};
  OrderedPipeline<int, int> pipeline(
      [&]() -> std::optional<int> { return static_cast<int>(taken++); }, [](int& i) { return i; },
      {.threads = 3});
  wait_until([&] { return taken >= 6; });
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(taken, 6U);
}

TEST(OrderedPipelineTest, WhatWorkThrowsComesInItsPlaceAndTheRestFollows) {
  for (unsigned threads = 0; threads <= 4; ++threads) {
    OrderedPipeline<int, int> pipeline(numbers(40),
                                       [](int& i) {
                                         if (i % 3 == 0)
                                           throw std::runtime_error("item " + std::to_string(i));
                                         return i;
                                       },
                                       {.threads = threads});
    for (int i = 0; i < 40; ++i) {
      try {
        const auto result = pipeline.next();
        ASSERT_NE(i % 3, 0) << threads << " threads";
        ASSERT_EQ(result, i);
      } catch (const std::runtime_error& e) {
        ASSERT_EQ(i % 3, 0) << threads << " threads";
        ASSERT_EQ(e.what(), "item " + std::to_string(i));
      }
    }
    EXPECT_EQ(pipeline.next(), std::nullopt);
  }
}

TEST(OrderedPipelineTest, WhatTheSourceThrowsComesInItsPlaceAndIsTheEnd) {
  for (unsigned threads = 0; threads <= 4; ++threads) {
    int next = 0;
    OrderedPipeline<int, int> pipeline(
        [&]() -> std::optional<int> {
          if (next == 5) throw std::runtime_error("the source broke");
          return next++;
        },
        [](int& i) {
          std::this_thread::sleep_for(1ms);
          return i;
        },
        {.threads = threads});
    for (int i = 0; i < 5; ++i) ASSERT_EQ(pipeline.next(), i) << threads << " threads";
    try {
      pipeline.next();
      ADD_FAILURE() << "did not throw";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "the source broke");
    }
    EXPECT_EQ(pipeline.next(), std::nullopt);
    EXPECT_EQ(pipeline.next(), std::nullopt);
  }
}

TEST(OrderedPipelineTest, TheSourceIsCalledByOneThreadAtATime) {
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  int next = 0;  // not guarded on purpose, so that ThreadSanitizer detects concurrent calls
  OrderedPipeline<int, int> pipeline(
      [&]() -> std::optional<int> {
        if (++inside != 1) overlapped = true;
        std::this_thread::yield();
        --inside;
        return next < 2000 ? std::optional<int>(next++) : std::nullopt;
      },
      [](int& i) { return i; }, {.threads = 8, .prefetch = 32});
  while (pipeline.next()) {
  }
  EXPECT_FALSE(overlapped);
}

TEST(OrderedPipelineTest, ItemsAndResultsMayBeMoveOnly) {
  for (unsigned threads = 0; threads <= 2; ++threads) {
    int next = 0;
    OrderedPipeline<std::unique_ptr<int>, std::unique_ptr<std::string>> pipeline(
        [&]() -> std::optional<std::unique_ptr<int>> {
          if (next == 50) return std::nullopt;
          return std::make_unique<int>(next++);
        },
        [](std::unique_ptr<int>& i) { return std::make_unique<std::string>(std::to_string(*i)); },
        {.threads = threads});
    int count = 0;
    while (auto result = pipeline.next()) EXPECT_EQ(**result, std::to_string(count++));
    EXPECT_EQ(count, 50);
  }
}

TEST(OrderedPipelineTest, DestructionEndsAfterTheItemsInHand) {
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  {
    OrderedPipeline<int, int> pipeline(numbers(1'000'000),
                                       [&](int& i) {
                                         ++begun;
                                         std::this_thread::sleep_for(20ms);
                                         ++ended;
                                         return i;
                                       },
                                       {.threads = 4, .prefetch = 1000});
    wait_until([&] { return begun >= 4; });
  }
  EXPECT_EQ(begun, ended);
  EXPECT_LT(begun, 1000);
  const int then = begun;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(begun, then);
}

TEST(OrderedPipelineTest, DestructionWithAFullQueueDropsWhatWasMade) {
  std::atomic<int> alive{0};
  const auto counted = [&alive](int&) {
    ++alive;
    return std::shared_ptr<void>(nullptr, [&alive](void*) { --alive; });
  };
  {
    OrderedPipeline<int, std::shared_ptr<void>> pipeline(numbers(100), counted,
                                                         {.threads = 3, .prefetch = 8});
    wait_until([&] { return alive >= 8; });
  }
  EXPECT_EQ(alive, 0);
}

TEST(OrderedPipelineTest, StopFromAnotherThreadWakesABlockedConsumer) {
  Gate gate;
  std::atomic<bool> working{false};
  OrderedPipeline<int, int> pipeline(numbers(10),
                                     [&](int& i) {
                                       working = true;
                                       gate.wait();
                                       return i;
                                     },
                                     {.threads = 2});
  std::thread consumer([&] {
    // The work waits for the gate, so next() can return only because stop() wakes it.
    EXPECT_EQ(pipeline.next(), std::nullopt);
    gate.open();
  });
  wait_until([&] { return working.load(); });
  std::this_thread::sleep_for(2ms);
  pipeline.stop();
  consumer.join();
}

TEST(OrderedPipelineTest, StopMayBeCalledTwiceAndNothingFollows) {
  for (unsigned threads = 0; threads <= 3; ++threads) {
    OrderedPipeline<int, int> pipeline(numbers(100), [](int& i) { return i; },
                                       {.threads = threads});
    EXPECT_EQ(pipeline.next(), 0);
    pipeline.stop();
    pipeline.stop();
    EXPECT_EQ(pipeline.next(), std::nullopt);
  }
}

TEST(OrderedPipelineTest, RandomUseDeliversInOrderAndLeavesWithoutAHang) {
  constexpr std::uint64_t kSeed = 4711;
  RecordProperty("seed", std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    const auto items = static_cast<int>(random() % 60);
    const auto taken = static_cast<int>(random() % 70);
    const std::uint64_t pattern = random();
    OrderedPipeline<int, int> pipeline(
        numbers(items),
        [pattern](int& i) {
          if ((pattern >> (i % 64) & 1) != 0) std::this_thread::yield();
          if ((pattern >> ((i + 32) % 64) & 7) == 7) throw std::runtime_error("");
          return i;
        },
        {.threads = static_cast<unsigned>(random() % 6), .prefetch = random() % 9});
    for (int i = 0; i < taken; ++i) {
      try {
        const auto result = pipeline.next();
        ASSERT_EQ(result, i < items ? std::optional<int>(i) : std::nullopt)
            << "seed " << kSeed << ", round " << round;
      } catch (const std::runtime_error&) {
        ASSERT_LT(i, items) << "seed " << kSeed << ", round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace shardwise
