#include "base/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "base/file.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::in_child;
using test::TempDir;
using test::write_file;

TEST(MappedFileTest, ShowsTheWholeFile) {
  const TempDir dir;
  std::string content(100'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31);
  write_file(dir / "f", content);
  for (const auto access : {MappedFile::Access::kNormal, MappedFile::Access::kRandom,
                            MappedFile::Access::kSequential}) {
    const MappedFile file = MappedFile::open(dir / "f", access);
    EXPECT_EQ(file.bytes(), content);
    EXPECT_EQ(file.identity(), file_identity(dir / "f"));
  }
}

TEST(MappedFileTest, AnEmptyFileGivesAnEmptyView) {
  const TempDir dir;
  write_file(dir / "f", "");
  const MappedFile file = MappedFile::open(dir / "f");
  EXPECT_TRUE(file.bytes().empty());
  EXPECT_EQ(file.identity().size_bytes, 0U);
}

TEST(MappedFileTest, AMissingFileIsNotFound) {
  const TempDir dir;
  const auto call = [&] { MappedFile::open(dir / "none"); };
  EXPECT_EQ(error_code(call), ErrorCode::kNotFound);
  EXPECT_EQ(error_text(call), "no such file: '" + dir / "none" + "'; check the path");
}

TEST(MappedFileTest, ADirectoryIsRefused) {
  const TempDir dir;
  const auto call = [&] { MappedFile::open(dir.path()); };
  EXPECT_EQ(error_code(call), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_text(call),
              ::testing::HasSubstr("a directory, not a file: '" + dir.path() + "'"));
}

TEST(MappedFileTest, AFifoIsRefusedWithoutWaitingForAWriter) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  for (const auto& call : {std::function<void()>([&] { MappedFile::open(dir / "fifo"); }),
                           std::function<void()>([&] { File::open_read(dir / "fifo"); })}) {
    EXPECT_EQ(error_code(call), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error_text(call), ::testing::HasSubstr("not a regular file: '"));
  }
}

TEST(MappedFileTest, TheViewOutlivesTheName) {
  const TempDir dir;
  write_file(dir / "f", "old bytes");
  const MappedFile unlinked = MappedFile::open(dir / "f");
  const MappedFile replaced = MappedFile::open(dir / "f");
  write_file(dir / "new", "new bytes");
  ASSERT_EQ(std::rename((dir / "new").c_str(), (dir / "f").c_str()), 0);
  EXPECT_EQ(replaced.bytes(), "old bytes");
  EXPECT_NE(replaced.identity(), file_identity(dir / "f"));
  ASSERT_EQ(::unlink((dir / "f").c_str()), 0);
  EXPECT_EQ(unlinked.bytes(), "old bytes");
}

TEST(MappedFileTest, AMoveLeavesTheBytesWhereTheyAre) {
  const TempDir dir;
  write_file(dir / "f", "some bytes");
  MappedFile first = MappedFile::open(dir / "f");
  const char* address = first.bytes().data();
  MappedFile second = std::move(first);
  EXPECT_EQ(second.bytes().data(), address);
  first = std::move(second);
  EXPECT_EQ(first.bytes().data(), address);
  EXPECT_EQ(first.bytes(), "some bytes");
}

TEST(MappedFileTest, HoldsNoDescriptor) {
  const TempDir dir;
  write_file(dir / "f", "some bytes");
  const std::size_t before = test::num_open_descriptors();
  const MappedFile file = MappedFile::open(dir / "f");
  EXPECT_EQ(test::num_open_descriptors(), before);
}

// faults.md 26
TEST(MappedFileTest, NoFreeDescriptorIsATypedError) {
  if (test::kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they use the descriptors "
                    "that it counts";
  const TempDir dir;
  write_file(dir / "f", "some bytes");
  EXPECT_EQ(in_child([&]() -> std::string {
              test::set_limit(RLIMIT_NOFILE, 3);
              // Open descriptors until dup() fails at the limit, so the next open must fail.
              while (::dup(0) >= 0) {
              }
              try {
                MappedFile::open(dir / "f");
                return "no error";
              } catch (const Error& e) {
                if (e.code() != ErrorCode::kIo) return "wrong code";
                const std::string text = e.what();
                if (text.find(dir / "f") == std::string::npos ||
                    text.find("(ulimit -n)") == std::string::npos) {
                  return text;
                }
                return {};
              }
            }),
            "");
}

}  // namespace
}  // namespace shardwise
