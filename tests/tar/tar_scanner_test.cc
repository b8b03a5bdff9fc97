#include "tar/tar_scanner.h"

#include <array>
#include <clocale>
#include <cstdlib>
#include <random>

#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

struct Member {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  friend bool operator==(const Member&, const Member&) = default;
};
void PrintTo(const Member& m, std::ostream* out) {
  *out << m.name << "@" << m.offset << "+" << m.size;
}

struct Scan {
  std::vector<Member> members;
  std::vector<std::string> others;
  TarScanReport report;
};

Scan scan_one_way(std::string_view bytes, TarScanOptions options) {
  // A copy of exactly these bytes, so that AddressSanitizer detects reads beyond them.
  const std::vector<char> copy(bytes.begin(), bytes.end());
  const std::string_view archive(copy.data(), copy.size());
  Scan scan;
  options.visit_other = [&](const TarOther& other) {
    static constexpr std::array kTypes = {"hard", "symbolic", "special"};
    scan.others.push_back(kTypes[static_cast<std::size_t>(other.type)] + std::string(" ") +
                          std::string(other.name) + " -> " + std::string(other.target) + "@" +
                          std::to_string(other.header_offset));
  };
  scan.report = scan_tar(archive, "x.tar", options, [&](const TarMember& m) {
    EXPECT_EQ(m.header_offset + 512, m.data_offset);
    scan.members.push_back({std::string(m.name), m.data_offset, m.size_bytes});
  });
  return scan;
}

/// Scans directly and through libarchive alone, and expects the same result from both.
Scan scan(std::string_view archive, bool lenient = false) {
  Scan direct = scan_one_way(archive, {.lenient = lenient});
  const Scan through_libarchive =
      scan_one_way(archive, {.lenient = lenient, .libarchive_only = true});
  EXPECT_EQ(direct.members, through_libarchive.members);
  EXPECT_EQ(direct.others, through_libarchive.others);
  EXPECT_EQ(direct.report.header_hash, through_libarchive.report.header_hash);
  EXPECT_EQ(direct.report.num_members, direct.members.size());
  EXPECT_EQ(direct.report.end_marker, through_libarchive.report.end_marker);
  EXPECT_EQ(direct.report.num_links, through_libarchive.report.num_links);
  EXPECT_EQ(direct.report.num_directories, through_libarchive.report.num_directories);
  return direct;
}

std::string scan_error(std::string_view archive) {
  const std::string text = test::error_text([&] { scan_one_way(archive, {}); });
  test::error_text([&] { scan_one_way(archive, {.libarchive_only = true}); });
  EXPECT_THAT(text, HasSubstr("'x.tar'"));
  return text;
}

TEST(TarScannerTest, PlainMembersAreFoundWhereTheyLie) {
  TarBuilder tar;
  tar.file("a.txt", "hello").file("dir/b.bin", std::string(1000, 'x')).file("empty", "").end();
  const Scan s = scan(tar.bytes());
  EXPECT_THAT(s.members, ElementsAre(Member{"a.txt", 512, 5}, Member{"dir/b.bin", 1536, 1000},
                                     Member{"empty", 3072, 0}));
  EXPECT_TRUE(s.report.end_marker);
  EXPECT_EQ(s.report.num_archives, 1U);
}

TEST(TarScannerTest, LinksDirectoriesAndDevicesAreCountedAndLeftOut) {
  TarBuilder tar;
  tar.entry("d/", '5', "").entry("l", '2', "", "a.txt").entry("h", '1', "", "a.txt");
  tar.entry("fifo", '6', "").entry("dev", '3', "").file("a.txt", "x").end();
  const Scan s = scan(tar.bytes());
  EXPECT_THAT(s.members, ElementsAre(Member{"a.txt", 3072, 1}));
  EXPECT_EQ(s.report.num_directories, 1U);
  EXPECT_EQ(s.report.num_links, 2U);
  EXPECT_EQ(s.report.num_special, 2U);
}

