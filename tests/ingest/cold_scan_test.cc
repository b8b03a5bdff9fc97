// Indexing a shard of large members reads only their headers from the disk.

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "shardwise/ingest/index_builder.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TempDir;

/// Returns the number of bytes that this process has read from storage devices.
std::uint64_t device_bytes() {
  std::ifstream io("/proc/self/io");
  for (std::string line; std::getline(io, line);) {
    if (line.starts_with("read_bytes: ")) return std::stoull(line.substr(12));
  }
  return 0;
}

/// Removes the file from the page cache.
void forget(const std::string& path) {
  const File file = File::open_or_create(path);
  ASSERT_EQ(::fsync(file.fd()), 0);
  ASSERT_EQ(::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
}

std::string write_shard(const TempDir& dir, std::size_t num_members, std::size_t size_bytes) {
  const std::string path = dir / ("m" + std::to_string(size_bytes) + ".tar");
  test::TarBuilder tar;
  const std::string content(size_bytes, 'x');
  for (std::size_t i = 0; i < num_members; ++i) tar.file("s" + std::to_string(i) + ".bin", content);
  test::write_file(path, tar.end().bytes());
  return path;
}

TEST(ColdScanTest, OfLargeMembersTheHeadersAreRead) {
  const TempDir dir;
  constexpr std::size_t kMembers = 24;
  const std::string shard = write_shard(dir, kMembers, std::size_t{2} << 20);
  forget(shard);
  const std::uint64_t before = device_bytes();
  {
    const File file = File::open_read(shard);
    std::string all(kMembers << 21, '\0');
    file.read_at(0, all.data(), all.size());
  }
  const std::uint64_t whole = device_bytes() - before;
  if (whole < (kMembers << 20))
    GTEST_SKIP()
        << "needs a file system on a block device; skipped because reads are not counted here";

  forget(shard);
  const std::uint64_t cold = device_bytes();
  const BuildReport report = build_index(dir / "t.idx", {shard});
  const std::uint64_t read = device_bytes() - cold;
  EXPECT_EQ(report.summary.num_samples, kMembers);
  std::printf("%llu bytes read for %zu headers\n", static_cast<unsigned long long>(read), kMembers);
  EXPECT_LE(read, kMembers * 65536);

  // If members are small, the whole shard is read, with read-ahead.
  const std::string small = write_shard(dir, 400, 40'000);
  forget(small);
  EXPECT_EQ(build_index(dir / "s.idx", {small}).summary.num_samples, 400U);
}

/// An index of a shard with many samples, and the path of its table.
struct ManySamples {
  explicit ManySamples(const TempDir& dir) : index(dir / "many.idx") {
    test::TarBuilder tar;
    for (std::size_t i = 0; i < kSamples; ++i) tar.file("s" + std::to_string(i) + ".x", "");
    const std::string shard = dir / "many.tar";
    test::write_file(shard, tar.end().bytes());
    build_index(index, {shard});
    table = dir / test::table_of(dir, "many.idx");
  }

  static constexpr std::size_t kSamples = 40'000;
  const std::string index;
  std::string table;
};

TEST(ColdScanTest, ALookUpByKeyReadsFewPages) {
  const TempDir dir;
  const ManySamples many(dir);
  const auto index = Index::open(many.index);
  constexpr std::uint64_t kFew = 20;
  std::uint64_t read = 0;
  for (std::uint64_t i = 0; i < kFew; ++i) {
    forget(many.table);
    const std::uint64_t before = device_bytes();
    ASSERT_EQ(index->find("s" + std::to_string(1999 * i)), 1999 * i);
    read += device_bytes() - before;
  }
  std::printf("%llu bytes read for a look-up\n", static_cast<unsigned long long>(read / kFew));
  EXPECT_LE(read / kFew, 65'536U);
}

/// Returns the number of bytes that `read` reads while the file is not in the page cache.
template <class Read>
std::uint64_t cold_bytes(const std::string& path, const Read& read) {
  forget(path);
  const std::uint64_t before = device_bytes();
  read();
  return device_bytes() - before;
}

TEST(ColdScanTest, AnUpdateWithoutChangesReadsNoMoreThanOpening) {
  const TempDir dir;
  const ManySamples many(dir);
  // The kernel may read the whole table ahead, so bytes read do not show what the update uses.
  // Damage in the table does: an update notices it only with check_index.
  std::string bytes = test::read_file(many.table);
  bytes[bytes.size() / 4] ^= 1;
  test::write_file(many.table, bytes);
  EXPECT_EQ(build_index(many.index, {dir / "many.tar"}).shards_reused, 1U);
  EXPECT_EQ(build_index(many.index, {dir / "many.tar"}, {.check_index = true}).shards_scanned, 1U);
  const std::uint64_t opening =
      cold_bytes(many.table, [&] { EXPECT_EQ(Index::open(many.index)->size(), many.kSamples); });
  const std::uint64_t update = cold_bytes(many.table, [&] {
    EXPECT_EQ(build_index(many.index, {dir / "many.tar"}).shards_reused, 1U);
  });
  EXPECT_LE(update, opening + 65'536);
}

}  // namespace
}  // namespace shardwise
