#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "checksums.h"
#include "tar/sample_name.h"
#include "tar/sparse_tar_image.h"
#include "tar/tar_scanner.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

struct Member {
  std::string name;
  std::uint64_t header_offset, data_offset, size_bytes;

  friend bool operator==(const Member&, const Member&) = default;
};

struct Other {
  TarOther::Type type;
  std::string name, target;
  std::uint64_t header_offset;

  friend bool operator==(const Other&, const Other&) = default;
};

struct Scan {
  std::vector<Member> members;
  std::vector<Other> others;
  TarScanReport report;
  std::string refused;  ///< the text of the error if the archive was refused; the report is then
                        ///< empty
};

void check_name(std::string_view name) {
  const auto split = split_sample_name(name);
  if (!split) return;
  SHARDWISE_FUZZ_REQUIRE(!split->key.empty());
  SHARDWISE_FUZZ_REQUIRE(name == std::string(split->key) + "." + std::string(split->field));
}

Scan scan(std::string_view bytes, TarScanOptions options) {
  // A copy of exactly these bytes, so that AddressSanitizer finds reads beyond them.
  const std::vector<char> copy(bytes.begin(), bytes.end());
  const std::string_view archive(copy.data(), copy.size());
  Scan found;
  options.visit_other = [&](const TarOther& o) {
    SHARDWISE_FUZZ_REQUIRE(range_fits(o.header_offset, 512, archive.size()));
    found.others.push_back({o.type, std::string(o.name), std::string(o.target), o.header_offset});
  };
  try {
    found.report = scan_tar(archive, "x.tar", options, [&](const TarMember& m) {
      SHARDWISE_FUZZ_REQUIRE(range_fits(m.data_offset, m.size_bytes, archive.size()));
      SHARDWISE_FUZZ_REQUIRE(m.data_offset == m.header_offset + 512);
      SHARDWISE_FUZZ_REQUIRE(m.header_offset % 512 == 0);
      SHARDWISE_FUZZ_REQUIRE(found.members.empty() ||
                             m.header_offset >= found.members.back().data_offset +
                                                    found.members.back().size_bytes);
      check_name(m.name);
      found.members.push_back({std::string(m.name), m.header_offset, m.data_offset, m.size_bytes});
    });
  } catch (const Error& e) {
    found.refused = e.what();
    return found;
  }
  SHARDWISE_FUZZ_REQUIRE(found.report.num_members == found.members.size());
  SHARDWISE_FUZZ_REQUIRE(found.report.num_links + found.report.num_special == found.others.size());
  SHARDWISE_FUZZ_REQUIRE(options.lenient || found.report.skipped.empty());
  return found;
}

/// Requires that both scans have the same result.
void require_equal(const Scan& first, const Scan& second) {
  const TarScanReport& a = first.report;
  const TarScanReport& b = second.report;
  SHARDWISE_FUZZ_REQUIRE(first.members == second.members && first.others == second.others);
  SHARDWISE_FUZZ_REQUIRE(a.header_hash == b.header_hash);
  SHARDWISE_FUZZ_REQUIRE(a.num_directories == b.num_directories && a.num_links == b.num_links &&
                         a.num_special == b.num_special && a.num_archives == b.num_archives);
  SHARDWISE_FUZZ_REQUIRE(a.trailing_bytes == b.trailing_bytes && a.end_marker == b.end_marker);
  SHARDWISE_FUZZ_REQUIRE(a.skipped.size() == b.skipped.size());
}

/// Requires that the direct scan and the scan through libarchive alone have the same result, or
/// both refuse the archive.
void require_same_answer(const Scan& direct, const Scan& libarchive) {
  if (direct.refused.empty() != libarchive.refused.empty()) {
    throw BrokenPromise("refused by one way only: " + direct.refused + libarchive.refused);
  }
  if (direct.refused.empty()) require_equal(direct, libarchive);
}

/// Returns an image of the archive. The archive's bytes are passed to the writer in pieces of
/// `piece` bytes, or are skipped.
SparseTarImage image_of(std::string_view archive, std::size_t piece, bool steps_over, bool keeps) {
  const auto keep = [keeps](std::string_view name, std::uint64_t size_bytes) {
    return keeps && (name.size() + size_bytes) % 2 == 0;
  };
  const std::string temporary = std::filesystem::temp_directory_path() / "shardwise-fuzz-image";
  return {temporary, keep, [&](SparseTarImage::Writer& writer) {
            for (std::size_t at = 0; at < archive.size();) {
              const std::size_t n = std::min(piece, archive.size() - at);
              const std::uint64_t skippable = steps_over ? writer.skippable() : 0;
              if (const auto rest = std::min<std::uint64_t>(skippable, archive.size() - at);
                  rest > 0) {
                writer.skip(rest);
                at += rest;
              } else {
                writer.take(archive.substr(at, n));
                at += n;
              }
            }
          }};
}

}  // namespace

void scan_tar_target(std::string_view input) {
  if (input.empty()) return;
  std::string archive(input.substr(1));
  if ((input[0] & 1) != 0) fix_tar_headers(archive);
  const auto strict = scan(archive, {});
  require_same_answer(strict, scan(archive, {.libarchive_only = true}));
  const auto lenient = scan(archive, {.lenient = true});
  require_same_answer(lenient, scan(archive, {.lenient = true, .libarchive_only = true}));
  if (strict.refused.empty()) {  // if there is no damage, both must agree
    SHARDWISE_FUZZ_REQUIRE(lenient.refused.empty() && lenient.report.skipped.empty());
    require_equal(strict, lenient);
  }
}

void sparse_tar_image_target(std::string_view input) {
  if (input.empty()) return;
  const auto control = static_cast<unsigned char>(input[0]);
  std::string archive(input.substr(1));
  if ((control & 1) != 0) fix_tar_headers(archive);
  static constexpr std::size_t kPieces[] = {1, 100, 512, 700, 1024, 4000, 10000, 1 << 20};
  const SparseTarImage image =
      image_of(archive, kPieces[control >> 3 & 7], (control & 2) != 0, (control & 4) != 0);
  SHARDWISE_FUZZ_REQUIRE(image.bytes().size() == archive.size());
  for (const bool lenient : {false, true}) {
    const Scan plain = scan(archive, {.lenient = lenient});
    const Scan imaged = scan(image.bytes(), {.lenient = lenient});
    if (plain.refused != imaged.refused) {
      throw BrokenPromise("refused otherwise: '" + plain.refused + "', by its image '" +
                          imaged.refused + "'");
    }
    require_equal(plain, imaged);
    for (std::size_t i = 0; i < plain.report.skipped.size(); ++i) {
      SHARDWISE_FUZZ_REQUIRE(plain.report.skipped[i].what == imaged.report.skipped[i].what);
    }
    for (const Member& m : plain.members) {
      if ((control & 4) == 0 || (m.name.size() + m.size_bytes) % 2 != 0) continue;
      SHARDWISE_FUZZ_REQUIRE(std::string_view(archive).substr(m.data_offset, m.size_bytes) ==
                             image.bytes().substr(m.data_offset, m.size_bytes));
    }
  }
}

}  // namespace shardwise::fuzz