TEST(TarScannerTest, LongNamesOfAllDialectsAreWhole) {
  const std::string name = std::string(60, 'd') + "/" + std::string(80, 'f') + ".txt";
  TarBuilder gnu;
  gnu.entry("././@LongLink", 'L', name + '\0').file("truncated", "1").file("next.txt", "2").end();
  EXPECT_THAT(scan(gnu.bytes()).members,
              ElementsAre(Member{name, 1536, 1}, Member{"next.txt", 2560, 1}));
  TarBuilder pax;
  pax.pax({{"path", name}}).file("truncated", "1").file("next.txt", "2").end();
  EXPECT_THAT(scan(pax.bytes()).members,
              ElementsAre(Member{name, 1536, 1}, Member{"next.txt", 2560, 1}));
  std::string header = TarBuilder::header(std::string(80, 'f') + ".txt", '0', 1);
  header.replace(345, 60, std::string(60, 'd'));
  TarBuilder::fix_checksum(header.data());
  TarBuilder ustar;
  ustar.raw(header).raw("1").raw(std::string(511, '\0')).end();
  EXPECT_THAT(scan(ustar.bytes()).members, ElementsAre(Member{name, 512, 1}));
}

// If the prefix ends with a slash, libarchive adds no second slash. GNU tar, Python's tarfile and
// therefore webdataset add it.
TEST(TarScannerTest, ASlashStandsBetweenPrefixAndNameWhateverThePrefixEndsWith) {
  const auto header = [](const std::string& prefix) {
    std::string block = TarBuilder::header("a.txt", '0', 1);
    block.replace(345, prefix.size(), prefix);
    TarBuilder::fix_checksum(block.data());
    return block;
  };
  const std::string data = "1" + std::string(511, '\0');
  TarBuilder tar;
  tar.raw(header("pre/")).raw(data).raw(header("pre")).raw(data).raw(header("/")).raw(data).end();
  EXPECT_THAT(scan(tar.bytes()).members,
              ElementsAre(Member{"pre//a.txt", 512, 1}, Member{"pre/a.txt", 1536, 1},
                          Member{"//a.txt", 2560, 1}));
}

TEST(TarScannerTest, NamesAreBytes) {
  const std::string latin1 = "caf\xe9.txt";
  const std::string control = "a\nb\x01.txt";
  TarBuilder tar;
  tar.file(latin1, "1").file(control, "2").file("../../etc/passwd.txt", "3");
  tar.pax({{"path", "\xd1\x84\xd0\xb0\xd0\xb9\xd0\xbb.txt"}}).file("x", "4").end();
  const Scan s = scan(tar.bytes());
  ASSERT_EQ(s.members.size(), 4U);
  EXPECT_EQ(s.members[0].name, latin1);
  EXPECT_EQ(s.members[1].name, control);
  EXPECT_EQ(s.members[2].name, "../../etc/passwd.txt");
  EXPECT_EQ(s.members[3].name, "\xd1\x84\xd0\xb0\xd0\xb9\xd0\xbb.txt");
}

TEST(TarScannerTest, PaxSizeCountsMoreThanTheHeader) {
  TarBuilder tar;
  tar.pax({{"size", "700"}}).raw(TarBuilder::header("big", '0', 0));
  tar.raw(std::string(1024, 'x')).file("after", "1").end();
  EXPECT_THAT(scan(tar.bytes()).members,
              ElementsAre(Member{"big", 1536, 700}, Member{"after", 3072, 1}));
}

TEST(TarScannerTest, Base256SizesAreRead) {
  std::string header = TarBuilder::header("big", '0', 0);
  header.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\x02\x01", 12));
  TarBuilder::fix_checksum(header.data());
  TarBuilder tar;
  tar.raw(header).raw(std::string(1024, 'x')).file("after", "1").end();
  EXPECT_THAT(scan(tar.bytes()).members,
              ElementsAre(Member{"big", 512, 513}, Member{"after", 2048, 1}));
}

TEST(TarScannerTest, NoEndMarkerAtAMemberBoundaryIsReportedNotRefused) {
  TarBuilder tar;
  tar.file("a", "1").file("b", "2");
  const Scan s = scan(tar.bytes());
  EXPECT_EQ(s.members.size(), 2U);
  EXPECT_FALSE(s.report.end_marker);
}

TEST(TarScannerTest, ConcatenatedArchivesAreReadOn) {
  TarBuilder tar;
  tar.file("a", "1").end().file("b", "2").end().raw(std::string(7168, '\0')).file("c", "3").end();
  const Scan s = scan(tar.bytes());
  EXPECT_THAT(s.members,
              ElementsAre(Member{"a", 512, 1}, Member{"b", 2560, 1}, Member{"c", 11776, 1}));
  EXPECT_EQ(s.report.num_archives, 3U);
}

