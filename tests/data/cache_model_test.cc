// faults.md 47: shards are uploaded again, indexed again and read through one cache, at random. A
// simple model predicts the result: every read returns the version that its index describes.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "base/error_types.h"
#include "base/file.h"
#include "base/text.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/index_builder.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/chain.h"
#include "support/support.h"

namespace shardwise {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kFirstVersion = 1'000'000;  // all versions have the same number of digits
constexpr std::uint32_t kSamples = 3;              // per shard
constexpr std::size_t kDataBytes = 1000;
constexpr std::size_t kMaxOpen = 4;

/// Returns the content of a sample's field "bin".
std::string data_of(std::int64_t version, std::uint32_t sample) {
  const std::string word = std::to_string(version) + "/" + std::to_string(sample) + ";";
  std::string data;
  while (data.size() < kDataBytes) data += word;
  return data.substr(0, kDataBytes);
}

/// Returns a shard. All versions have the same size, and most have the same headers.
std::string tar_of(std::int64_t version, bool in_other_order) {
  test::TarBuilder tar;
  for (std::uint32_t i = 0; i < kSamples; ++i) {
    const std::string key = "s" + std::to_string(i);
    if (in_other_order) tar.file(key + ".bin", data_of(version, i));
    tar.file(key + ".ver", std::to_string(version));
    if (!in_other_order) tar.file(key + ".bin", data_of(version, i));
  }
  return tar.end().bytes();
}

/// How a server identifies versions.
enum class Habit { kNewEtag, kSameEtag, kWeakEtag, kTime, kNothing };

/// A shard at its source.
struct Source {
  std::string name;
  bool is_local = false;
  Compression compression = Compression::kNone;
  /// The description that the source gives of each version. Two versions may have the same
  /// description.
  std::map<std::int64_t, std::string> known = {};
  Habit habit = Habit::kNewEtag;  // of a remote shard
  std::string etag = {}, time = {};
  std::int64_t mtime_s = 0;

  std::int64_t current() const { return known.rbegin()->first; }
};

struct Tally {
  std::uint64_t uploads = 0, builds = 0, reads = 0, right = 0, stale = 0, beyond_knowing = 0;
};

class CacheModelTest : public ::testing::Test, test::Dice {
 protected:
  CacheModelTest()
      : Dice(test::random_seed()),
        fetchers_(std::make_shared<const Fetchers>(test::quick_options())) {
    add({.name = "/a.tar"});
    add({.name = "/b.tar"});
    add({.name = "/c.tar.gz", .compression = Compression::kGzip});
    add({.name = "/local.tar.gz", .is_local = true, .compression = Compression::kGzip});
    open_cache();
  }

  void add(Source source) {
    sources_.push_back(std::move(source));
    upload(sources_.back());
  }

  std::string place(const Source& source) const {
    return source.is_local ? dir_.path() + source.name : server_.url(source.name);
  }

  /// Uploads another version. The source may describe it in the same way as the previous one.
  void upload(Source& source) {
    ++tally_.uploads;
    const std::int64_t version = kFirstVersion + static_cast<std::int64_t>(tally_.uploads);
    std::string stored = test::compress(tar_of(version, one_in(4)), source.compression);
    const auto note = [&](const std::string& known) {
      const std::lock_guard lock(mutex_);
      source.known[version] = known;
    };
    if (source.is_local) {
      test::write_file(place(source), stored);
      if (!one_in(5)) ++source.mtime_s;
      const timespec times[2] = {{0, UTIME_OMIT}, {source.mtime_s, 0}};
      ::utimensat(AT_FDCWD, place(source).c_str(), times, 0);
      const FileIdentity identity = file_identity(place(source));
      note(std::to_string(identity.size_bytes) + " " + std::to_string(identity.mtime_ns));
    } else {
      if (one_in(4)) source.habit = static_cast<Habit>(below(5));
      const std::string number = std::to_string(version);
      const std::string new_time = "Mon, 02 Jan 2023 00:00:" + number.substr(5) + " GMT";
      switch (source.habit) {
        case Habit::kNewEtag:
          source.etag = "\"" + number + "\"";
          source.time = one_in(2) ? new_time : "";
          break;
        case Habit::kSameEtag:
          source.etag = "\"same\"";
          source.time = new_time;
          break;
        case Habit::kWeakEtag:
          source.etag = "W/\"" + std::to_string(below(2)) + "\"";
          if (!one_in(3)) source.time = one_in(4) ? "" : new_time;
          break;
        case Habit::kTime:
          source.etag.clear();
          if (!one_in(4)) source.time = new_time;
          break;
        case Habit::kNothing:
          source.etag.clear();
          source.time.clear();
      }
      const std::string both = source.etag + "|" + source.time;
      note(source.etag.starts_with('"') ? source.etag : both == "|" ? "" : both);
      server_.serve(source.name, {.body = std::move(stored),
                                  .etag = source.etag,
                                  .last_modified = source.time,
                                  .has_head = !one_in(4),
                                  .has_if_match = !one_in(4)});
    }
  }

