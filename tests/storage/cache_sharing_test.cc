// Caches that are opened read-only, and caches that a group shares.

#include <grp.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/lock_holder.h"
#include "shardwise/base/hash.h"
#include "storage/cache_futures.h"
#include "storage/cache_locks.h"
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
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
namespace fs = std::filesystem;

constexpr std::size_t kShardBytes = 10'000;
constexpr uid_t kOther = 54'321;
constexpr gid_t kGroup = 54'322;
constexpr uid_t kThird = 54'323;

/// Runs `body` as another user with `group` as its only additional group. Returns the error, or "".
std::string as_user(uid_t user, const std::function<std::string()>& body, gid_t group = kGroup) {
  return test::in_child([&]() -> std::string {
    if (::setgroups(1, &group) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) {
      return "cannot become another user";
    }
    return body();
  });
}

uid_t file_owner(const std::string& path) {
  struct stat st {};
  ::stat(path.c_str(), &st);
  return st.st_uid;
}

#define SHARDWISE_NEEDS_ROOT() \
  if (::geteuid() != 0)        \
  GTEST_SKIP() << "needs root, to act as another user; skipped because this user is not root"

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
  /// Makes a cache of `user` with shard 0, which all users may read.
  void make_cache_of(uid_t user) {
    fs::create_directory(dir_ / "home");
    ASSERT_EQ(::chown((dir_ / "home").c_str(), user, user), 0);
    at_ = dir_ / "home/cache";
    ASSERT_EQ(as_user(user, [&] { return read(*open(), 0) == body(0) ? "" : "other bytes"; }), "");
    for (const char* folder : {"", "/shards"}) ::chmod((at_ + folder).c_str(), 0755);
  }
  std::shared_ptr<ShardCache> open(ShardCache::Options how = {}) {
    how.directory = at_;
    how.fetchers = options().fetchers;
    return ShardCache::open(how);
  }
  /// Replaces shard 0 by other bytes, with a record that matches them.
  void forge() const {
    const std::string path = at_ + "/shards/" + CacheAccess::name_of(request(0));
    const std::string bytes = test::some_bytes(kShardBytes, 666);
    auto record = nlohmann::json::parse(test::read_file(path + ".json"));
    test::write_file(path + ".tar", bytes);
    const Hash128 hash = hash128(bytes);
    record["hash"] = record["source_hash"] = {hash.high, hash.low};
    record["mtime_ns"] = file_identity(path + ".tar").mtime_ns;
    record["start_hash"] = hash64(std::string_view(bytes).substr(0, 4096));
    test::write_file(path + ".json", record.dump());
  }
  /// Returns a request for shard 0 that also compares its bytes, as an index with hashes requires.
  /// Counts these comparisons in `num_checks`.
  CacheRequest hashed(int* num_checks = nullptr) const {
    CacheRequest asked = request(0);
    asked.admission.check_content = [this, num_checks](const std::string& path, const auto&) {
      if (num_checks != nullptr) ++*num_checks;
      if (test::read_file(path) != body(0)) throw StaleIndex("other bytes", path, "");
    };
    return asked;
  }
  static std::string mapped(CachedShard shard) { return std::string(shard.map().bytes()); }

  std::string at_ = cache_path();
  /// All files, with their sizes, modes, and access and change times.
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

// Fault under test: tests/faults.md 70.
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
              AllOf(HasSubstr("read-only cache"), HasSubstr("/1.tar"),
                    HasSubstr("Dataset::Access::kRange")));
  std::optional<ShardFetch> fetch;
  EXPECT_EQ(CacheAccess::begin_ahead(*cache, request(1), 0, nullptr, fetch), Ahead::kPresent);
  EXPECT_THAT(error_text([&] { cache->prune(0); }), HasSubstr("ShardCache::Options::read_only"));
  EXPECT_EQ(picture(), before);
  EXPECT_EQ(server_.gets(path(1)), 0);
}

// Fault under test: tests/faults.md 70.
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

// Fault under test: tests/faults.md 70.
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
  EXPECT_THAT(error_text([&] { ShardCache::open(read_only()); }),
              AllOf(HasSubstr("has no shard cache"), HasSubstr("'" + cache_path() + "'")));
  EXPECT_TRUE(fs::is_empty(cache_path()));
}