TEST(TarScannerTest, RubbishAfterTheEndMarkerIsReported) {
  TarBuilder tar;
  tar.file("a", "1").end().raw("rubbish left in the last record");
  const Scan s = scan(tar.bytes());
  EXPECT_EQ(s.members.size(), 1U);
  EXPECT_EQ(s.report.trailing_bytes, 31U);
}

TEST(TarScannerTest, RubbishThatHidesAHeaderIsAnError) {
  TarBuilder tar;
  tar.file("a", "1").raw(std::string(512, '\0')).raw(std::string(512, 'x')).file("lost", "2").end();
  EXPECT_THAT(scan_error(tar.bytes()),
              testing::AllOf(HasSubstr("malformed data"), HasSubstr("after an end marker"),
                             HasSubstr("header"), HasSubstr("offset 2048")));
}

TEST(TarScannerTest, WhatIsNoTarIsSaidToBeNone) {
  EXPECT_THAT(scan_error(""), testing::AllOf(HasSubstr("file is empty"), HasSubstr("'x.tar'")));
  EXPECT_THAT(scan_error("This is a text file.\n"),
              testing::AllOf(HasSubstr("not a tar archive"), HasSubstr("'x.tar', offset 0")));
  EXPECT_THAT(scan_error(std::string(5000, 'x')), HasSubstr("not a tar archive"));
}

TEST(TarScannerTest, CompressedShardsAreUnsupportedByContent) {
  const std::array<std::pair<std::string, std::string>, 5> magics = {{{"\x1f\x8b", "gzip"},
                                                                      {"\x28\xb5\x2f\xfd", "zstd"},
                                                                      {std::string("\xfd"
                                                                                   "7zXZ\0",
                                                                                   6),
                                                                       "xz"},
                                                                      {"BZh9", "bzip2"},
                                                                      {"\x04\x22\x4d\x18", "lz4"}}};
  for (const auto& [magic, name] : magics) {
    const std::string bytes = magic + std::string(600, 'z');
    EXPECT_EQ(test::error_code([&] { scan_one_way(bytes, {}); }), ErrorCode::kUnsupported);
    EXPECT_THAT(scan_error(bytes), HasSubstr("the archive is compressed (" + name + ")"));
  }
}

TEST(TarScannerTest, EveryTruncationIsAnErrorOrAMemberBoundary) {
  TarBuilder tar;
  tar.file("a.txt", std::string(700, 'a'))
      .pax({{"path", "long.txt"}})
      .file("b", "bb")
      .file("c", "")
      .end();
  const std::string& whole = tar.bytes();
  const std::vector<std::size_t> boundaries = {1536, 3584, 4096};
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string_view cut(whole.data(), size);
    if (std::find(boundaries.begin(), boundaries.end(), size) != boundaries.end()) {
      EXPECT_FALSE(scan(cut).report.end_marker);
    } else if (size > 4096) {
      EXPECT_EQ(scan(cut).members.size(), 3U);  // cut within the end marker
    } else {
      EXPECT_EQ(test::error_code([&] { scan_one_way(cut, {}); }), ErrorCode::kCorruptShard) << size;
    }
  }
}

TEST(TarScannerTest, ATruncatedMemberIsNamedWithItsOffset) {
  TarBuilder tar;
  tar.file("first.txt", "1").file("second.txt", std::string(2000, 'x'));
  const std::string cut = tar.bytes().substr(0, 2000);
  EXPECT_THAT(scan_error(cut), HasSubstr("the shard is truncated"));
  EXPECT_THAT(scan_error(cut), HasSubstr("offset 1024, member 'second.txt'"));
  EXPECT_THAT(scan_error(cut), testing::AllOf(HasSubstr("2000 bytes"), HasSubstr("464 left")));
}

TEST(TarScannerTest, BadHeaderAfterGoodOnesIsAnErrorAtItsOffset) {
  TarBuilder tar;
  tar.file("a", "1").file("b", "2").end();
  std::string bytes = tar.bytes();
  bytes[1024 + 148] = '7';
  EXPECT_THAT(scan_error(bytes), HasSubstr("offset 1024"));
}

TEST(TarScannerTest, HugeAndNegativeSizesAreRefused) {
  for (const std::string& field : {std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12),
                                   std::string("\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12),
                                   std::string(12, '\xff'), std::string("777777777777")}) {
    std::string header = TarBuilder::header("bomb", '0', 0);
    header.replace(124, 12, field);
    TarBuilder::fix_checksum(header.data());
    TarBuilder tar;
    tar.file("ok", "1").raw(header).file("after", "x").end();
    EXPECT_EQ(test::error_code([&] { scan_one_way(tar.bytes(), {}); }), ErrorCode::kCorruptShard);
    EXPECT_THAT(scan_error(tar.bytes()), HasSubstr("offset 1024"));
  }
}