  void open_cache() {
    // Upper bound of a shard's size; sometimes the cache has little room.
    constexpr std::uint64_t kShardBytes = 16 * 1024;
    is_small_ = one_in(3);
    cache_ = ShardCache::open({.directory = dir_ / "cache",
                               .budget_bytes = (is_small_ ? 3 : 1000) * kShardBytes,
                               .room_timeout = std::chrono::milliseconds(5),
                               .fetchers = fetchers_});
  }

  std::string index_path(std::uint64_t slot) const {
    return dir_ / (std::to_string(slot) + ".idx");
  }

  void index(std::uint64_t slot) {
    ++tally_.builds;
    // Without the old index, all shards are scanned.
    if (one_in(2)) std::filesystem::remove(index_path(slot));
    std::vector<std::string> places;
    for (const Source& source : sources_) places.push_back(place(source));
    build_index(index_path(slot), places,
                {.content = {.columns = {parse_column("ver")}, .hashes = one_in(2)},
                 .remote = make_remote_access(fetchers_, one_in(2) ? cache_ : nullptr)});
    const auto index = Index::open(index_path(slot));
    for (std::uint64_t i = 0; i < sources_.size(); ++i) {
      Source& source = sources_[i];
      const std::int64_t described = segment_of(*index, i).value(0, 0).integer;
      ASSERT_TRUE(source.known.contains(described)) << described;
      const std::string& known = source.known[source.current()];
      if (described == source.current()) continue;
      EXPECT_EQ(source.known[described], known) << "an older version under the new one's ETag";
      EXPECT_NE(known, "") << "nothing said that it is the same";
    }
  }

  void open_dataset() {
    if (open_.size() == kMaxOpen) open_.pop_front();
    const Dataset::Access access = std::array{Dataset::Access::kMap, Dataset::Access::kRead,
                                              Dataset::Access::kRange}[below(3)];
    open_.push_back({Dataset::open(index_path(below(2)), {.max_open_shards = 1 + below(4),
                                                          .access = access,
                                                          .cache = cache_,
                                                          .fetchers = fetchers_}),
                     access, is_small_});
  }

  struct Opened {
    Dataset data;
    Dataset::Access access;
    bool has_small_cache;

    /// True if single samples may be fetched, because the access mode allows it or the shard does
    /// not fit.
    bool may_fetch_ranges() const { return access == Dataset::Access::kRange || has_small_cache; }
  };
  /// A sample that is kept, with the content it had when it was read.
  struct Kept {
    Sample sample;
    std::string data;
  };

  /// Reads a sample. @param races  the source may change during the read.
  std::optional<Kept> read(const Opened& opened, std::uint64_t shard, std::uint32_t i, bool races) {
    const Index& index = opened.data.index();
    Source& source = sources_[shard];
    const std::int64_t described = segment_of(index, shard).value(0, i).integer;
    const auto known = [&] {
      const std::lock_guard lock(mutex_);
      return std::pair(source.known, source.current());
    }();
    try {
      Sample sample = opened.data[index.first_sample(shard) + i];
      const std::string word(sample["ver"]), data(sample["bin"]);
      const auto is_of = [&](std::int64_t version) {
        return word == std::to_string(version) && data == data_of(version, i);
      };
      const std::lock_guard lock(mutex_);
      ++tally_.reads;
      if (is_of(described)) {
        ++tally_.right;
      } else if (may_be_taken_for(opened, source, described, is_of)) {
        ++tally_.beyond_knowing;
      } else {
        ADD_FAILURE() << place(source) << ": version " << escaped(word) << " with "
                      << escaped(data.substr(0, 9)) << ", where the index describes " << described
                      << " (" << source.known[described] << "); hashes " << index.content().hashes
                      << ", range " << (opened.access == Dataset::Access::kRange)
                      << ", small cache " << opened.has_small_cache;
      }
      return Kept{std::move(sample), data};
    } catch (const Unsupported& e) {
      EXPECT_THAT(e.what(), HasSubstr("single samples"));
      EXPECT_TRUE(opened.access == Dataset::Access::kRange && !index.content().hashes &&
                  source.compression == Compression::kNone && known.first.at(described).empty());
      return std::nullopt;
    } catch (const StaleIndex& e) {
      EXPECT_THAT(e.what(), HasSubstr(source.name));
      const std::lock_guard lock(mutex_);
      ++tally_.reads;
      ++tally_.stale;
      EXPECT_TRUE(races || described != known.second) << "it is there, and: " << e.what();
      return std::nullopt;
    }
  }

