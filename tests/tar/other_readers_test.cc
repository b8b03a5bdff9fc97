// Compares the scanner with GNU tar and Python's tarfile on hundreds of odd archives, of all types,
// dialects and special headers, some of them concatenated. For an archive that the scanner accepts,
// all three must read the same members. Archives that it refuses are not compared.

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"
#include "support/chain.h"
#include "support/support.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace {

using test::TarBuilder;

constexpr int kArchives = 1000;

/// The name, size and data offset of a member. GNU tar does not print the offset.
struct Member {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const Member&, const Member&) = default;
};
void PrintTo(const Member& m, std::ostream* out) {
  *out << escaped(m.name) << "@" << m.offset << "+" << m.size;
}

/// A slash at the end is an old notation for a directory. webdataset finds no key in such a name.
bool is_file(const Member& member) { return !member.name.ends_with('/'); }

class OddTars : test::Dice {
 public:
  using Dice::Dice;

  std::string next() {
    TarBuilder tar;
    for (std::uint64_t n = 1 + below(5); n > 0; --n) {
      for (; below(3) == 0;) special_header(tar);
      entry(tar);
    }
    return tar.end().bytes();
  }

 private:
  std::string name() {
    static constexpr std::array kNames = {"a.jpg", "d/b.txt", "./c.cls", "README", "d/", "e.x.y"};
    return kNames[below(kNames.size())];
  }
  std::string long_name() { return std::string(101 + below(80), 'n') + "/" + name(); }

  /// Returns random content of a member. Some contents are a whole tar, or begin with zeros.
  std::string body() {
    switch (below(5)) {
      case 0:
        return "";
      case 1:
        return TarBuilder().file("nested.txt", "x").bytes();
      case 2:
        return std::string(512 * below(3), '\0') + TarBuilder().file("n.txt", "").bytes();
      default:
        return std::string(below(1500), 'b');
    }
  }

  void special_header(TarBuilder& tar) {
    switch (below(6)) {
      case 0:
        tar.entry("././@LongLink", 'L', long_name() + '\0');
        break;
      case 1:
        tar.entry("././@LongLink", 'K', long_name() + '\0');
        break;
      case 2:
        tar.pax({{"comment", "harmless"}, {"mtime", "1.5"}}, 'g');
        break;
      case 3:
        if (one_in(3)) tar.pax({{one_in(2) ? "path" : "size", "7"}}, 'g');
        break;
      default: {
        std::vector<std::pair<std::string, std::string>> records;
        if (one_in(2)) records.emplace_back("path", one_in(2) ? name() : long_name());
        if (one_in(4)) records.emplace_back("size", std::to_string(below(1200)));
        if (one_in(4)) records.emplace_back("linkpath", name());
        if (one_in(4)) records.emplace_back("mtime", "1700000000.25");
        if (one_in(20)) records.emplace_back("GNU.sparse.realsize", "3");
        if (records.empty()) records.emplace_back("comment", "c");
        tar.pax(records, one_in(10) ? 'X' : 'x');
        break;
      }
    }
  }

  void entry(TarBuilder& tar) {
    static constexpr std::string_view kOdd(
        "\0"
        "71234567DVMNAZ",
        15);
    const char type = one_in(2) ? '0' : kOdd[below(kOdd.size())];
    const std::string content = body();
    std::string header = TarBuilder::header(name(), type, content.size(), one_in(2) ? "a.jpg" : "");
    const auto put = [&](std::size_t at, std::string_view bytes) {
      header.replace(at, bytes.size(), bytes);
    };
    switch (below(8)) {
      case 0:
        put(257, std::string_view("ustar  \0", 8));
        break;
      case 1:
        put(257, std::string(8, '\0'));
        break;
      case 2:
        put(345, "some/dir");
        break;
      case 3: {  // a size in base-256
        std::string field(12, '\0');
        field[0] = '\x80';
        field[10] = static_cast<char>(content.size() >> 8);
        field[11] = static_cast<char>(content.size());
        put(124, field);
        break;
      }
      case 4:
        put(124, " " + std::string(&header[125], 11));
        break;
      default:
        break;
    }
    TarBuilder::fix_checksum(header.data());
    tar.raw(header).raw(content).raw(std::string((512 - content.size() % 512) % 512, '\0'));
  }
};

