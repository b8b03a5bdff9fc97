// faults.md 25: the n-th allocation fails, for each n up to the number of allocations in a run.
// Each failing run must end with std::bad_alloc or a typed error, leak nothing, and leave a usable
// state.
#include <sqlite3.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/ordered_pipeline.h"
#include "data/shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/order/sampler.h"
#include "support/support.h"

namespace {

/// Counts down to the allocation that must fail; 0 means disabled.
class FailurePoint {
 public:
  void arm(std::int64_t n, bool for_good) {
    for_good_ = for_good;
    fired_ = false;
    left_ = n;
  }
  void disarm() { left_ = 0; }
  bool fired() const { return fired_; }

  /// True if the calling allocation must fail.
  bool reached() {
    std::int64_t left = left_.load();
    while (left > 0) {
      if (for_good_ && left == 1) break;
      if (left_.compare_exchange_weak(left, left - 1)) break;
    }
    if (left != 1) return false;
    fired_ = true;
    return true;
  }

 private:
  std::atomic<std::int64_t> left_{0};
  std::atomic<bool> for_good_{false};
  std::atomic<bool> fired_{false};
};

FailurePoint of_new;
FailurePoint of_sqlite;
std::atomic<std::int64_t> num_alive{0};

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (of_new.reached()) return nullptr;
  void* const p =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p != nullptr) ++num_alive;
  return p;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment = 1) {
  if (void* const p = allocate(size == 0 ? 1 : size, alignment)) return p;
  throw std::bad_alloc();
}

void release(void* p) noexcept {
  if (p != nullptr) --num_alive;
  std::free(p);
}

}  // namespace

// The standard library's array and nothrow forms call these operators.
void* operator new(std::size_t size) { return allocate_or_throw(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size) { return allocate_or_throw(size); }
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size == 0 ? 1 : size, 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size == 0 ? 1 : size, 1);
}
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }

namespace shardwise {
namespace {

using test::Shards;
using test::wrong_with;

sqlite3_mem_methods real_methods;

void* sqlite_malloc(int size) { return of_sqlite.reached() ? nullptr : real_methods.xMalloc(size); }
void* sqlite_realloc(void* p, int size) {
  return of_sqlite.reached() ? nullptr : real_methods.xRealloc(p, size);
}

class MemoryFaultTest : public ::testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_methods), SQLITE_OK);
    sqlite3_mem_methods methods = real_methods;
    methods.xMalloc = sqlite_malloc;
    methods.xRealloc = sqlite_realloc;
    ASSERT_EQ(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods), SQLITE_OK);
  }
  void TearDown() override {
    of_new.disarm();
    of_sqlite.disarm();
  }

  /// Runs `work` repeatedly, for n = 1, 2, 3, ..., until it makes fewer than n allocations. The
  /// n-th allocation fails (with some parameters, all later ones fail too). After each failure,
  /// `check` returns the error, or "".
  static void fail_each(FailurePoint& point, const std::function<void()>& work,
                        const std::function<std::string()>& check) {
    work();  // allocates what is allocated once per process
    ASSERT_EQ(check(), "");
    const std::int64_t alive = num_alive;
    const sqlite3_int64 sqlite_bytes = sqlite3_memory_used();
    std::int64_t failures = 0;
    for (std::int64_t n = 1;; ++n) {
      point.arm(n, GetParam());
      try {
        work();
        point.disarm();
      } catch (const std::bad_alloc&) {
        point.disarm();
        ++failures;
      } catch (const Error& e) {
        point.disarm();
        ++failures;
        ASSERT_NE(std::string(e.what()), "");
      }
      ASSERT_EQ(num_alive, alive) << "allocations leaked at " << n;
      if (!point.fired()) break;
      ASSERT_EQ(check(), "") << "after the failure of allocation " << n;
      ASSERT_EQ(sqlite3_memory_used(), sqlite_bytes) << "SQLite's leaked at " << n;
      ASSERT_EQ(num_alive, alive) << "allocations leaked by the check after " << n;
    }
    EXPECT_GT(failures, 10);
  }

  const Shards shards_{3, 4};
};
INSTANTIATE_TEST_SUITE_P(How, MemoryFaultTest, ::testing::Values(false, true),
                         [](const auto& param_info) {
                           return param_info.param ? "ForGood" : "Once";
                         });

/// Opens a dataset and reads all of it, with at most one open shard.
std::string read_all(const std::string& path, Dataset::Access access) {
  return wrong_with(Dataset::open(path, {.max_open_shards = 1, .access = access}));
}

TEST_P(MemoryFaultTest, OpeningAndReading) {
  for (const Dataset::Access access : {Dataset::Access::kMap, Dataset::Access::kRead}) {
    for (FailurePoint* point : {&of_new, &of_sqlite}) {
      const std::string path = shards_.index_path();
      fail_each(
          *point, [&] { static_cast<void>(read_all(path, access)); },
          [&] { return read_all(path, access); });
    }
  }
}