TEST(TarScannerTest, SpecialHeadersAboveOneMebibyteAreRefused) {
  for (const char type : {'x', 'g', 'L', 'K'}) {
    TarBuilder tar;
    tar.entry("bomb", type, std::string((1 << 20) + 1, 'x')).file("a", "1").end();
    EXPECT_THAT(scan_error(tar.bytes()), HasSubstr("above the limit of 1 MiB")) << type;
  }
}

TEST(TarScannerTest, SpecialHeadersAboveFourMebibytesTogetherAreRefused) {
  const std::string comment((1 << 20) - 100, 'c');
  TarBuilder tar;
  for (int i = 0; i < 4; ++i) tar.pax({{"comment", comment}}, 'g');
  TarBuilder more = tar;
  EXPECT_EQ(scan(tar.file("a", "1").end().bytes()).members.size(), 1U);
  more.pax({{"comment", comment}}, 'g').file("a", "1").end();
  EXPECT_THAT(scan_error(more.bytes()), HasSubstr("special headers of more than 4 MiB"));
}

TEST(TarScannerTest, SparseMembersAreNeverTakenForTheirContent) {
  TarBuilder old_gnu;
  old_gnu.file("a", "1").entry("sparse", 'S', "data").file("b", "2").end();
  EXPECT_EQ(test::error_code([&] { scan_one_way(old_gnu.bytes(), {}); }), ErrorCode::kUnsupported);
  EXPECT_THAT(scan_error(old_gnu.bytes()), HasSubstr("the member is sparse"));
  TarBuilder pax;
  pax.pax({{"GNU.sparse.major", "1"},
           {"GNU.sparse.minor", "0"},
           {"GNU.sparse.name", "real"},
           {"GNU.sparse.realsize", "4096"}});
  pax.file("GNUSparseFile.0/real", "1\n0\n4\n" + std::string(506, '\0') + "data")
      .file("b", "2")
      .end();
  EXPECT_THAT(scan_error(pax.bytes()), HasSubstr("the member is sparse"));

  // The header of a plain file has a sparse map. For libarchive the map continues in bytes that
  // other readers treat as the file's content.
  std::string header = TarBuilder::header("a.txt", '0', 5);
  header.replace(257, 8, std::string("ustar  \0", 8));
  header[386] = '0';
  header[482] = '1';
  TarBuilder::fix_checksum(header.data());
  for (const char* data : {"12345", "no map"}) {
    TarBuilder map;
    map.raw(header).raw(data + std::string(512 - std::string_view(data).size(), '\0')).end();
    EXPECT_THAT(scan_error(map.bytes()), HasSubstr("a sparse map"));
  }
  const Scan lenient = scan(pax.bytes(), true);
  EXPECT_THAT(lenient.members, ElementsAre(Member{"b", 3072, 1}));
  ASSERT_EQ(lenient.report.skipped.size(), 1U);
  EXPECT_EQ(lenient.report.skipped[0].code, ErrorCode::kUnsupported);
}

TEST(TarScannerTest, LenientScansKeepWhatCameBeforeTheDamage) {
  TarBuilder tar;
  tar.file("a", "1").file("b", "2").file("c", "3").end();
  std::string bytes = tar.bytes();
  bytes[2048 + 148] = '7';
  const Scan s = scan(bytes, true);
  EXPECT_THAT(s.members, ElementsAre(Member{"a", 512, 1}, Member{"b", 1536, 1}));
  ASSERT_EQ(s.report.skipped.size(), 1U);
  EXPECT_EQ(s.report.skipped[0].offset, 2048U);
}

TEST(TarScannerTest, APaxHeaderWithNothingBehindItIsAnError) {
  TarBuilder tar;
  tar.file("a", "1").pax({{"path", "b"}}).end();
  EXPECT_THAT(scan_error(tar.bytes()),
              testing::AllOf(HasSubstr("special header"), HasSubstr("no entry")));
}