  /// True if the wrong version cannot be detected: the source describes both versions equally, and
  /// there are no hashes. In the cache, headers also distinguish versions.
  static bool may_be_taken_for(const Opened& opened, const Source& source, std::int64_t described,
                               const std::function<bool(std::int64_t version)>& is_of) {
    const std::string& known = source.known.at(described);
    // If the source does not identify versions, the whole shard was hashed.
    if (opened.data.index().content().hashes || known.empty()) return false;
    const bool is_range =
        opened.may_fetch_ranges() && !source.is_local && source.compression == Compression::kNone;
    return std::any_of(source.known.begin(), source.known.end(), [&](const auto& other) {
      return other.first != described && other.second == known && (is_range || is_of(other.first));
    });
  }

  void read_one() {
    const Opened& opened = open_[below(open_.size())];
    const std::uint64_t shard = below(sources_.size());
    if (auto kept = read(opened, shard, static_cast<std::uint32_t>(below(kSamples)), false)) {
      if (kept_.size() == kMaxOpen) kept_.pop_front();
      kept_.push_back(*std::move(kept));
    }
    for (const Kept& kept : kept_) EXPECT_EQ(kept.sample["bin"], kept.data) << "it changed";
  }

  /// Several threads read one shard while it is uploaded again.
  void read_at_once() {
    Source& source = sources_[below(sources_.size())];
    const auto shard = static_cast<std::uint64_t>(&source - sources_.data());
    std::vector<std::thread> readers;
    for (std::uint32_t i = 0; i < 3; ++i) {
      const Opened& opened = open_[below(open_.size())];
      readers.emplace_back([this, &opened, shard, i] { read(opened, shard, i, true); });
    }
    if (!source.is_local) upload(source);
    for (std::thread& reader : readers) reader.join();
  }

  void look_after_the_cache() {
    const ShardCache::Check check = cache_->verify();
    EXPECT_TRUE(check.damaged.empty());
    EXPECT_TRUE(check.unknown.empty());
    EXPECT_TRUE(check.foreign.empty());
    if (one_in(2)) cache_->prune(below(100'000));
    if (one_in(2)) open_cache();
  }

  void run(std::uint64_t steps) {
    for (const std::uint64_t slot : {0, 1}) index(slot);
    open_dataset();
    for (std::uint64_t step = 0; step < steps && !HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const std::uint64_t choice = below(100);
      if (choice < 15) {
        upload(sources_[below(sources_.size())]);
      } else if (choice < 30) {
        index(below(2));
      } else if (choice < 45) {
        open_dataset();
      } else if (choice < 90) {
        read_one();
      } else if (choice < 95) {
        read_at_once();
      } else {
        look_after_the_cache();
      }
    }
    std::cout << steps << " steps: " << tally_.uploads << " uploads, " << tally_.builds
              << " builds, " << tally_.reads << " reads: " << tally_.right << " right, "
              << tally_.stale << " stale, " << tally_.beyond_knowing
              << " of another version that nobody can tell apart\n";
    EXPECT_GT(tally_.right, steps / 10);
    EXPECT_GT(tally_.stale, steps / 50);
  }

  test::TempDir dir_;
  test::TestHttpServer server_;
  const std::shared_ptr<const Fetchers> fetchers_;
  std::shared_ptr<ShardCache> cache_;
  bool is_small_ = false;  // the cache has room for three shards
  std::vector<Source> sources_;
  std::deque<Opened> open_;
  std::deque<Kept> kept_;
  std::mutex mutex_;  // guards versions and tally while threads read
  Tally tally_;
};

TEST_F(CacheModelTest, Row47_NoByteIsOfAVersionThatTheIndexDoesNotDescribe) {
  run(static_cast<std::uint64_t>(test::repeats(500, 20'000)));
}

}  // namespace
}  // namespace shardwise
