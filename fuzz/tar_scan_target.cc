#include <optional>

#include "checksums.h"
#include "shardwise/base/bytes.h"
#include "shardwise/tar/sample_name.h"
#include "shardwise/tar/tar_scanner.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

struct Member {
  std::string name;
  std::uint64_t header_offset, data_offset, size_bytes;

  friend bool operator==(const Member&, const Member&) = default;
};

struct Scan {
  std::vector<Member> members;
  TarScanReport report;
};

void check_name(std::string_view name) {
  const auto split = split_sample_name(name);
  if (!split) return;
  SHARDWISE_FUZZ_REQUIRE(!split->key.empty() && !split->field.empty());
  SHARDWISE_FUZZ_REQUIRE(name == std::string(split->key) + "." + std::string(split->field));
}

/// Nothing if it was refused with a typed error.
std::optional<Scan> scan(std::string_view archive, const TarScanOptions& options) {
  Scan found;
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
  } catch (const Error&) {
    return std::nullopt;
  }
  SHARDWISE_FUZZ_REQUIRE(found.report.num_members == found.members.size());
  SHARDWISE_FUZZ_REQUIRE(options.lenient || found.report.skipped.empty());
  return found;
}

/// The two say the same.
void require_equal(const Scan& first, const Scan& second) {
  const TarScanReport& a = first.report;
  const TarScanReport& b = second.report;
  SHARDWISE_FUZZ_REQUIRE(first.members == second.members);
  SHARDWISE_FUZZ_REQUIRE(a.header_hash == b.header_hash);
  SHARDWISE_FUZZ_REQUIRE(a.num_directories == b.num_directories && a.num_links == b.num_links &&
                         a.num_special == b.num_special && a.num_archives == b.num_archives);
  SHARDWISE_FUZZ_REQUIRE(a.trailing_bytes == b.trailing_bytes && a.end_marker == b.end_marker);
  SHARDWISE_FUZZ_REQUIRE(a.skipped.size() == b.skipped.size());
}

/// The direct path and libarchive alone read the same, or both refuse it.
void require_same_answer(const std::optional<Scan>& direct, const std::optional<Scan>& libarchive) {
  SHARDWISE_FUZZ_REQUIRE(direct.has_value() == libarchive.has_value());
  if (direct) require_equal(*direct, *libarchive);
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
  if (strict) {  // then there is nothing to be lenient about
    SHARDWISE_FUZZ_REQUIRE(lenient && lenient->report.skipped.empty());
    require_equal(*strict, *lenient);
  }
}

}  // namespace shardwise::fuzz