TEST(TarScannerTest, HeaderHashChangesWithEveryHeaderByte) {
  TarBuilder tar;
  tar.file("a.txt", "1").pax({{"comment", "x"}}).file("b.txt", "2").end();
  const Hash128 original = scan(tar.bytes()).report.header_hash;
  std::string data_changed = tar.bytes();
  data_changed[512] = '9';
  EXPECT_EQ(scan(data_changed).report.header_hash, original) << "data are not part of the chain";
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{110}, std::size_t{140}, std::size_t{1545}, std::size_t{2050}}) {
    std::string changed = tar.bytes();
    changed[at] = static_cast<char>(changed[at] ^ 1);
    const std::size_t header = at / 512 * 512;
    if (header != 1536) TarBuilder::fix_checksum(changed.data() + header);
    EXPECT_NE(scan(changed).report.header_hash, original) << at;
  }
}

// The last block of a body that is skipped may be truncated. The scan must end there.
TEST(TarScannerTest, ABodyWhoseLastBlockIsCutIsNeverReadBeyond) {
  for (const char type : std::string("234567SVDMNA?")) {
    for (const std::uint64_t size : {1U, 300U, 511U, 600U}) {
      const std::string bytes =
          TarBuilder::header("x", type, size) + std::string(static_cast<std::size_t>(size), 'b');
      for (const bool lenient : {false, true}) {
        for (const bool libarchive_only : {false, true}) {
          try {
            scan_one_way(bytes, {.lenient = lenient, .libarchive_only = libarchive_only});
          } catch (const Error& e) {
            EXPECT_THAT(e.what(), HasSubstr("'x.tar'")) << type;
          }
        }
      }
    }
  }
}

TEST(TarScannerTest, HeadersThatReadersReadInSeveralWaysAreHeldAgainstLibarchive) {
  const auto changed = [](std::size_t at, std::string_view bytes, bool gnu = false) {
    std::string header = TarBuilder::header("a.x", '0', 5);
    if (gnu) header.replace(257, 8, std::string_view("ustar  \0", 8));
    header.replace(at, bytes.size(), bytes);
    TarBuilder::fix_checksum(header.data());
    TarBuilder tar;
    tar.raw(header).raw("12345" + std::string(507, '\0')).file("b.x", "y").end();
    return tar.bytes();
  };
  EXPECT_THAT(scan_error(changed(124, std::string_view("\0", 1))),
              testing::AllOf(HasSubstr("libarchive says 0 bytes"), HasSubstr("header 5")));
  EXPECT_THAT(scan_error(changed(124, std::string_view(" \0", 2))),
              testing::AllOf(HasSubstr("libarchive says 0 bytes"), HasSubstr("header 5")));
  EXPECT_THAT(scan_error(changed(386, "not a map", true)), HasSubstr("malformed"));
}

TEST(TarScannerTest, ChecksumFieldsHoldDigitsAndBlanksOnly) {
  TarBuilder tar;
  tar.file("a.x", "y").end();
  std::string bytes = tar.bytes();
  bytes[155] = '\xd7';
  EXPECT_THAT(test::error_text([&] { scan_one_way(bytes, {}); }),
              HasSubstr("must be a tar header"));
}

// libarchive checks the first header more strictly than later headers.
TEST(TarScannerTest, WhereLibarchiveStartsDoesNotMatter) {
  std::string odd = TarBuilder::header("", '0', 0);
  odd.replace(100, 8, "nonsense");  // the mode
  TarBuilder::fix_checksum(odd.data());
  TarBuilder tar;
  tar.file("a.x", "y").raw(odd).file("b.x", "z").end();
  EXPECT_EQ(scan(tar.bytes()).members.size(), 3u);
}

TEST(TarScannerTest, LinksDevicesAndFifosAreShownWithTheirTargets) {
  const std::string target(130, 't');
  TarBuilder tar;
  tar.file("a.txt", "x").entry("h.txt", '1', "", "a.txt").entry("s.txt", '2', "", "../a.txt");
  tar.entry("fifo", '6', "").entry("d/", '5', "");
  tar.entry("././@LongLink", 'K', target + '\0').entry("gnu", '2', "", "cut");
  tar.pax({{"linkpath", target}, {"path", "pax name"}}).entry("x", '1', "", "cut").end();
  EXPECT_THAT(scan(tar.bytes()).others,
              ElementsAre("hard h.txt -> a.txt@1024", "symbolic s.txt -> ../a.txt@1536",
                          "special fifo -> @2048", "symbolic gnu -> " + target + "@4096",
                          "hard pax name -> " + target + "@5632"));
}

