// Caches that are only read, and ones that a group shares.

#include <grp.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/error_types.h"
#include "base/lock_holder.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/served_shards.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::Child;
using test::error_code;
using test::error_text;
using test::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr std::size_t kShardBytes = 10'000;
constexpr uid_t kOther = 54'321;
constexpr gid_t kGroup = 54'322;

class CacheSharingTest : public test::ServedShardsTest {
 protected:
  CacheSharingTest() : ServedShardsTest(kShardBytes, 4) { ::chmod(dir_.path().c_str(), 0755); }
  ShardCache::Options read_only() const {
    ShardCache::Options how = options();
    how.read_only = true;
    return how;
  }
  ShardCache::Options shared() const {
    ShardCache::Options how = options();
    how.group_shared = true;
    return how;
  }
  /// All files with their sizes, modes, and times of access and change.
  using Picture = std::map<std::string, std::vector<std::int64_t>>;
  Picture picture() const {
    Picture all;
    for (const auto& entry : fs::recursive_directory_iterator(cache_path())) {
      struct stat st {};
      ::lstat(entry.path().c_str(), &st);
      all[entry.path()] = {st.st_size, st.st_mode, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    }
    return all;
  }
};

// faults.md 70
TEST_F(CacheSharingTest, AReadOnlyCacheReadsAndWritesNothing) {
  EXPECT_EQ(read(*ShardCache::open(options()), 0), body(0));
  const Picture before = picture();
  const auto cache = ShardCache::open(read_only());
  EXPECT_TRUE(cache->is_read_only());
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(cache->stats().hits, 1U);
  EXPECT_EQ(cache->entries().size(), 1U);
  EXPECT_THAT(cache->verify().damaged, IsEmpty());
  EXPECT_EQ(error_code([&] { read(*cache, 1); }), ErrorCode::kUnsupported);
  EXPECT_THAT(error_text([&] { read(*cache, 1); }),
              AllOf(HasSubstr("the shard is not in the cache, which is only read"),
                    HasSubstr("/1.tar"), HasSubstr("--access range")));
  std::optional<ShardFetch> fetch;
  EXPECT_EQ(CacheAccess::begin_ahead(*cache, request(1), 0, nullptr, fetch), Ahead::kPresent);
  EXPECT_THAT(error_text([&] { cache->prune(0); }), HasSubstr("--cache-read-only"));
  EXPECT_EQ(picture(), before);
  EXPECT_EQ(server_.gets(path(1)), 0);
}

// faults.md 70
TEST_F(CacheSharingTest, AReaderKeepsAShardFromBeingEvicted) {
  const auto writer = ShardCache::open(options());
  static_cast<void>(read(*writer, 0));
  const auto reader = ShardCache::open(read_only());
  {
    const CachedShard held = CacheAccess::get(*reader, request(0));
    EXPECT_EQ(writer->prune(0).num_in_use, 1U);
  }
  EXPECT_EQ(writer->prune(0).num_shards, 1U);
}

// faults.md 70
TEST_F(CacheSharingTest, WithoutALocksFileItIsReadAllTheSame) {
  static_cast<void>(read(*ShardCache::open(options()), 0));
  fs::remove(cache_path() + "/locks");
  const auto cache = ShardCache::open(read_only());
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(cache->entries().size(), 1U);
  EXPECT_FALSE(fs::exists(cache_path() + "/locks"));
}

TEST_F(CacheSharingTest, WhatIsNoCacheIsNotMadeOne) {
  EXPECT_EQ(error_code([&] { ShardCache::open(read_only()); }), ErrorCode::kNotFound);
  fs::create_directory(cache_path());
  EXPECT_THAT(error_text([&] { ShardCache::open(read_only()); }), HasSubstr("it is not one"));
  EXPECT_TRUE(fs::is_empty(cache_path()));
}

// faults.md 70
TEST_F(CacheSharingTest, AFolderThatThisUserCannotWriteIsOnlyRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs another user";
  static_cast<void>(read(*ShardCache::open(options()), 0));
  for (const char* folder : {"", "/shards"}) ::chmod((cache_path() + folder).c_str(), 0755);
  const Picture before = picture();
  Child child([&]() -> std::string {
    if (::setgid(kOther) != 0 || ::setuid(kOther) != 0) return "cannot become another user";
    const auto cache = ShardCache::open(options());
    if (!cache->is_read_only()) return "it is not read only";
    if (read(*cache, 0) != body(0)) return "other bytes";
    const std::string text = error_text([&] { read(*cache, 1); });
    if (text.find("which is only read") == std::string::npos) return text;
    const std::string pruned = error_text([&] { cache->prune(0); });
    if (pruned.find("may not write to it") == std::string::npos) return pruned;
    return "";
  });
  EXPECT_EQ(child.wait(), "");
  EXPECT_EQ(picture(), before);
}

// faults.md 71
TEST_F(CacheSharingTest, AGroupsFilesAreTheGroupsWhateverTheUmask) {
  const mode_t before = ::umask(077);
  {
    const auto cache = ShardCache::open(shared());
    EXPECT_EQ(read(*cache, 0), body(0));
  }
  ::umask(before);
  int files = 0;
  const auto mode_of = [](const std::string& path) {
    struct stat st {};
    ::stat(path.c_str(), &st);
    return st.st_mode & 07777;
  };
  EXPECT_EQ(mode_of(cache_path()), 02770U);
  for (const auto& entry : fs::recursive_directory_iterator(cache_path())) {
    EXPECT_EQ(mode_of(entry.path()), entry.is_directory() ? 02770U : 0660U) << entry.path();
    files += entry.is_directory() ? 0 : 1;
  }
  EXPECT_GE(files, 5) << "the marker, the locks, the count, a shard and its record";
}

// faults.md 71
TEST_F(CacheSharingTest, AnotherMemberOfTheGroupReadsFetchesAndEvicts) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs another user";
  const auto mine = ShardCache::open(shared());
  for (const char* folder : {"", "/shards", "/futures"}) {
    ASSERT_EQ(::chown((cache_path() + folder).c_str(), static_cast<uid_t>(-1), kGroup), 0);
    ::chmod((cache_path() + folder).c_str(), 02770);
  }
  for (const char* file : {"/shardwise-cache", "/used", "/locks"}) {
    ASSERT_EQ(::chown((cache_path() + file).c_str(), static_cast<uid_t>(-1), kGroup), 0);
  }
  EXPECT_EQ(read(*mine, 0), body(0));
  Child child([&]() -> std::string {
    const gid_t group = kGroup;
    if (::setgroups(1, &group) != 0 || ::setgid(kOther) != 0 || ::setuid(kOther) != 0) {
      return "cannot become another user";
    }
    ::umask(077);
    const auto cache = ShardCache::open(shared());
    if (cache->is_read_only()) return "it is read only";
    if (read(*cache, 0) != body(0) || read(*cache, 1) != body(1)) return "other bytes";
    if (cache->stats().fetched != 1) return "fetched again";
    cache->prune(kShardBytes);
    return cache->entries().size() == 1 ? "" : "nothing was evicted";
  });
  EXPECT_EQ(child.wait(), "");
  EXPECT_EQ(read(*mine, 0), body(0));
  EXPECT_EQ(read(*mine, 1), body(1));
}