// Fault under test: tests/faults.md 70.
TEST_F(CacheSharingTest, AFolderThatThisUserCannotWriteIsOnlyRead) {
  SHARDWISE_NEEDS_ROOT();
  static_cast<void>(read(*ShardCache::open(options()), 0));
  for (const char* folder : {"", "/shards"}) ::chmod((cache_path() + folder).c_str(), 0755);
  const Picture before = picture();
  Child child([&]() -> std::string {
    if (::setgid(kOther) != 0 || ::setuid(kOther) != 0) return "cannot become another user";
    const auto cache = ShardCache::open(options());
    if (!cache->is_read_only()) return "it is not read only";
    if (read(*cache, 0) != body(0)) return "other bytes";
    const std::string text = error_text([&] { read(*cache, 1); });
    if (text.find("read-only cache") == std::string::npos) return text;
    const std::string pruned = error_text([&] { cache->prune(0); });
    if (pruned.find("ask the owner") == std::string::npos) return pruned;
    return "";
  });
  EXPECT_EQ(child.wait(), "");
  EXPECT_EQ(picture(), before);
}

// Fault under test: tests/faults.md 71.
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

// Fault under test: tests/faults.md 71.
TEST_F(CacheSharingTest, AnotherMemberOfTheGroupReadsFetchesAndEvicts) {
  SHARDWISE_NEEDS_ROOT();
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

// Fault under test: tests/faults.md 71.
TEST_F(CacheSharingTest, ASharedCacheIsUsedAsOneOnlyWhereThatIsSaid) {
  ShardCache::open(shared());
  EXPECT_THAT(error_text([&] { ShardCache::open(options()); }),
              AllOf(HasSubstr("is shared"), HasSubstr("group"),
                    HasSubstr("ShardCache::Options::group_shared")));
  EXPECT_NO_THROW(ShardCache::open(read_only()));
  fs::remove_all(cache_path());
  ShardCache::open(options());
  EXPECT_THAT(error_text([&] { ShardCache::open(shared()); }),
              AllOf(HasSubstr("not shared"), HasSubstr("group"), HasSubstr("chmod g+rwxs")));
}

// Fault under test: tests/faults.md 71.
TEST_F(CacheSharingTest, WhatEverybodyMayWriteToIsRefused) {
  ShardCache::open(shared());
  for (const char* folder : {"", "/shards"}) {
    ::chmod((cache_path() + folder).c_str(), 02777);
    for (const auto& how : {shared(), read_only()}) {
      EXPECT_THAT(error_text([&] { ShardCache::open(how); }),
                  AllOf(HasSubstr("may write to the directory"), HasSubstr("chmod")));
    }
    ::chmod((cache_path() + folder).c_str(), 02770);
  }
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, AnotherUsersCacheIsReadOnlyIfThatIsAsked) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  const auto refused = [&] {
    for (const auto& how : {options(), shared()}) {
      const std::string text = error_text([&] { static_cast<void>(open(how)); });
      if (text.find("another user") == std::string::npos ||
          text.find("ShardCache::Options::read_only") == std::string::npos) {
        return "not refused: " + text;
      }
    }
    return read(*open(read_only()), 0) == body(0) ? std::string() : "other bytes";
  };
  EXPECT_EQ(as_user(kThird, refused), "");
  EXPECT_EQ(refused(), "") << "root";
  ASSERT_EQ(::symlink(at_.c_str(), (dir_ / "link").c_str()), 0);
  at_ = dir_ / "link";
  EXPECT_EQ(as_user(kThird, refused), "") << "behind a link";
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, AFolderOfAnotherUsersInOnesOwnCacheIsRefused) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  ASSERT_EQ(::chown((at_ + "/shards").c_str(), kThird, kThird), 0);
  for (const mode_t mode : {0755, 0777, 02775}) {
    ::chmod((at_ + "/shards").c_str(), mode);
    EXPECT_EQ(as_user(kOther,
                      [&] {
                        const auto text = error_text([&] { static_cast<void>(open()); });
                        return text.find("/shards'") == std::string::npos ? "not refused" : "";
                      }),
              "");
  }
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, ACacheOfRootsAndAnOwnOneWithoutRightsAreReadByThemselves) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  ::chmod(at_.c_str(), 0555);
  const auto is_read = [&]() -> std::string {
    const auto cache = open();
    if (!cache->is_read_only()) return "it is not read only";
    int num_checks = 0;
    if (mapped(CacheAccess::get(*cache, hashed(&num_checks))) != body(0)) return "other bytes";
    return num_checks == 0 ? "" : "checked, though nobody else may write";
  };
  EXPECT_EQ(as_user(kOther, is_read), "");
  fs::rename(at_, dir_ / "roots");
  at_ = dir_ / "roots";
  ASSERT_EQ(std::system(("chown -R 0:0 " + at_).c_str()), 0);
  EXPECT_EQ(as_user(kOther, is_read), "");
}