// Found by fuzzing: libarchive's type for a link without a target depends on whether another link
// precedes it.
TEST(TarScannerTest, ALinkWithoutATargetIsALink) {
  for (const bool after_a_link : {false, true}) {
    TarBuilder tar;
    tar.file("a.txt", "x");
    if (after_a_link) tar.entry("l.txt", '2', "", "a.txt");
    tar.entry("h.txt", '1', "").entry("d/", '1', "").entry("s.txt", '2', "").entry("", '1', "");
    tar.file("b.txt", "y").end();
    const Scan s = scan(tar.bytes());
    EXPECT_EQ(s.members.size(), 2u);
    EXPECT_EQ(s.report.num_links, after_a_link ? 5u : 4u);
    EXPECT_THAT(s.others,
                Contains("hard h.txt -> @" + std::string(after_a_link ? "1536" : "1024")));
  }
}

// Found by fuzzing: libarchive reads a checksum that begins with a zero byte as zero.
TEST(TarScannerTest, AChecksumThatBeginsWithAZeroByteIsRefused) {
  std::string header = TarBuilder::header("a.txt", '0', 1);
  const std::string sum = header.substr(149, 5);
  ASSERT_EQ(header[148], '0');
  header.replace(148, 8, std::string(1, '\0') + sum + std::string("\0 ", 2));
  TarBuilder tar;
  tar.file("first.txt", "1").raw(header).raw("1").raw(std::string(511, '\0')).end();
  EXPECT_THAT(scan_error(tar.bytes()), HasSubstr("malformed"));
}

/// Returns a tar that is the body of an entry. A reader that skips too few bytes would find members
/// in it.
std::string nested_tar() {
  TarBuilder tar;
  return tar.file("nested.txt", "never a member").end().bytes();
}

TEST(TarScannerTest, ADirectoryWithABodyIsRefusedNotReadAsMembers) {
  for (const std::string& front : {std::string(), std::string(512, '\0')}) {
    const std::string body = front + nested_tar();
    for (const char type : {'0', '\0', '7'}) {
      TarBuilder named;
      named.file("a.txt", "1").entry("d/", type, body).file("b.txt", "2").end();
      EXPECT_THAT(scan_error(named.bytes()),
                  testing::AllOf(HasSubstr("a file of " + std::to_string(body.size()) + " bytes"),
                                 HasSubstr("'d/', marks a directory")));
      TarBuilder pax;
      pax.file("a.txt", "1").pax({{"path", "d/"}}).entry("x", type, body).file("b.txt", "2").end();
      EXPECT_THAT(scan_error(pax.bytes()), HasSubstr("marks a directory"));
    }
  }
}

TEST(TarScannerTest, WhatIsADirectoryByOneOfItsNamesOnlyIsRefused) {
  const auto tar = [](const std::string& path, const std::string& name, char type) {
    TarBuilder archive;
    archive.file("a.txt", "1").pax({{"path", path}}).entry(name, type, "").file("b.txt", "2").end();
    return archive.bytes();
  };
  EXPECT_THAT(scan_error(tar("d.x/", "d.x", '0')), HasSubstr("'d.x/', marks a directory"));
  EXPECT_THAT(scan_error(tar("d.x", "d/", '\0')),
              testing::AllOf(HasSubstr("'d.x'"), HasSubstr("marks a directory")));
  EXPECT_EQ(scan(tar("d.x", "d/", '0')).members.size(), 3u) << "all readers take the path";
}

TEST(TarScannerTest, ABodyWhereThereIsNoneIsRefusedIfReadersWouldComeToOtherMembers) {
  const auto tar = [](char type, const std::string& body) {
    TarBuilder archive;
    archive.file("a.txt", "1").entry("x", type, body, "a.txt").file("b.txt", "2").end();
    return archive.bytes();
  };
  for (const char type : std::string("12346")) {
    EXPECT_THAT(scan_error(tar(type, std::string(512, '\0') + nested_tar())),
                HasSubstr(" with a size of "))
        << type;
  }
  for (const char type : std::string("2346")) {  // some readers skip these bytes
    EXPECT_THAT(scan_error(tar(type, nested_tar())), HasSubstr("bytes after it")) << type;
  }
  // GNU tar skips the data of a hard link only if its size is from pax.
  TarBuilder pax;
  pax.file("a.txt", "1").pax({{"size", "1024"}}).entry("x", '1', "", "a.txt");
  pax.file("n.txt", "1").file("b.txt", "2").end();
  EXPECT_THAT(scan_error(pax.bytes()), HasSubstr("a hard link with a size of 1024 bytes"));
  // All readers interpret the following bytes as members.
  for (const char type : std::string("15")) {
    const Scan s = scan(tar(type, TarBuilder().file("n.txt", "1").bytes()));
    EXPECT_THAT(s.members, ElementsAre(Member{"a.txt", 512, 1}, Member{"n.txt", 2048, 1},
                                       Member{"b.txt", 3072, 1}));
  }
  // The size field of a directory has no meaning. Some writers set it.
  const std::string directory = TarBuilder::header("d", '5', 5);
  TarBuilder archive;
  archive.file("a.txt", "1").raw(directory).file("b.txt", "2").end();
  EXPECT_EQ(scan(archive.bytes()).members.size(), 2u);
}

