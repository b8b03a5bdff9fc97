#include "tar/sample_name.h"

#include <cstdlib>
#include <random>
#include <sstream>

#include "base/text.h"
#include "support/support.h"

namespace shardwise {
namespace {

using namespace std::string_view_literals;

/// The result of webdataset 1.0.2 for a name: whether it reserves the name, and what its
/// base_plus_ext returns. One difference: webdataset uses the folder as the key of a hidden file,
/// but here a hidden file is in no sample.
struct Expected {
  std::string_view name;
  bool is_meta;
  std::optional<SampleName> parts;
};

std::string described(bool is_meta, const std::optional<SampleName>& parts) {
  if (is_meta) return "meta";
  return parts ? hex(parts->key) + " " + hex(parts->field) : "none";
}

TEST(SampleNameTest, NamesAreTakenApartAsWebdatasetDoesButForHiddenOnes) {
  const Expected kGolden[] = {
      {"000.jpg"sv, false, SampleName{"000"sv, "jpg"sv}},
      {"a/b/000.seg.png"sv, false, SampleName{"a/b/000"sv, "seg.png"sv}},
      {"./x.cls"sv, false, SampleName{"./x"sv, "cls"sv}},
      {"dir.d/x.JPG"sv, false, SampleName{"dir.d/x"sv, "JPG"sv}},
      {"a.b/c.d.e"sv, false, SampleName{"a.b/c"sv, "d.e"sv}},
      {"/abs/x.txt"sv, false, SampleName{"/abs/x"sv, "txt"sv}},
      {"x..txt"sv, false, SampleName{"x"sv, ".txt"sv}},
      {"s2."sv, false, SampleName{"s2"sv, ""sv}},
      {"d/s2."sv, false, SampleName{"d/s2"sv, ""sv}},
      {".hid"sv, false, std::nullopt},
      {".hid.txt"sv, false, std::nullopt},
      {"d/.hid"sv, false, std::nullopt},
      {"d/.hid.txt"sv, false, std::nullopt},
      {"d/e/.hid.txt"sv, false, std::nullopt},
      {"a.b/.hid"sv, false, std::nullopt},
      {"a.b/c/.hid"sv, false, std::nullopt},
      {"a.b/c/.hid.txt"sv, false, std::nullopt},
      {"a.b/c/d/.x.y"sv, false, std::nullopt},
      {"/.x.y"sv, false, std::nullopt},
      {"//.x"sv, false, std::nullopt},
      {"README"sv, false, std::nullopt},
      {"dir.d/README"sv, false, std::nullopt},
      {"d/"sv, false, std::nullopt},
      {"x.y/"sv, false, std::nullopt},
      {"."sv, false, std::nullopt},
      {".."sv, false, std::nullopt},
      {"../x.y"sv, false, SampleName{"../x"sv, "y"sv}},
      {"../.x"sv, false, std::nullopt},
      {"./.x"sv, false, std::nullopt},
      {"a/./.x"sv, false, std::nullopt},
      {"__meta__/x.json"sv, true, SampleName{"__meta__/x"sv, "json"sv}},
      {"__meta__/a/b.json"sv, true, SampleName{"__meta__/a/b"sv, "json"sv}},
      {"__info.json__"sv, true, SampleName{"__info"sv, "json__"sv}},
      {"__info__.json"sv, false, SampleName{"__info__"sv, "json"sv}},
      {"d/__info.json__"sv, false, SampleName{"d/__info"sv, "json__"sv}},
      {"d/__meta__/x.json"sv, false, SampleName{"d/__meta__/x"sv, "json"sv}},
      {"__"sv, true, std::nullopt},
      {"___"sv, true, std::nullopt},
      {"____"sv, true, std::nullopt},
      {"__/x.y"sv, false, SampleName{"__/x"sv, "y"sv}},
      {"___/x.y"sv, false, SampleName{"___/x"sv, "y"sv}},
      {"____/x.y"sv, true, SampleName{"____/x"sv, "y"sv}},
      {"__a__b__/x.y"sv, true, SampleName{"__a__b__/x"sv, "y"sv}},
      {"__a__b/x.y"sv, false, SampleName{"__a__b/x"sv, "y"sv}},
      {"__x.y"sv, false, SampleName{"__x"sv, "y"sv}},
      {"x.y__"sv, false, SampleName{"x"sv, "y__"sv}},
      {""sv, false, std::nullopt},
      {"a\012b.txt"sv, false, SampleName{"a\012b"sv, "txt"sv}},
      {"a\012d/b.txt"sv, false, SampleName{"a\012d/b"sv, "txt"sv}},
      {"a.b\012/c.d"sv, false, std::nullopt},
      {"p/q.r\012/s.t"sv, false, std::nullopt},
      {"a\012/.h.t"sv, false, std::nullopt},
      {"a\012.b/c/.h"sv, false, std::nullopt},
      {"a.\012b/c/d.e"sv, false, std::nullopt},
      {"a.b/\012c/d.e"sv, false, SampleName{"a.b/\012c/d"sv, "e"sv}},
      {"a.b/c\012/.h"sv, false, std::nullopt},
      {"__x__\012"sv, true, std::nullopt},
      {"__x\012__"sv, true, std::nullopt},
      {"__x__\012/y.z"sv, false, SampleName{"__x__\012/y"sv, "z"sv}},
      {"__\012"sv, false, std::nullopt},
      {"____\012"sv, true, std::nullopt},
      {"x.j\012"sv, false, SampleName{"x"sv, "j\012"sv}},
      {"x.\012"sv, false, SampleName{"x"sv, "\012"sv}},
      {"\012.x"sv, false, SampleName{"\012"sv, "x"sv}},
      {"\012/x.y"sv, false, SampleName{"\012/x"sv, "y"sv}},
      {".\012/x.y"sv, false, std::nullopt},
      {"x.y\012/z"sv, false, std::nullopt},
      {"\377\001.bin"sv, false, SampleName{"\377\001"sv, "bin"sv}},
      {"a.b/c/\012.h"sv, false, SampleName{"a.b/c/\012"sv, "h"sv}},
  };
  for (const Expected& expected : kGolden) {
    SCOPED_TRACE(escaped(expected.name));
    EXPECT_EQ(is_meta_name(expected.name), expected.is_meta);
    EXPECT_EQ(described(false, split_sample_name(expected.name)), described(false, expected.parts));
  }
}

/// Reads names in hexadecimal, one per line, and prints webdataset's result for each.
constexpr char kScript[] = R"(
import io, sys, tarfile
from webdataset.tariterators import base_plus_ext, tar_file_iterator
def text(s):
    return s.encode("utf-8", "surrogateescape").hex()
for line in open(sys.argv[1]):
    name = bytes.fromhex(line.strip()).decode("utf-8", "surrogateescape")
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.GNU_FORMAT) as out:
        out.addfile(tarfile.TarInfo(name))
    tar.seek(0)
    if not list(tar_file_iterator(tar)):
        print("meta")
        continue
    key, field = base_plus_ext(name)
    hidden = name.rsplit("/", 1)[-1].startswith(".")
    print("none" if key is None or hidden else text(key) + " " + text(field))
)";