// A user who cannot write to the directory reads what a member of the group stored.
TEST_F(CacheSharingTest, ACacheOfRootsThatAGroupMayWriteToIsNotReadByItself) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  ASSERT_EQ(std::system(("chown -R 0:" + std::to_string(kGroup) + " " + at_).c_str()), 0);
  ::chown((dir_ / "home").c_str(), 0, 0);
  const auto opened = [&](const ShardCache::Options& how) {
    return as_user(
        kThird,
        [&]() -> std::string {
          try {
            return read(*open(how), 0) == body(0) ? "read" : "other bytes";
          } catch (const Error& e) {
            return e.what();
          }
        },
        kThird);
  };
  EXPECT_EQ(opened(options()), "read");
  for (const char* folder : {"", "/shards"}) {
    SCOPED_TRACE(folder);
    for (const mode_t mode : {02775, 0775, 0757}) {
      SCOPED_TRACE(mode);
      ::chmod((at_ + folder).c_str(), mode);
      EXPECT_THAT(opened(options()), StartsWith("the directory cannot be"));
      EXPECT_THAT(opened(read_only()),
                  StartsWith(mode == 0757 ? "the directory cannot be" : "read"));
    }
    ::chmod((at_ + folder).c_str(), 0755);
  }
  EXPECT_EQ(opened(options()), "read");
}