TEST(TarScannerTest, GlobalHeadersThatWouldChangeMembersAreRefusedByName) {
  for (const std::string key :
       {"path", "linkpath", "size", "GNU.sparse.major", "GNU.sparse.name", "SCHILY.realsize"}) {
    TarBuilder tar;
    tar.file("a.txt", "1").pax({{"comment", "x"}, {key, "1"}}, 'g').file("b.txt", "2").end();
    EXPECT_THAT(scan_error(tar.bytes()), HasSubstr("a pax global header with '" + key + "'"));
    EXPECT_THAT(scan_error(tar.bytes()), HasSubstr("offset 1024"));
  }
  TarBuilder tar;
  tar.pax({{"comment", "7a8f"}, {"mtime", "1"}, {"charset", "BINARY"}}, 'g').file("b.txt", "2");
  EXPECT_THAT(scan(tar.end().bytes()).members, ElementsAre(Member{"b.txt", 1536, 1}));
}

TEST(TarScannerTest, TwoSpecialHeadersOfOneTypeAreRefused) {
  TarBuilder pax;
  pax.pax({{"path", "first"}}).pax({{"path", "second"}}, 'X').file("a.txt", "1").end();
  EXPECT_THAT(scan_error(pax.bytes()), HasSubstr("two special headers"));
  TarBuilder gnu;
  gnu.entry("L", 'L', "one").entry("L", 'L', "two").file("a.txt", "1").end();
  EXPECT_THAT(scan_error(gnu.bytes()), HasSubstr("two special headers"));
}

TEST(TarScannerTest, EntriesOfUnknownTypesAreNoMembers) {
  for (const char type : std::string("89AEIMNVZ?") + '\x80') {
    TarBuilder tar;
    tar.file("a.txt", "1").entry("x.txt", type, nested_tar()).file("b.txt", "2").end();
    EXPECT_EQ(test::error_code([&] { scan_one_way(tar.bytes(), {}); }), ErrorCode::kUnsupported);
    EXPECT_THAT(scan_error(tar.bytes()),
                AllOf(HasSubstr("an entry of type '"), HasSubstr("offset 1024, member 'x.txt'")));
    const Scan lenient = scan(tar.bytes(), true);
    EXPECT_THAT(lenient.members, ElementsAre(Member{"a.txt", 512, 1}, Member{"b.txt", 4096, 1}));
    ASSERT_EQ(lenient.report.skipped.size(), 1u);
    EXPECT_EQ(lenient.report.skipped[0].member, "x.txt");
  }
}

TEST(TarScannerTest, APrefixCountsInUstarHeadersAndIsRefusedInOthersButGnu) {
  const auto with_magic = [](std::string_view magic) {
    std::string header = TarBuilder::header("a.txt", '0', 1);
    header.replace(345, 3, "dir");
    header.replace(257, 8, magic);
    TarBuilder::fix_checksum(header.data());
    TarBuilder tar;
    return tar.raw(header).raw("1" + std::string(511, '\0')).end().bytes();
  };
  EXPECT_EQ(scan(with_magic(std::string_view("ustar\0"
                                             "00",
                                             8)))
                .members.at(0)
                .name,
            "dir/a.txt");
  for (const std::string_view magic : {std::string_view("ustar\xc9"
                                                        "00",
                                                        8),
                                       std::string_view("\0\0\0\0\0\0\0\0", 8)}) {
    EXPECT_THAT(scan_error(with_magic(magic)), HasSubstr("not a ustar header"));
  }
}