TEST(SampleNameTest, RandomNamesAreTakenApartAsTheInstalledWebdatasetDoes) {
  if (std::system("python3 -c 'import webdataset' >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "needs the Python package webdataset; skipped because it is not installed (the "
                    "golden names cover it)";
  }
  std::mt19937_64 random(test::random_seed());
  constexpr std::array kPieces = {"a", "b",  ".",  ".",        "/",   "/",
                                  "_", "__", "\n", "\xc3\xa9", "\xff"};
  std::vector<std::string> names;
  std::string lines;
  while (names.size() < 3000) {
    std::string name;
    for (auto n = 1 + random() % 9; n > 0; --n) name += kPieces[random() % kPieces.size()];
    if (name.ends_with('/')) continue;  // a directory
    lines += hex(name) + "\n";
    names.push_back(std::move(name));
  }
  const test::TempDir dir;
  test::write_file(dir / "names", lines);
  test::write_file(dir / "script.py", kScript);
  const std::string command =
      "python3 '" + (dir / "script.py") + "' '" + (dir / "names") + "' > '" + (dir / "out") + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::istringstream answers(test::read_file(dir / "out"));
  for (const std::string& name : names) {
    std::string answer;
    ASSERT_TRUE(std::getline(answers, answer));
    ASSERT_EQ(described(is_meta_name(name), split_sample_name(name)), answer) << escaped(name);
  }
}

}  // namespace
}  // namespace shardwise
