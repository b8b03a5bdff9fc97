// Notes, which readers store next to the shards of a cache.
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "base/fault_point.h"
#include "base/hasher.h"
#include "shardwise/base/hash.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/served_shards.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kShardBytes = 100'000;

class ShardNoteTest : public test::ServedShardsTest {
 protected:
  ShardNoteTest() : ServedShardsTest(kShardBytes, 4) {}

  static std::string text(int i) { return "of shard " + std::to_string(i); }
  CacheRequest request(int i) const { return {.source = {.url = server_.url(path(i))}}; }
  CacheRequest request_with_note(int i) const {
    CacheRequest request = this->request(i);
    request.admission.make_note = [i] { return text(i); };
    return request;
  }
  std::shared_ptr<ShardCache> open(std::uint64_t budget_bytes = 1 << 30) const {
    return ShardCache::open({.directory = dir_ / "cache",
                             .budget_bytes = budget_bytes,
                             .bypass_large = true,
                             .fetchers = std::make_shared<const Fetchers>(test::quick_options())});
  }
  std::string file(int i, const std::string& suffix) const {
    return dir_ / "cache/shards/" + CacheAccess::name_of(request(i)) + suffix;
  }
  /// Returns the note; "" if there is no note.
  static std::string note_of(const CachedShard& shard) {
    const auto note = CacheAccess::note_of(shard);
    if (!note) return {};
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(note->bytes.data()) % 8, 0u);
    return std::string(note->bytes);
  }
};

TEST_F(ShardNoteTest, IsKeptBesideItsShardAndGoesWithIt) {
  {
    const auto cache = open();
    EXPECT_EQ(note_of(CacheAccess::get(*cache, request_with_note(0))), text(0));
    EXPECT_EQ(note_of(CacheAccess::get(*cache, request(1))), "") << "nobody made one";
  }
  const auto cache = open();
  EXPECT_EQ(note_of(CacheAccess::get(*cache, request(0))), text(0)) << "it outlives the process";
  {
    const CachedShard shard = CacheAccess::get(*cache, request(1));
    CacheAccess::write_note(shard, "first");
    CacheAccess::write_note(shard, "second");
    EXPECT_EQ(note_of(shard), "second");
    CacheAccess::write_note(shard, "");
    const auto empty = CacheAccess::note_of(shard);
    ASSERT_TRUE(empty.has_value());
    EXPECT_EQ(empty->bytes, "");
  }
  EXPECT_THAT(files(), SizeIs(6));
  EXPECT_THAT(cache->verify().foreign, IsEmpty());
  EXPECT_EQ(cache->used_bytes(), 2 * kShardBytes) << "notes do not count";
  cache->prune(0);
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_EQ(note_of(CacheAccess::get(*cache, request(0))), "");
}

TEST_F(ShardNoteTest, IsTakenOnlyWithTheBytesThatItWasMadeOf) {
  const auto cache = open();
  CacheAccess::get(*cache, request_with_note(0));
  const std::string kept = test::read_file(file(0, ".note"));
  // Serve another version of the shard under the same name.
  server_.serve(path(0), {.body = body(3), .etag = "\"v2\""});
  CacheRequest again = request(0);
  again.admission.fetch_again = true;
  EXPECT_EQ(note_of(CacheAccess::get(*cache, again)), "");
  test::write_file(file(0, ".note"), kept);
  EXPECT_EQ(note_of(CacheAccess::get(*cache, request(0))), "") << "it is of the old bytes";
  // Store the note of shard 0 as that of shard 1.
  CacheAccess::get(*cache, request(1));
  test::write_file(file(1, ".note"), kept);
  EXPECT_EQ(note_of(CacheAccess::get(*cache, request(1))), "");
}

TEST_F(ShardNoteTest, IsNotTakenIfItIsDamaged) {
  const auto cache = open();
  CacheAccess::get(*cache, request_with_note(0));
  const std::string whole = test::read_file(file(0, ".note"));
  ASSERT_EQ(whole.size(), 64 + text(0).size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 1 << i % 8);
    test::write_file(file(0, ".note"), bytes);
    EXPECT_EQ(note_of(CacheAccess::get(*cache, request(0))), "") << "byte " << i;
    test::write_file(file(0, ".note"), whole.substr(0, i));
    EXPECT_EQ(note_of(CacheAccess::get(*cache, request(0))), "") << "cut at " << i;
  }
  test::write_file(file(0, ".note"), whole + "x");
  EXPECT_EQ(note_of(CacheAccess::get(*cache, request(0))), "");
  std::filesystem::remove(file(0, ".note"));
  std::filesystem::create_directory(file(0, ".note"));
  {
    const CachedShard shard = CacheAccess::get(*cache, request(0));
    EXPECT_EQ(note_of(shard), "");
    CacheAccess::write_note(shard, "x");
    EXPECT_EQ(note_of(shard), "") << "what is in its way stays";
  }
  std::filesystem::remove(file(0, ".note"));
  // Without the record, it is unknown which shard the note belongs to.
  test::write_file(file(0, ".note"), whole);
  EXPECT_EQ(note_of(CacheAccess::get(*cache, request(0))), text(0));
  test::write_file(file(0, ".json"), "");
  EXPECT_EQ(note_of(CacheAccess::get(*cache, request(0))), "");
}

