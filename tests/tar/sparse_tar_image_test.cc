// Tests that a scan of a tar's image has the same result as a scan of the tar, for intact and
// damaged tars. fuzz/tar_scan_target.cc tests the same for arbitrary bytes.

#include "tar/sparse_tar_image.h"

#include <random>

#include "support/support.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace {

using test::TarBuilder;

/// Returns all results of a scan as text.
std::string outcome(std::string_view bytes, bool lenient) {
  std::string text;
  const auto say = [&](std::string_view name, std::initializer_list<std::uint64_t> numbers) {
    text += name;
    for (const std::uint64_t number : numbers) text += " " + std::to_string(number);
    text += '\n';
  };
  const TarScanOptions options{
      .lenient = lenient, .visit_other = [&](const TarOther& other) {
        say(other.name, {static_cast<std::uint64_t>(other.type), other.header_offset});
        say(other.target, {});
      }};
  try {
    const TarScanReport report = scan_tar(bytes, "x.tar", options, [&](const TarMember& m) {
      say(m.name, {m.header_offset, m.data_offset, m.size_bytes});
    });
    say(to_string(report.header_hash),
        {report.num_directories, report.num_archives, report.trailing_bytes, report.end_marker});
    for (const TarProblem& problem : report.skipped) say(problem.what, {problem.offset});
  } catch (const Error& e) {
    text += e.what();
  }
  return text;
}

std::string tar_with_everything() {
  TarBuilder tar;
  tar.entry("d/", '5', "").file("d/a.jpg", std::string(5000, 'j')).file("d/a.cls", "1");
  tar.pax({{"comment", "x"}}, 'g').pax({{"path", "d/b.jpg"}, {"size", "700"}});
  tar.file("b", std::string(700, 'k')).entry("d/b.cls", '1', "", "d/a.cls");
  tar.entry("././@LongLink", 'L', std::string(150, 'n') + '\0').file("n", std::string(2000, 'n'));
  tar.entry("fifo", '6', "").entry("s.txt", '2', "", "d/a.jpg");
  return tar.file("e.txt", TarBuilder().file("nested.txt", "x").bytes()).end().bytes();
}

/// Returns a test archive and, if the corpus exists, its tars that are small enough for a hundred
/// scans.
std::vector<std::string> tars() {
  std::vector<std::string> all = {tar_with_everything()};
  const auto dir = test::corpus_dir();
  if (!dir) {
    std::printf("no corpus of real tars (SHARDWISE_CORPUS names its folder): one of our own\n");
    return all;
  }
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(*dir / "corpus")) {
    if (entry.is_regular_file() && entry.file_size() <= 100'000 &&
        entry.path().extension() == ".tar") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) all.push_back(test::read_file(path));
  return all;
}

TEST(SparseTarImageTest, DamagedTarsGiveTheSameAsTheirImages) {
  std::mt19937_64 random(test::random_seed());
  const test::TempDir dir;
  std::size_t scanned = 0;
  for (const std::string& tar : tars()) {
    for (int round = 0; round < 60 && tar.size() >= 512; ++round) {
      std::string damaged = tar;
      for (auto n = round == 0 ? 0 : 1 + random() % 3; n > 0; --n) {
        const std::size_t block = random() % (tar.size() / 512) * 512;
        static constexpr std::array<std::size_t, 6> kPlaces = {0, 124, 135, 156, 257, 345};
        const std::size_t at = random() % 2 == 0 ? random() % 512 : kPlaces[random() % 6];
        static constexpr std::string_view kBytes(
            "\0"
            "0123567xgLKSD/ \xff",
            17);
        damaged[block + at] = kBytes[random() % kBytes.size()];
        const bool is_header = std::string_view(damaged).substr(block + 257, 5) == "ustar";
        if (is_header && random() % 4 != 0) TarBuilder::fix_checksum(damaged.data() + block);
      }
      if (random() % 8 == 0) damaged.resize(random() % damaged.size());
      if (damaged.empty()) continue;
      const std::size_t piece = 1 + random() % 5000;
      const auto keep = [](std::string_view, std::uint64_t) { return false; };
      const SparseTarImage image(dir / "image", keep, [&](SparseTarImage::Writer& writer) {
        for (std::size_t at = 0; at < damaged.size(); at += piece) {
          writer.take(std::string_view(damaged).substr(at, piece));
        }
      });
      for (const bool lenient : {false, true}) {
        ASSERT_EQ(outcome(damaged, lenient), outcome(image.bytes(), lenient));
        ++scanned;
      }
    }
  }
  std::printf("%zu pairs of scans\n", scanned);
}

TEST(SparseTarImageTest, ManySpecialHeadersGiveTheSameAsTheirImages) {
  const test::TempDir dir;
  TarBuilder headers;
  for (int num_headers = 1; num_headers <= 6; ++num_headers) {
    headers.pax({{"comment", std::string((1 << 20) - 100, 'c')}}, 'g');
    const std::string tar =
        TarBuilder().file("a.txt", "1").raw(headers.bytes()).file("b.txt", "2").end().bytes();
    const auto keep = [](std::string_view, std::uint64_t) { return false; };
    const SparseTarImage image(dir / "image", keep, [&](SparseTarImage::Writer& writer) {
      constexpr std::size_t kPiece = 1 << 20;
      for (std::size_t at = 0; at < tar.size(); at += kPiece) {
        writer.take(std::string_view(tar).substr(at, kPiece));
      }
    });
    for (const bool lenient : {false, true}) {
      const std::string expected = outcome(tar, lenient);
      EXPECT_EQ(outcome(image.bytes(), lenient), expected) << num_headers;
      const bool is_refused = expected.find("more than 4 MiB") != std::string::npos;
      EXPECT_EQ(is_refused, num_headers > 4) << expected;
    }
  }
}

}  // namespace
}  // namespace shardwise
