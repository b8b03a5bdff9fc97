#include "base/lock_holder.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/file.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(LockHolderTest, AThreadOfThisProcessIsSeen) {
  const test::TempDir dir;
  File file = File::open_or_create(dir / "locks");
  EXPECT_EQ(detail::find_lock_holder(dir / "locks", 5), std::nullopt);
  ASSERT_TRUE(file.try_lock_byte(5, true));
  const auto holder = detail::find_lock_holder(dir / "locks", 5);
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->process, ::getpid());
  EXPECT_THAT(holder->text(), StartsWith("process " + std::to_string(::getpid()) + " ("));
  EXPECT_THAT(holder->text(), Not(HasSubstr("stopped")));
  EXPECT_EQ(detail::find_lock_holder(dir / "locks", 6), std::nullopt);
  EXPECT_EQ(detail::find_lock_holder(dir / "other", 5), std::nullopt);

  File shared = File::open_or_create(dir / "locks");
  ASSERT_TRUE(shared.try_lock_byte(7, false));
  EXPECT_EQ(detail::find_lock_holder(dir / "locks", 7), std::nullopt) << "it excludes few";
}

TEST(LockHolderTest, AnotherProcessIsSeenAndWhetherItIsStopped) {
  const test::TempDir dir;
  struct Told {
    std::atomic<bool> is_locked{false};
  };
  const test::Shared<Told> told;
  test::Child child([&]() -> std::string {
    File file = File::open_or_create(dir / "locks");
    for (const std::uint64_t byte : {41, 42, 43}) {  // the kernel shows adjacent bytes as one range
      if (!file.try_lock_byte(byte, true)) return "no lock";
    }
    told->is_locked = true;
    for (;;) ::pause();
  });
  while (!told->is_locked) std::this_thread::yield();
  auto holder = detail::find_lock_holder(dir / "locks", 42);
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->process, child.pid());
  EXPECT_FALSE(holder->is_stopped);
  child.stop();
  holder = detail::find_lock_holder(dir / "locks", 42);
  ASSERT_TRUE(holder);
  EXPECT_TRUE(holder->is_stopped);
  EXPECT_THAT(holder->text(), HasSubstr("), which is suspended"));
  child.kill();
  child.wait();
  EXPECT_EQ(detail::find_lock_holder(dir / "locks", 42), std::nullopt);
}

}  // namespace
}  // namespace shardwise