TEST(TarScannerTest, NamesAreTheSameBytesInEveryLocale) {
  TarBuilder tar;
  tar.pax({{"path", "\xc3\xa9\xe2\x82\xac.txt"}, {"linkpath", "\xc3\xa9"}}).file("x", "1");
  tar.pax({{"path", "\xd1\x84"}, {"linkpath", "\xc3\xa9"}}).entry("l", '2', "", "x");
  tar.file("caf\xe9.txt", "2").pax({{"path", "n\xe9.txt"}}).file("x", "3").end();
  const std::string before = std::setlocale(LC_ALL, nullptr);
  // Few systems have this locale installed, so the test builds it.
  const test::TempDir dir;
  const std::string make =
      "localedef -f ISO-8859-1 -i en_US '" + (dir / "en_US.ISO-8859-1") + "' >/dev/null 2>&1";
  if (std::system(make.c_str()) == 0) ::setenv("LOCPATH", dir.path().c_str(), 1);
  int tried = 0;
  for (const char* name : {"C", "C.UTF-8", "en_US.ISO-8859-1", "en_US.UTF-8"}) {
    if (std::setlocale(LC_ALL, name) == nullptr) continue;
    SCOPED_TRACE(name);
    ++tried;
    const Scan s = scan(tar.bytes());
    EXPECT_THAT(s.members,
                ElementsAre(Member{"\xc3\xa9\xe2\x82\xac.txt", 1536, 1},
                            Member{"caf\xe9.txt", 4096, 1}, Member{"n\xe9.txt", 6144, 1}));
    EXPECT_THAT(s.others, ElementsAre("symbolic \xd1\x84 -> \xc3\xa9@3072"));
    EXPECT_STREQ(std::setlocale(LC_ALL, nullptr), name) << "it is the program's";
  }
  std::setlocale(LC_ALL, before.c_str());
  ::unsetenv("LOCPATH");
  std::printf("%d locales\n", tried);
}

TEST(TarScannerTest, TicksComeInLongZerosToo) {
  constexpr std::uint64_t kMost = std::uint64_t{4} << 20;
  std::string bytes = TarBuilder().file("a.txt", "1").end().bytes();
  const std::size_t front = bytes.size();
  bytes.resize(front + (std::size_t{20} << 20));
  for (const bool rubbish : {false, true}) {
    if (rubbish) std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(front), bytes.end(), 'x');
    std::uint64_t last = 0;
    std::uint64_t ticks = 0;
    scan_one_way(bytes, {.tick = [&](std::uint64_t offset) {
                   EXPECT_GE(offset, last);
                   EXPECT_LE(offset - last, kMost);
                   last = offset;
                   ++ticks;
                 }});
    EXPECT_GE(last + kMost, bytes.size());
    EXPECT_GE(ticks, 5u);
    struct Stop {};
    const TarScanOptions stopping{.tick = [](std::uint64_t offset) {
      if (offset > kMost) throw Stop();
    }};
    EXPECT_THROW(scan_one_way(bytes, stopping), Stop);
  }
}

TEST(TarScannerTest, RandomDamageNeverCrashesAndBothPathsAgree) {
  TarBuilder tar;
  tar.file("a.jpg", std::string(600, 'j'))
      .file("a.cls", "1")
      .pax({{"path", "dir/b.jpg"}, {"size", "3"}});
  tar.file("b.jpg", "abc")
      .entry("././@LongLink", 'L', std::string(150, 'n') + '\0')
      .file("n", "zz");
  tar.entry("d/", '5', "").entry("l", '2', "", "t").file("c.cls", "2").end();
  constexpr std::uint64_t kSeed = 20261121;
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = tar.bytes();
    const auto flips = 1 + random() % 3;
    for (std::uint64_t i = 0; i < flips; ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 2 == 0) {
      for (std::size_t h = 0; h + 512 <= bytes.size(); h += 512) {
        if (tar.bytes()[h + 257] == 'u') TarBuilder::fix_checksum(bytes.data() + h);
      }
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    std::optional<Scan> direct;
    std::optional<Scan> other;
    try {
      direct = scan_one_way(bytes, {});
    } catch (const Error&) {
    }
    try {
      other = scan_one_way(bytes, {.libarchive_only = true});
    } catch (const Error&) {
    }
    if (direct && other) {
      ASSERT_EQ(direct->members, other->members) << "seed " << kSeed << " round " << round;
      ASSERT_EQ(direct->report.header_hash, other->report.header_hash) << round;
    }
    for (const auto* s : {&direct, &other}) {
      if (!*s) continue;
      for (const Member& m : (*s)->members) ASSERT_LE(m.offset + m.size, bytes.size());
    }
  }
}

}  // namespace
}  // namespace shardwise