TEST_F(CacheSharingTest, WithoutHashesAFileThatItsGroupMayWriteToIsNotUsed) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  const std::string shard = at_ + "/shards/" + CacheAccess::name_of(request(0)) + ".tar";
  const auto is_there = [&](const ShardCache::Options& how) {
    return as_user(kOther, [&] { return read(*open(how), 0) == body(0) ? "read" : "other bytes"; });
  };
  ::chmod(shard.c_str(), 0660);
  EXPECT_EQ(is_there(read_only()), "read");
  EXPECT_EQ(server_.gets(path(0)), 1);
  EXPECT_EQ(is_there(options()), "read");
  EXPECT_EQ(server_.gets(path(0)), 2) << "it is fetched again";
  EXPECT_EQ(is_there(options()), "read");
  EXPECT_EQ(server_.gets(path(0)), 2);
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, WhatItsOwnerForgedIsFoundByTheIndexsHashes) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  const auto reader = [&](bool is_forged) {
    return [&, is_forged]() -> std::string {
      const auto cache = open(read_only());
      int num_checks = 0;
      for (int i = 0; i < 3; ++i) {
        std::string bytes, text;
        try {
          bytes = mapped(CacheAccess::get(*cache, hashed(&num_checks)));
        } catch (const StaleIndex& e) {
          text = e.what();
        }
        if (is_forged != (bytes != body(0))) return "forged: " + text;
        if (is_forged && text.find("differs from") == std::string::npos) {
          return text;
        }
      }
      return is_forged || num_checks == 1 ? "" : "checked more than once";
    };
  };
  EXPECT_EQ(as_user(kThird, reader(false)), "");
  forge();
  EXPECT_EQ(as_user(kThird,
                    [&] {
                      return mapped(CacheAccess::get(*open(read_only()), request(0))) != body(0)
                                 ? ""
                                 : "the forgery is none";
                    }),
            "");
  EXPECT_EQ(as_user(kThird, reader(true)), "");
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, WhatIsMappedIsTheFileThatWasChecked) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  CachedShard shard = CacheAccess::get(*open(read_only()), hashed());
  // The cache's owner replaces the file after it was checked.
  fs::rename(shard.path(), shard.path() + ".away");
  test::write_file(shard.path(), test::some_bytes(kShardBytes, 666));
  EXPECT_EQ(mapped(std::move(shard)), body(0));
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, WhatAMemberOfTheGroupForgedIsFetchedAgain) {
  SHARDWISE_NEEDS_ROOT();
  const auto mine = ShardCache::open(shared());
  for (const char* name : {"", "/shards", "/futures", "/shardwise-cache", "/used", "/locks"}) {
    ASSERT_EQ(::chown((cache_path() + name).c_str(), static_cast<uid_t>(-1), kGroup), 0);
  }
  for (const char* folder : {"", "/shards", "/futures"}) {
    ::chmod((cache_path() + folder).c_str(), 02770);
  }
  const auto member = [&](int expected_gets) {
    return [&, expected_gets]() -> std::string {
      const auto cache = ShardCache::open(shared());
      int num_checks = 0;
      for (int i = 0; i < 3; ++i) {
        if (mapped(CacheAccess::get(*cache, hashed(&num_checks))) != body(0)) return "forged";
      }
      if (num_checks == 0) return "not checked";
      const auto fetched = static_cast<int>(cache->stats().fetched);
      return fetched == expected_gets ? "" : "fetched " + std::to_string(fetched) + " times";
    };
  };
  EXPECT_EQ(as_user(kOther, member(1)), "");
  EXPECT_EQ(as_user(kThird, member(0)), "");
  EXPECT_EQ(as_user(kThird,
                    [&] {
                      forge();
                      return "";
                    }),
            "");
  EXPECT_EQ(as_user(kOther, member(1)), "");
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, AFileOfAnotherUsersInAnOwnCacheIsNotUsed) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  const std::string shard = at_ + "/shards/" + CacheAccess::name_of(request(0)) + ".tar";
  ASSERT_EQ(::chown(shard.c_str(), kThird, kThird), 0);
  EXPECT_EQ(as_user(kOther,
                    [&] {
                      const auto cache = open();
                      const bool is_right = read(*cache, 0) == body(0);
                      return is_right && cache->stats().fetched == 1 ? "" : "it was used";
                    }),
            "");
  EXPECT_EQ(file_owner(shard), kOther);
  // A mode that lets all users write to the file, as a umask of 0 would.
  ::chmod(shard.c_str(), 0666);
  forge();
  EXPECT_EQ(as_user(kOther,
                    [&] {
                      const auto cache = open();
                      const bool is_right = mapped(CacheAccess::get(*cache, hashed())) == body(0);
                      return is_right && cache->stats().fetched == 1 ? "" : "it was used";
                    }),
            "");
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, WhoMayReplaceAFolderAboveTheCacheCountsAsOneWhoMayWrite) {
  SHARDWISE_NEEDS_ROOT();
  make_cache_of(kOther);
  const std::string home = dir_ / "home";
  ASSERT_EQ(::symlink("cache", (home + "/link").c_str()), 0);
  ASSERT_EQ(::lchown((home + "/link").c_str(), kThird, kThird), 0);
  struct Arrangement {
    uid_t owner;
    mode_t mode;
    const char* name;
    int num_checks;
  };
  for (const auto& [owner, mode, name, expected] :
       {Arrangement{kOther, 0755, "cache", 0}, Arrangement{kThird, 0755, "cache", 1},
        Arrangement{0, 0755, "cache", 0}, Arrangement{kOther, 0775, "cache", 1},
        Arrangement{0, 0777, "cache", 1}, Arrangement{0, 01777, "cache", 0},
        Arrangement{kThird, 01777, "cache", 1}, Arrangement{0, 0755, "link", 0},
        Arrangement{0, 0777, "link", 1}}) {
    ASSERT_EQ(::chown(home.c_str(), owner, owner), 0);
    ::chmod(home.c_str(), mode);
    at_ = home + "/" + name;
    const int wanted = expected;
    EXPECT_EQ(as_user(kOther,
                      [&]() -> std::string {
                        int num_checks = 0;
                        if (mapped(CacheAccess::get(*open(), hashed(&num_checks))) != body(0)) {
                          return "other bytes";
                        }
                        return num_checks == wanted ? "" : std::to_string(num_checks) + " checks";
                      }),
              "")
        << owner << ' ' << std::oct << mode << ' ' << name;
  }
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, RightsThatAreGivenLaterCountFromThenOn) {
  const auto cache = ShardCache::open(options());
  int num_checks = 0;
  EXPECT_EQ(mapped(CacheAccess::get(*cache, hashed(&num_checks))), body(0));
  EXPECT_EQ(mapped(CacheAccess::get(*cache, hashed(&num_checks))), body(0));
  EXPECT_EQ(num_checks, 0);
  ::chmod((cache_path() + "/shards").c_str(), 0777);
  forge();
  EXPECT_EQ(mapped(CacheAccess::get(*cache, hashed(&num_checks))), body(0));
  EXPECT_GT(num_checks, 0);
  EXPECT_EQ(cache->stats().fetched, 2U);
}