TEST_P(MemoryFaultTest, ADatasetThatIsOpenGoesOn) {
  for (const Dataset::Access access : {Dataset::Access::kMap, Dataset::Access::kRead}) {
    for (FailurePoint* point : {&of_new, &of_sqlite}) {
      const Dataset data =
          Dataset::open(shards_.index_path(), {.max_open_shards = 1, .access = access});
      const Sample held = data[5];
      const auto read = [&]() -> std::string {
        std::string wrong = wrong_with(data);
        if (wrong.empty() && data.get(test::key_of(9)).copy("bin") != test::content_of(9)) {
          wrong = "wrong by key";
        }
        if (wrong.empty() && held["bin"] != test::content_of(5)) wrong = "a held view changed";
        static_cast<void>(data[11]);  // leaves the same shard open each time
        return wrong;
      };
      if (point == &of_sqlite) {
        // SQLite may have enough memory already, or allocate more; both are correct.
        read();
        of_sqlite.arm(1, GetParam());
        try {
          read();
        } catch (const std::exception&) {
        }
        of_sqlite.disarm();
        EXPECT_EQ(read(), "");
        continue;
      }
      fail_each(
          *point, [&] { read(); }, read);
    }
  }
}

// Exceptions of the scanning threads are rethrown to the caller, and the index is either the old or
// the new one.
TEST_P(MemoryFaultTest, BringingAnIndexUpToDate) {
  namespace fs = std::filesystem;
  for (FailurePoint* point : {&of_new, &of_sqlite}) {
    const std::string folder = shards_.dir() / "of";
    const std::string path = folder + "/x.idx";
    fs::create_directory(folder);
    const auto& paths = shards_.paths();
    build_index(path, {paths[0], paths[1]}, {.threads = 2});
    fs::copy(folder, shards_.dir() / "old");
    fail_each(
        *point, [&] { build_index(path, paths, {.threads = 2}); },
        [&]() -> std::string {
          const std::uint64_t size = Index::open(path)->size();
          if (size != 8 && size != 12) return "an index of " + std::to_string(size) + " samples";
          const Dataset data = Dataset::open(path);
          if (std::string wrong = wrong_with(data); !wrong.empty()) return wrong;
          fs::copy(shards_.dir() / "old", folder, fs::copy_options::overwrite_existing);
          return {};
        });
    std::size_t num_files = 0;
    for (const auto& entry : fs::directory_iterator(folder)) num_files += entry.exists() ? 1 : 0;
    EXPECT_EQ(num_files, 2U) << "the last build left something behind";
    fs::remove_all(folder);
    fs::remove_all(shards_.dir() / "old");
  }
}

TEST_P(MemoryFaultTest, APrefetcherThatCannotBeginAnEpochStaysAsItWas) {
  std::vector<std::string> compressed;
  for (const std::string& path : shards_.paths()) {
    compressed.push_back(path + ".gz");
    test::write_file(compressed.back(), test::compress(test::read_file(path), Compression::kGzip));
  }
  const std::string index = shards_.dir() / "compressed.idx";
  build_index(index, compressed);
  const Dataset data =
      Dataset::open(index, {.cache = ShardCache::open({.directory = shards_.dir() / "cache"})});
  const auto known = make_sampler(data, {.kind = Sharded{}}, {});
  const auto unknown = make_sampler(data, {.kind = Resampled{}}, {});
  ShardPrefetcher prefetcher(data, *unknown, {.fetch_threads = 0});
  std::int64_t failures = 0;
  for (std::int64_t n = 1;; ++n) {
    prefetcher.begin_epoch(*unknown);
    ASSERT_FALSE(prefetcher.is_active());
    of_new.arm(n, GetParam());
    try {
      prefetcher.begin_epoch(*known);
      of_new.disarm();
    } catch (const std::bad_alloc&) {
      of_new.disarm();
      ++failures;
      ASSERT_FALSE(prefetcher.is_active()) << "after the failure of allocation " << n;
    }
    if (!of_new.fired()) break;
  }
  EXPECT_TRUE(prefetcher.is_active());
  EXPECT_GT(failures, 10);
}

// If a thread cannot allocate memory for the pipeline itself, the consumer also gets the exception.
TEST_P(MemoryFaultTest, APipelineOfThreads) {
  using Large = std::array<char, 1000>;
  const auto run = [] {
    int next = 0;
    OrderedPipeline<int, Large> pipeline(
        [&]() -> std::optional<int> { return next < 40 ? std::optional(next++) : std::nullopt; },
        [](int& item) { return Large{static_cast<char>(item)}; }, {.threads = 2, .prefetch = 8});
    int expected = 0;
    while (const auto result = pipeline.next()) {
      if ((*result)[0] != expected++) throw std::logic_error("another result");
    }
    if (expected != 40) throw std::logic_error("an end before the end");
  };
  fail_each(of_new, run, [] { return std::string(); });
}

}  // namespace
}  // namespace shardwise