bool runs(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// The members of the archives that the scanner accepted, by the archive's file name.
using Accepted = std::map<std::string, std::vector<Member>>;

Accepted accepted_tars(const test::TempDir& dir) {
  OddTars tars(test::random_seed());
  Accepted accepted;
  for (int i = 0; i < kArchives; ++i) {
    const std::string bytes = tars.next();
    std::vector<Member> members;
    try {
      scan_tar(bytes, "x.tar", {}, [&](const TarMember& m) {
        members.push_back({std::string(m.name), m.size_bytes, m.data_offset});
      });
    } catch (const Error&) {
      continue;
    }
    const std::string file = std::to_string(i) + ".tar";
    test::write_file(dir / file, bytes);
    accepted.emplace(file, std::move(members));
  }
  std::printf("%zu of %d odd archives are accepted\n", accepted.size(), kArchives);
  return accepted;
}

constexpr char kScript[] = R"(
import json, os, sys, tarfile
for name in os.listdir(sys.argv[1]):
    if not name.endswith(".tar"):
        continue
    try:
        with tarfile.open(os.path.join(sys.argv[1], name), errorlevel=2,
                          ignore_zeros=True) as tar:
            members = [[m.name, m.size, m.offset_data] for m in tar if m.isreg()]
    except Exception as e:
        members = repr(e)
    print(json.dumps([name, members]))
)";

TEST(OtherReadersTest, PythonsTarfileReadsWhatIsAccepted) {
  if (!runs("python3 -c 'import tarfile'"))
    GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  const test::TempDir dir;
  const Accepted accepted = accepted_tars(dir);
  ASSERT_GT(accepted.size(), kArchives / 10U);
  test::write_file(dir / "list.py", kScript);
  ASSERT_EQ(std::system(("python3 '" + (dir / "list.py") + "' '" + dir.path() + "' > '" +
                         (dir / "answers") + "'")
                            .c_str()),
            0);
  std::istringstream lines(test::read_file(dir / "answers"));
  std::size_t compared = 0;
  for (std::string line; std::getline(lines, line); ++compared) {
    const nlohmann::json answer = nlohmann::json::parse(line);
    const std::string file = answer[0];
    SCOPED_TRACE(file);
    ASSERT_TRUE(answer[1].is_array()) << answer[1];
    std::vector<Member> members;
    for (const auto& m : answer[1]) {
      Member member{m[0], m[1], m[2]};
      if (is_file(member)) members.push_back(std::move(member));
    }
    ASSERT_EQ(members, accepted.at(file));
  }
  EXPECT_EQ(compared, accepted.size());
}

TEST(OtherReadersTest, GnuTarListsWhatIsAccepted) {
  if (!runs("tar --version | grep 'GNU tar'"))
    GTEST_SKIP() << "needs GNU tar; skipped because it is not in PATH";
  const test::TempDir dir;
  const Accepted accepted = accepted_tars(dir);
  ASSERT_GT(accepted.size(), kArchives / 10U);
  // One shell runs tar on all archives. For each it prints the exit status and then the list of
  // members.
  test::write_file(dir / "list.sh",
                   "cd \"$1\" && for f in *.tar; do\n"
                   "  tar --numeric-owner -itvf $f > listed 2>/dev/null\n"
                   "  echo \"= $f $?\"; cat listed\n"
                   "done\n");
  ASSERT_EQ(std::system(("LC_ALL=C TZ=UTC sh '" + (dir / "list.sh") + "' '" + dir.path() + "' > '" +
                         (dir / "answers") + "'")
                            .c_str()),
            0);
  std::map<std::string, std::vector<Member>> listed;
  std::istringstream lines(test::read_file(dir / "answers"));
  std::string file;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, owner, date, time;
    words >> first;
    if (first == "=") {
      int status = -1;
      words >> file >> status;
      EXPECT_EQ(status, 0) << file;
      listed[file];
      continue;
    }
    if (first[0] != '-' && first[0] != 'C') continue;  // keep files and contiguous files
    Member member;
    words >> owner >> member.size >> date >> time;
    std::getline(words >> std::ws, member.name);
    if (is_file(member)) listed[file].push_back(std::move(member));
  }
  EXPECT_EQ(listed.size(), accepted.size());
  for (auto [name, members] : accepted) {
    for (Member& member : members) member.offset = 0;
    ASSERT_EQ(members, listed[name]) << name;
  }
}

}  // namespace
}  // namespace shardwise