// faults.md 71
TEST_F(CacheSharingTest, ASharedCacheIsUsedAsOneOnlyWhereThatIsSaid) {
  ShardCache::open(shared());
  EXPECT_THAT(error_text([&] { ShardCache::open(options()); }),
              AllOf(HasSubstr("it is shared with its group"), HasSubstr("--cache-group")));
  EXPECT_NO_THROW(ShardCache::open(read_only()));
  fs::remove_all(cache_path());
  ShardCache::open(options());
  EXPECT_THAT(error_text([&] { ShardCache::open(shared()); }),
              AllOf(HasSubstr("it is not shared with its group"), HasSubstr("chmod g+rwxs")));
}

// faults.md 71
TEST_F(CacheSharingTest, WhatEverybodyMayWriteToIsRefused) {
  ShardCache::open(shared());
  for (const char* folder : {"", "/shards"}) {
    ::chmod((cache_path() + folder).c_str(), 02777);
    for (const auto& how : {shared(), read_only()}) {
      EXPECT_THAT(error_text([&] { ShardCache::open(how); }),
                  AllOf(HasSubstr("may write to it"), HasSubstr("chmod")));
    }
    ::chmod((cache_path() + folder).c_str(), 02770);
  }
}

TEST_F(CacheSharingTest, EntriesSayWhoHoldsAndWhoFetches) {
  const auto cache = ShardCache::open(options());
  const auto me = static_cast<std::int64_t>(::getpid());
  const CachedShard held = CacheAccess::get(*cache, request(0));
  static_cast<void>(CacheAccess::get(*cache, request(1)));
  std::optional<ShardFetch> fetch;
  ASSERT_EQ(CacheAccess::begin_ahead(*cache, request(2), 0, nullptr, fetch), Ahead::kFetch);
  int in_use = 0;
  for (const auto& entry : cache->entries()) {
    const bool is_held = entry.name == held.name();
    EXPECT_EQ(entry.in_use, is_held);
    EXPECT_EQ(entry.users, is_held ? std::vector<std::int64_t>{me} : std::vector<std::int64_t>{});
    EXPECT_EQ(entry.fetcher, 0);
    in_use += is_held ? 1 : 0;
  }
  EXPECT_EQ(in_use, 1);
  const auto coming = cache->coming();
  ASSERT_EQ(coming.size(), 1U);
  EXPECT_EQ(coming[0].name, CacheAccess::name_of(request(2)));
  EXPECT_EQ(coming[0].size_bytes, kShardBytes);
  EXPECT_EQ(coming[0].fetcher, me);
  const File probe = File::open_or_create(dir_ / "probe");
  if (::fsetxattr(probe.fd(), "user.probe", "x", 1, 0) == 0) {
    EXPECT_EQ(coming[0].url, server_.url(path(2)));
  }
  static_cast<void>(fetch->run());
  EXPECT_THAT(cache->coming(), IsEmpty());
}

TEST_F(CacheSharingTest, LocksOfBytesAreSeenByTheirProcess) {
  const std::string path = dir_ / "locks";
  File mine = File::open_or_create(path);
  ASSERT_TRUE(mine.try_lock_byte(100, true));
  ASSERT_TRUE(mine.try_lock_byte(101, true));
  const auto holders = detail::LockHolders::of_file(path);
  EXPECT_THAT(holders.of_byte(100), ElementsAre(::getpid()));
  EXPECT_THAT(holders.of_byte(101), ElementsAre(::getpid())) << "neighbours are one range";
  EXPECT_THAT(holders.of_byte(102), IsEmpty());
  EXPECT_THAT(detail::LockHolders::of_file(dir_ / "none").of_byte(1), IsEmpty());
  const File other = File::open_read(path);
  EXPECT_TRUE(other.is_byte_locked(100));
  EXPECT_FALSE(other.is_byte_locked(99));
}

}  // namespace
}  // namespace shardwise