TEST_F(ShardNoteTest, AShardInAFileOfItsOwnHasNone) {
  const auto cache = open(kShardBytes / 2);
  const CachedShard shard = CacheAccess::get(*cache, request_with_note(0));
  EXPECT_EQ(cache->stats().bypassed, 1u);
  CacheAccess::write_note(shard, "x");
  EXPECT_EQ(note_of(shard), "");
  EXPECT_FALSE(std::filesystem::exists(file(0, ".note")));
}

TEST_F(ShardNoteTest, WhatKilledProcessesLeftIsSwept) {
  open();
  test::write_file(file(0, ".note.0123456789ab.tmp"), "half");
  test::write_file(file(0, ".note"), "a note without a shard");
  test::write_file(file(1, ".note"), "one with a record alone");
  test::write_file(file(1, ".json"), "{");
  test::write_file(dir_ / "cache/shards/mine.note", "not the cache's");
  const auto cache = open();
  EXPECT_THAT(files(), ElementsAre("mine.note"));
  EXPECT_THAT(cache->verify().foreign, ElementsAre("mine.note"));
}

TEST_F(ShardNoteTest, WhereverAProcessIsKilledTheNextFindsShardAndNoteOrMakesThem) {
  static std::string fatal;
  for (const bool fetches : {true, false}) {
    for (const char* const point :
         {"shard_cache.checked", "shard_cache.note_made", "shard_cache.note_written",
          "shard_cache.note_kept", "shard_cache.before_unlink", "shard_cache.between_unlinks"}) {
      SCOPED_TRACE(std::string(point) + (fetches ? " of a fetch" : " of another"));
      fatal = point;
      if (!fetches) CacheAccess::get(*open(), request(0));
      const std::string end = test::in_child([&]() -> std::string {
        set_fault_handler([](const char* name) {
          if (name == fatal) ::kill(::getpid(), SIGKILL);
        });
        const auto cache = open();
        {
          const CachedShard shard = CacheAccess::get(*cache, request_with_note(0));
          if (!fetches) CacheAccess::write_note(shard, text(0));
        }
        cache->prune(0);
        return "";
      });
      const bool is_reached = fetches || fatal != "shard_cache.checked";
      EXPECT_EQ(end, is_reached ? "killed by signal 9" : "");
      const auto cache = open();
      const CachedShard shard = CacheAccess::get(*cache, request_with_note(0));
      EXPECT_TRUE(test::same(test::read_file(shard.path()), body(0)));
      const std::string note = note_of(shard);
      EXPECT_TRUE(note == text(0) || (!fetches && note.empty()));
      for (const std::string& name : files()) EXPECT_FALSE(name.ends_with(".tmp")) << name;
      std::filesystem::remove_all(dir_ / "cache");
    }
  }
}

TEST_F(ShardNoteTest, ThatItCannotBeWrittenIsNoError) {
  const auto cache = open();
  EXPECT_EQ(test::in_child([&]() -> std::string {
              ::signal(SIGXFSZ, SIG_IGN);
              const CachedShard shard = CacheAccess::get(*cache, request(0));
              test::set_limit(RLIMIT_FSIZE, 32);
              CacheAccess::write_note(shard, text(0));
              return note_of(shard);
            }),
            "");
  EXPECT_THAT(files(), SizeIs(2));
}

TEST_F(ShardNoteTest, ManyProcessesKeepNotesOfOneShard) {
  // Several processes write notes at once. Each reader sees one whole note.
  std::vector<std::string> texts;
  std::set<std::string> known;
  for (std::size_t i = 0; i < 4; ++i) {
    texts.push_back(test::some_bytes(10'000 * (i + 1), static_cast<std::uint32_t>(i)));
    known.insert(texts.back());
  }
  CacheAccess::get(*open(), request_with_note(0));
  known.insert(text(0));
  std::vector<std::unique_ptr<test::Child>> children;
  for (const std::string& mine : texts) {
    children.push_back(std::make_unique<test::Child>([&]() -> std::string {
      const auto cache = open();
      for (int i = 0; i < 50; ++i) {
        const CachedShard shard = CacheAccess::get(*cache, request(0));
        CacheAccess::write_note(shard, mine);
        if (!known.contains(note_of(shard))) return "a note that nobody wrote";
      }
      return "";
    }));
  }
  for (const auto& child : children) EXPECT_EQ(child->wait(), "");
  EXPECT_THAT(files(), SizeIs(3));
}

}  // namespace
}  // namespace shardwise