// Fault under test: tests/faults.md 74.
TEST_F(CacheSharingTest, NobodyElseCanLockTheFilesThatLocksAreTakenOn) {
  const mode_t before = ::umask(0);
  const auto cache = ShardCache::open(options());
  static_cast<void>(read(*cache, 0));
  detail::CacheUser user(cache_path(), {}, {});
  std::optional<ShardFetch> fetch;
  ASSERT_EQ(CacheAccess::begin_ahead(*cache, request(1), 0, nullptr, fetch), Ahead::kFetch);
  ::umask(before);
  int num_readable = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cache_path())) {
    if (entry.is_directory()) continue;
    struct stat st {};
    ::stat(entry.path().c_str(), &st);
    const std::string name = entry.path().filename();
    const bool is_for_readers =
        name == "shardwise-cache" || name.ends_with(".tar") || name.ends_with(".json");
    EXPECT_EQ(st.st_mode & 0777, is_for_readers ? 0644U : 0600U) << name;
    num_readable += is_for_readers ? 1 : 0;
  }
  EXPECT_EQ(num_readable, 3) << "the marker, a shard and its record";
  // A locks file that an earlier release created loses its public permissions.
  ::chmod((cache_path() + "/locks").c_str(), 0644);
  static_cast<void>(read(*cache, 0));
  static_cast<void>(fetch->run());
  struct stat st {};
  ::stat((cache_path() + "/locks").c_str(), &st);
  EXPECT_EQ(st.st_mode & 0777, 0600U);
}

// Fault under test: tests/faults.md 74.
TEST_F(CacheSharingTest, ALockOfWhoeverHadTheFileOpenIsWaitedForAndNamed) {
  ShardCache::Options how = options();
  how.wait_timeout = std::chrono::milliseconds(100);
  const auto cache = ShardCache::open(how);
  static_cast<void>(read(*cache, 0));
  File stranger = File::open_read(cache_path() + "/locks");
  for (const std::uint64_t byte :
       {std::uint64_t{0}, detail::fetch_byte(CacheAccess::name_of(request(1)))}) {
    ASSERT_TRUE(stranger.try_lock_byte(byte, false));
    EXPECT_THAT(error_text([&] { read(*cache, 1); }),
                AllOf(HasSubstr(byte == 0 ? "timed out" : "holds the shard's lock"),
                      HasSubstr("(process " + std::to_string(::getpid()))));
    stranger.unlock_byte(byte);
  }
  EXPECT_EQ(read(*cache, 1), body(1));
}

// Fault under test: tests/faults.md 73.
TEST_F(CacheSharingTest, ALinkInPlaceOfTheFolderOfFuturesIsNotFollowed) {
  static_cast<void>(ShardCache::open(shared()));
  const std::string mine = dir_ / "documents";
  fs::create_directory(mine);
  test::write_file(mine + "/thesis.tex", "years of work");
  const std::string name = std::string(32, 'a') + ".future";
  test::write_file(mine + "/" + name, "the name of a future");
  fs::remove(cache_path() + "/futures");
  fs::create_symlink(mine, cache_path() + "/futures");
  const detail::CacheUser user(cache_path(), {}, {});
  static_cast<void>(user.joint({}, std::string(32, 'b'), 0));
  EXPECT_EQ(test::read_file(mine + "/thesis.tex"), "years of work");
  EXPECT_TRUE(fs::exists(mine + "/" + name));
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
