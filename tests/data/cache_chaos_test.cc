// Several processes use one cache while many things go wrong at once: kills, stops, server outages,
// a full disk, changing budgets, and an administrator who prunes. Every sample must be correct, no
// process may fail because of a temporary fault, none may hang, and the disk usage must stay within
// its bound.
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/order/sampler.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::IsEmpty;

constexpr std::size_t kProcesses = 8;
constexpr int kShards = 36;
constexpr std::uint64_t kSamples = 20;  // per shard
constexpr std::size_t kSampleBytes = 7000;
// The smallest and the largest number of shards for which a budget has room.
constexpr std::uint64_t kMinShards = 4, kMaxShards = 16;

/// How long the test runs.
std::chrono::seconds duration() { return std::chrono::seconds(test::repeats(6, 1200)); }

std::string text_of(std::uint64_t sample) {
  return test::some_bytes(kSampleBytes, static_cast<std::uint32_t>(sample + 1));
}

/// A separate file system mounted on a folder, for this process and its children.
class SmallDisk {
 public:
  /// If mounting is not allowed, leaves the folder unchanged.
  SmallDisk(const std::string& folder, std::uint64_t bytes) {
    const std::string options = "size=" + std::to_string(bytes) + ",mode=0700";
    is_there_ = ::unshare(CLONE_NEWNS) == 0 &&
                ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                ::mount("none", folder.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (is_there_) folder_ = folder;
  }
  ~SmallDisk() {
    if (is_there_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool is_there() const { return is_there_; }
  /// Fills the disk until at most this many bytes are free.
  void fill(std::uint64_t bytes_left) const {
    const std::uint64_t free = std::filesystem::space(folder_).available;
    if (free <= bytes_left) return;
    try {
      test::write_file(folder_ + "/filler", std::string(free - bytes_left, 'f'));
    } catch (const std::exception&) {
      // Another process took the space first. The disk is then full, as intended.
    }
  }
  void empty() const { std::filesystem::remove(folder_ + "/filler"); }

 private:
  bool is_there_ = false;
  std::string folder_;
};

class CacheChaosTest : public ::testing::Test {
 protected:
  struct Board {
    std::atomic<bool> is_over{false};
    std::array<std::atomic<std::uint64_t>, kProcesses> samples{};
    std::atomic<std::uint64_t> fetched{0};
  };

  CacheChaosTest() {
    std::filesystem::create_directory(dir_ / "disk");
    disk_ = std::make_unique<SmallDisk>(dir_ / "disk", 4 * kMaxShards * kSamples * 8192);
    std::vector<std::string> urls;
    for (int shard = 0; shard < kShards; ++shard) {
      test::TarBuilder tar;
      for (std::uint64_t i = 0; i < kSamples; ++i) {
        const std::uint64_t sample = static_cast<std::uint64_t>(shard) * kSamples + i;
        tar.file("s" + std::to_string(sample) + ".txt", text_of(sample));
      }
      tar.end();
      shard_bytes_ = tar.size();
      const bool is_compressed = shard % 3 == 2;
      const std::string path = "/" + std::to_string(shard) + (is_compressed ? ".tar.gz" : ".tar");
      std::string body =
          is_compressed ? test::compress(tar.bytes(), Compression::kGzip) : tar.bytes();
      original_bytes_ = std::max<std::uint64_t>(original_bytes_, body.size());
      // Slow enough that kills and stops occur during fetches.
      server_.serve(path,
                    {.body = std::move(body), .drip_bytes = 40'000, .drip_wait = milliseconds(1)});
      urls.push_back(server_.url(path));
    }
    build_index(dir_ / "index", urls, {.remote = make_remote_access(fetchers(), nullptr)});
  }

  /// Options with a user's retry budget, but shorter pauses between retries.
  static std::shared_ptr<const Fetchers> fetchers() {
    Fetchers::Options options = test::quick_options();
    options.max_retries = std::numeric_limits<int>::max();
    options.retry_base_delay = milliseconds(20);
    options.retry_max_delay = milliseconds(500);
    return std::make_shared<const Fetchers>(options);
  }
  std::shared_ptr<ShardCache> cache(std::uint64_t budget_shards) const {
    return ShardCache::open({.directory = dir_ / "disk/cache",
                             .budget_bytes = budget_shards * shard_bytes_,
                             .room_timeout = milliseconds(5),
                             .wait_timeout = std::chrono::hours(1),
                             .fetchers = fetchers()});
  }

  /// Reads epochs in random orders through the cache until the test ends.
  std::string read_on(std::size_t process, std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    while (!board_->is_over) {
      const auto shards = cache(kMinShards + random() % (kMaxShards - kMinShards + 1));
      const Dataset data = Dataset::open(dir_ / "index", {.cache = shards});
      Order order{.seed = random() % 3};
      switch (random() % 4) {
        case 0:
          order.kind = Sequential{};
          break;
        case 1:
          order.kind = Resampled{};
          break;
        default:
          order.kind = Sharded{.window = 1};
      }
      const std::uint64_t world = 1 + random() % 3;
      const auto sampler =
          make_sampler(data, order, {.rank = random() % world, .world_size = world});
      sampler->set_epoch(random() % 4);
      ShardPrefetcher prefetcher(
          data, *sampler, {.fetch_threads = static_cast<unsigned>(random() % 3), .max_ahead = 4});
      for (std::uint64_t left = 1 + random() % 400; left > 0 && !board_->is_over; --left) {
        const auto number = sampler->next();
        if (!number) break;
        const Sample sample = data[*number];
        if (sample["txt"] != text_of(*number)) {
          return "sample " + std::to_string(*number) + " is wrong";
        }
        prefetcher.reached(sampler->position());
        ++board_->samples[process];
      }
      board_->fetched += shards->stats().fetched;
    }
    return "";
  }
  std::unique_ptr<test::Child> reader(std::size_t process, std::uint64_t seed) {
    return std::make_unique<test::Child>([this, process, seed] { return read_on(process, seed); });
  }

  std::uint64_t disk_bytes() const {
    std::uint64_t bytes = 0;
    std::error_code gone;
    for (auto entry = std::filesystem::directory_iterator(dir_ / "disk/cache/shards", gone);
         !gone && entry != std::filesystem::directory_iterator(); entry.increment(gone)) {
      std::error_code no_size;
      if (const auto size = entry->file_size(no_size); !no_size) bytes += size;
    }
    return bytes;
  }

  test::TempDir dir_;
  std::unique_ptr<SmallDisk> disk_;
  test::TestHttpServer server_;
  std::uint64_t shard_bytes_ = 0, original_bytes_ = 0;
  const test::Shared<Board> board_;
};

// Fault under test: tests/faults.md 52.
TEST_F(CacheChaosTest, NoByteIsWrongAndNobodyIsStuckOrDiesOfWhatCanBeWaitedOut) {
  std::mt19937_64 random(test::random_seed());
  const auto all = duration();
  // Usually short. With probability 1 / `rarely`, up to 1 / `part` of the whole run.
  const auto some_time = [&](unsigned rarely, std::uint64_t part) {
    const auto most = static_cast<std::uint64_t>(1000 * all.count()) / part;
    return milliseconds(random() %
                        (random() % rarely == 0 ? most : std::min<std::uint64_t>(most, 300)));
  };
  cache(kMaxShards);

  struct Reader {
    std::unique_ptr<test::Child> child;
    steady_clock::time_point stopped_until{};
    bool is_stopped = false;
  };
  std::array<Reader, kProcesses> readers;
  for (std::size_t i = 0; i < kProcesses; ++i) readers[i].child = reader(i, random());

  std::map<std::string, int> done;
  std::atomic<bool> is_away{false};
  steady_clock::time_point away_until{}, full_until{};
  server_.set_gate([&](const test::LoggedRequest&) -> std::optional<std::pair<int, std::string>> {
    if (is_away) return std::pair(503, std::string("away"));
    return std::nullopt;
  });
  // The budget, plus one shard in use and one compressed original per process. A process's reader
  // and its two fetching threads could expand three at once, but that almost never happens.
  const std::uint64_t bound =
      kMaxShards * shard_bytes_ + kProcesses * (shard_bytes_ + original_bytes_);
  std::uint64_t most = 0;
  std::string wrong;
  const auto let_go_on = [&] {
    const auto now = steady_clock::now();
    for (Reader& stopped : readers) {
      if (stopped.is_stopped && now >= stopped.stopped_until) {
        stopped.child->send(SIGCONT);
        stopped.is_stopped = false;
      }
    }
  };
  // The administrator waits for a process that holds the room byte's lock, even if that process is
  // stopped.
  const auto administer = [&](const std::function<void()>& work) {
    auto end = std::async(std::launch::async, work);
    while (end.wait_for(milliseconds(1)) != std::future_status::ready) let_go_on();
    end.get();
  };
  const auto end = steady_clock::now() + all;
  for (auto now = steady_clock::now(); now < end && wrong.empty(); now = steady_clock::now()) {
    std::this_thread::sleep_for(milliseconds(random() % 40));
    let_go_on();
    if (is_away && now >= away_until) is_away = false;
    if (full_until != steady_clock::time_point{} && now >= full_until) {
      disk_->empty();
      full_until = {};
    }
    most = std::max(most, disk_bytes());
    const std::size_t i = random() % kProcesses;
    Reader& chosen = readers[i];
    switch (random() % 16) {
      case 0:
      case 1:
      case 2: {
        chosen.child->kill();
        if (const std::string said = chosen.child->wait(); said != "killed by signal 9") {
          wrong = "a process died by itself: " + said;
        }
        chosen = {.child = reader(i, random())};
        ++done["killed"];
        break;
      }
      case 3:
        if (chosen.is_stopped) break;
        chosen.child->send(SIGSTOP);
        chosen.is_stopped = true;
        chosen.stopped_until = now + some_time(60, 8);
        ++done["stopped"];
        break;
      case 4:
        if (is_away) break;
        away_until = now + some_time(40, 4);
        is_away = true;
        ++done["outages"];
        break;
      case 5:
        if (!disk_->is_there() || full_until != steady_clock::time_point{}) break;
        // Leave room for the shards in use and being fetched, but not for all that the budget
        // allows.
        disk_->fill(kProcesses * (shard_bytes_ + original_bytes_));
        full_until = now + some_time(40, 20);
        ++done["full disks"];
        break;
      case 6:
        administer([&] { cache(kMaxShards)->prune((random() % 3) * kMinShards * shard_bytes_); });
        ++done["pruned"];
        break;
      case 7:
        administer([&] {
          for (const ShardCache::Entry& entry : cache(kMaxShards)->entries()) {
            if (random() % 4 == 0) cache(kMaxShards)->remove(entry.name);
          }
        });
        ++done["removed some"];
        break;
      case 8: {
        ShardCache::Check check;
        administer([&] { check = cache(kMaxShards)->verify(); });
        if (!check.damaged.empty()) wrong = "damaged: " + check.damaged.front().url;
        ++done["verified"];
        break;
      }
      default:
        break;
    }
  }
  is_away = false;
  if (disk_->is_there()) disk_->empty();
  board_->is_over = true;
  for (Reader& left : readers) left.child->send(SIGCONT);
  for (Reader& left : readers) EXPECT_EQ(left.child->wait(), "");
  EXPECT_EQ(wrong, "");
  EXPECT_LE(most, bound);

  std::uint64_t samples = 0;
  for (const auto& count : board_->samples) samples += count;
  std::printf("%d s: %llu samples read, %llu shards fetched; at most %llu of %llu bytes on disk\n",
              static_cast<int>(all.count()), static_cast<unsigned long long>(samples),
              static_cast<unsigned long long>(board_->fetched.load()),
              static_cast<unsigned long long>(most), static_cast<unsigned long long>(bound));
  for (const auto& [what, times] : done) std::printf("  %s: %d\n", what.c_str(), times);
  EXPECT_GT(samples, 0u);
  const auto after = cache(kMaxShards);
  EXPECT_LE(after->used_bytes(), kMaxShards * shard_bytes_);
  EXPECT_THAT(after->verify().damaged, IsEmpty());
  EXPECT_THAT(after->verify().foreign, IsEmpty());
}

}  // namespace
}  // namespace shardwise
