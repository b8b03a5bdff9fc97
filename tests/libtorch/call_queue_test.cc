#include "libtorch/call_queue.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/support.h"

namespace shardwise::libtorch::detail {
namespace {

using testing::ElementsAre;

/// Waits until `flag` is set.
void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

TEST(CallQueueTest, CallsAreMadeInTheirOrderBesideTheProgram) {
  std::vector<int> made;
  std::atomic<bool> is_done{false};
  CallQueue queue;
  for (int i = 0; i < 1000; ++i) queue.add([&, i] { made.push_back(i); });
  queue.add([&] { is_done = true; });
  wait_for(is_done);
  ASSERT_EQ(made.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(made[static_cast<std::size_t>(i)], i);
}

TEST(CallQueueTest, DrainingDropsWhatWasNotBegunAndWaitsForWhatWas) {
  std::vector<int> made;  // not atomic: drain() must make reading it safe
  CallQueue queue;
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> has_begun{false};
    std::atomic<bool> may_end{false};
    made.clear();
    queue.add([&] {
      has_begun = true;
      wait_for(may_end);
      made.push_back(1);
    });
    auto token = std::make_shared<int>(2);
    const std::weak_ptr<int> waiting = token;
    queue.add([&made, token = std::move(token)] { made.push_back(*token); });
    wait_for(has_begun);
    std::thread other([&] {
      // Wait until the queue has discarded the call.
      while (!waiting.expired()) std::this_thread::yield();
      may_end = true;
    });
    queue.drain();
    EXPECT_THAT(made, ElementsAre(1)) << round;
    other.join();
  }
  queue.drain();  // the queue is empty
}

TEST(CallQueueTest, OneThatIsDestroyedMakesNoFurtherCall) {
  std::vector<int> made;
  std::atomic<bool> has_begun{false};
  {
    CallQueue queue;
    queue.add([&] {
      has_begun = true;
      made.push_back(1);
    });
    wait_for(has_begun);
  }
  EXPECT_THAT(made, ElementsAre(1));
  const CallQueue unused;
}

}  // namespace
}  // namespace shardwise::libtorch::detail
