#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::read_file;
using test::TempDir;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

TEST(FileTest, WritesAndReadsAtPositions) {
  const TempDir dir;
  File file = File::create_exclusive(dir / "f");
  file.write("hello ");
  file.write("world");
  file.write_at(0, "J");
  file.write("!");  // write_at did not move the position
  file.sync();
  std::array<char, 32> buffer{};
  EXPECT_EQ(file.read_at(0, buffer.data(), buffer.size()), 12U);
  EXPECT_EQ(std::string_view(buffer.data(), 12), "Jello world!");
  EXPECT_EQ(file.read_at(6, buffer.data(), 5), 5U);
  EXPECT_EQ(std::string_view(buffer.data(), 5), "world");
  EXPECT_EQ(file.read_at(12, buffer.data(), 5), 0U);
}

TEST(FileTest, CreateExclusiveRefusesWhatExists) {
  const TempDir dir;
  write_file(dir / "f", "mine");
  EXPECT_THAT(error_text([&] { File::create_exclusive(dir / "f"); }),
              HasSubstr("cannot create: '" + dir / "f" + "'"));
  EXPECT_EQ(read_file(dir / "f"), "mine");
}

TEST(FileTest, CreateExclusiveDoesNotFollowALink) {
  const TempDir dir;
  ASSERT_EQ(::symlink((dir / "target").c_str(), (dir / "f").c_str()), 0);
  EXPECT_EQ(error_code([&] { File::create_exclusive(dir / "f"); }), ErrorCode::kIo);
  EXPECT_THAT(dir.list(), ElementsAre("f"));
}

TEST(FileTest, OpenReadOfAMissingFileOrADirectorySaysWhich) {
  const TempDir dir;
  EXPECT_EQ(error_text([&] { File::open_read(dir / "none"); }),
            "no such file: '" + dir / "none" + "'; check the path");
  EXPECT_EQ(error_code([&] { File::open_read(dir / "none"); }), ErrorCode::kNotFound);
  EXPECT_EQ(error_code([&] { File::open_read(dir.path()); }), ErrorCode::kInvalidArgument);
}

TEST(FileTest, AMovedFileClosesOnce) {
  const TempDir dir;
  const std::size_t before = test::num_open_descriptors();
  {
    File first = File::create_exclusive(dir / "f");
    File second = std::move(first);
    EXPECT_EQ(first.fd(), -1);
    second.write("x");
    first = std::move(second);
    first.write("y");
    EXPECT_EQ(test::num_open_descriptors(), before + 1);
  }
  EXPECT_EQ(test::num_open_descriptors(), before);
  EXPECT_EQ(read_file(dir / "f"), "xy");
}

TEST(FileTest, DescriptorsAreClosedOnExec) {
  const TempDir dir;
  write_file(dir / "f", "x");
  const File file = File::open_read(dir / "f");
  // The shell must not have inherited the descriptor.
  const std::string command = "test ! -e /proc/self/fd/" + std::to_string(file.fd());
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(FileTest, IdentityTellsAFileFromItselfAtAnotherTime) {
  const TempDir dir;
  write_file(dir / "f", "12345");
  const timespec times[2] = {{1'000'000'000, 123'456'789}, {1'000'000'000, 123'456'789}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (dir / "f").c_str(), times, 0), 0);
  const FileIdentity identity = file_identity(dir / "f");
  EXPECT_EQ(identity.size_bytes, 5U);
  EXPECT_EQ(identity.mtime_ns, 1'000'000'000'123'456'789);
  const File file = File::open_read(dir / "f");
  EXPECT_EQ(file_identity(file.fd(), file.path()), identity);
  ASSERT_EQ(::symlink((dir / "f").c_str(), (dir / "link").c_str()), 0);
  EXPECT_EQ(file_identity(dir / "link"), identity);
  write_file(dir / "f", "54321");
  EXPECT_NE(file_identity(dir / "f"), identity);
}

TEST(FileTest, ALockIsHeldByOneOpenFileAndFreedByItsClose) {
  const TempDir dir;
  write_file(dir / "f", "");
  File first = File::open_read(dir / "f");
  File second = File::open_read(dir / "f");
  EXPECT_EQ(first.try_lock(), FileLock::kTaken);
  EXPECT_EQ(first.try_lock(), FileLock::kTaken);
  EXPECT_EQ(second.try_lock(), FileLock::kHeldByAnother);
  first.close();
  EXPECT_EQ(second.try_lock(), FileLock::kTaken);
}

TEST(FileTest, DirectoryOfIsThePartBeforeTheLastSlash) {
  EXPECT_EQ(directory_of("a"), ".");
  EXPECT_EQ(directory_of("a/b"), "a");
  EXPECT_EQ(directory_of("/a"), "/");
  EXPECT_EQ(directory_of("/a/b/c"), "/a/b");
  EXPECT_EQ(directory_of("../x"), "..");
}

TEST(FileTest, ALinkIsNotFollowedByANameThatContinuesAfterANul) {
  const TempDir dir;
  write_file(dir / "f", "");
  ASSERT_EQ(::symlink("f", (dir / "link").c_str()), 0);
  EXPECT_EQ(behind_links(dir / "link"), dir / "f");
  EXPECT_EQ(error_code([&] { behind_links(dir / "link" + std::string("\0x", 2)); }),
            ErrorCode::kInvalidArgument);
}

TEST(FileTest, RandomNamesAreHexadecimalAndDiffer) {
  EXPECT_THAT(random_name(12), MatchesRegex("[0-9a-f]{12}"));
  EXPECT_THAT(random_name(7), MatchesRegex("[0-9a-f]{7}"));
  EXPECT_NE(random_name(16), random_name(16));
}

TEST(AtomicFileTest, AppearsWholeAtCommit) {
  const TempDir dir;
  AtomicFile file(dir / "f");
  file.file().write("half, ");
  EXPECT_THAT(dir.list(), ElementsAre(MatchesRegex("f\\.[0-9a-f]{12}\\.tmp")));
  file.file().write("whole");
  file.commit();
  EXPECT_THAT(dir.list(), ElementsAre("f"));
  EXPECT_EQ(read_file(dir / "f"), "half, whole");
}

TEST(AtomicFileTest, TakesThePlaceOfNoPipeOrDevice) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("pipe", (dir / "link").c_str()), 0);
  for (const std::string& path : {dir / "pipe", dir / "link", std::string("/dev/null")}) {
    EXPECT_THAT(test::error_text([&] { AtomicFile{path}; }),
                ::testing::AllOf(::testing::HasSubstr("cannot replace: '" + path + "'"),
                                 ::testing::HasSubstr("a pipe")));
  }
  EXPECT_THAT(dir.list(), ElementsAre("link", "pipe"));
}

TEST(AtomicFileTest, ReplacesTheOldFileAtCommitAndNotBefore) {
  const TempDir dir;
  write_file(dir / "f", "old");
  {
    AtomicFile file(dir / "f");
    file.file().write("new");
    EXPECT_EQ(read_file(dir / "f"), "old");
    file.commit();
    EXPECT_EQ(read_file(dir / "f"), "new");
  }
  EXPECT_EQ(read_file(dir / "f"), "new");
}

TEST(AtomicFileTest, WithoutCommitLeavesNothing) {
  const TempDir dir;
  write_file(dir / "old", "old");
  {
    AtomicFile made(dir / "f");
    made.file().write("lost");
    AtomicFile replacing(dir / "old");
    replacing.file().write("lost");
  }
  EXPECT_THAT(dir.list(), ElementsAre("old"));
  EXPECT_EQ(read_file(dir / "old"), "old");
}

TEST(AtomicFileTest, TheNameMayBeChosenLate) {
  const TempDir dir;
  AtomicFile file(dir / "f");
  file.file().write("x");
  file.set_path(dir / "f.1234");
  file.commit();
  EXPECT_THAT(dir.list(), ElementsAre("f.1234"));
}

TEST(AtomicFileTest, OneThatIsKeptStays) {
  const TempDir dir;
  {
    AtomicFile file(dir / "f");
    file.file().write("half, ");
    write_file(dir / "f.begun", "of another time");
    file.keep_as(dir / "f.begun");
    EXPECT_THAT(dir.list(), ElementsAre("f.begun"));
    EXPECT_EQ(File::open_or_create(dir / "f.begun").try_lock(), FileLock::kHeldByAnother);
    file.file().write("kept");
  }
  EXPECT_EQ(read_file(dir / "f.begun"), "half, kept");
}

TEST(AtomicFileTest, AMissingDirectoryIsNotFound) {
  const TempDir dir;
  EXPECT_EQ(error_code([&] { AtomicFile(dir / "none/f"); }), ErrorCode::kNotFound);
  EXPECT_THAT(error_text([&] { AtomicFile(dir / "none/f"); }), HasSubstr(dir / "none/f"));
}

TEST(AtomicFileTest, AFailedCommitLeavesTheOldFile) {
  const TempDir dir;
  ASSERT_EQ(::mkdir((dir / "f").c_str(), 0700), 0);
  write_file(dir / "f/keep", "keep");
  {
    AtomicFile file(dir / "f");
    file.file().write("new");
    EXPECT_THAT(error_text([&] { file.commit(); }),
                HasSubstr("cannot replace: '" + dir / "f" + "'"));
  }
  EXPECT_THAT(dir.list(), ElementsAre("f"));
  EXPECT_EQ(read_file(dir / "f/keep"), "keep");
}

TEST(SweepTest, RemovesStraysOfThisPathAndNothingElse) {
  const TempDir dir;
  const std::vector<std::string> others = {"train.idx",
                                           "train.idx.tmp",
                                           "train.idx.0123456789a.tmp",
                                           "train.idx.0123456789abc.tmp",
                                           "train.idx.0123456789ab.TMP",
                                           "train.idx.0123456789ab.tmp.gz",
                                           "eval.idx.0123456789ab.tmp",
                                           "train.idx.0123456789abcdef.table",
                                           "xtrain.idx.0123456789ab.tmp",
                                           "train.idx.my-own-notes.tmp"};
  for (const std::string& name : others) write_file(dir / name, "a user's own");
  write_file(dir / "train.idx.0123456789ab.tmp", "stray");
  write_file(dir / "train.idx.ba9876543210.tmp", "stray");
  ASSERT_EQ(::mkdir((dir / "train.idx.aaaaaaaaaaaa.tmp").c_str(), 0700), 0);
  sweep_temporaries(dir / "train.idx");
  std::vector<std::string> left = others;
  left.emplace_back("train.idx.aaaaaaaaaaaa.tmp");
  EXPECT_THAT(dir.list(), ::testing::UnorderedElementsAreArray(left));
}

TEST(NamelessFileTest, IsWrittenReadAndMappedAndLeavesNothing) {
  const TempDir dir;
  File file = File::create_nameless(dir / "f");
  file.write("bytes");
  EXPECT_THAT(dir.list(), IsEmpty());
  EXPECT_FALSE(file.has_name());
  const MappedFile mapped = MappedFile::open(file);
  EXPECT_EQ(mapped.identity().size_bytes, 5U);
  file.close();
  EXPECT_EQ(mapped.bytes(), "bytes");
  const auto nowhere = [&] { File::create_nameless(dir / "none/f"); };
  EXPECT_EQ(test::error_code(nowhere), ErrorCode::kNotFound);
  EXPECT_THAT(test::error_text(nowhere), ::testing::HasSubstr(dir / "none/f"));
}

TEST(SweepTest, LeavesWhatALivingWriterHolds) {
  const TempDir dir;
  AtomicFile writing(dir / "f");
  writing.file().write("x");
  sweep_temporaries(dir / "f");
  ASSERT_EQ(::access(writing.temporary_path().c_str(), F_OK), 0);
  writing.commit();
  sweep_temporaries(dir / "f");
  EXPECT_EQ(read_file(dir / "f"), "x");
}

TEST(SweepTest, OfAMissingDirectoryDoesNothing) {
  const TempDir dir;
  sweep_temporaries(dir / "none/f");
  EXPECT_THAT(dir.list(), IsEmpty());
}

TEST(SweepTest, DoesNotFollowALink) {
  const TempDir dir;
  write_file(dir / "precious", "keep");
  ASSERT_EQ(::symlink((dir / "precious").c_str(), (dir / "f.0123456789ab.tmp").c_str()), 0);
  sweep_temporaries(dir / "f");
  EXPECT_EQ(read_file(dir / "precious"), "keep");
}

}  // namespace
}  // namespace shardwise
