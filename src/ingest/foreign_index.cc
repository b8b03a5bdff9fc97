#include "ingest/foreign_index.h"

#include "base/ascii.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/file.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

constexpr std::string_view kSuffix = ".idx";
constexpr std::string_view kEnergonSuffix = ".tar.idx";

}  // namespace

std::string_view name_of(ForeignIndex kind) {
  SHARDWISE_ASSERT(kind != ForeignIndex::kNone);
  return kind == ForeignIndex::kDali ? "DALI" : "Energon";
}

bool is_dali_index(std::string_view first_bytes) {
  return first_bytes.size() > 5 && first_bytes.starts_with("v1.") && is_digit(first_bytes[3]) &&
         first_bytes[4] == ' ' && is_digit(first_bytes[5]);
}

ForeignIndex foreign_index_at(const std::string& path) try {
  const std::string name = to_lower(path);
  if (!name.ends_with(kSuffix)) return ForeignIndex::kNone;
  const File file = File::open_read(path);
  char first[16];
  const std::size_t got = file.read_at(0, first, sizeof first);
  if (is_dali_index({first, got})) return ForeignIndex::kDali;
  const std::uint64_t size = file_identity(file.fd(), path).size_bytes;
  // Samples begin at headers, the first of them near the start of the archive.
  const bool is_energon = name.ends_with(kEnergonSuffix) && size >= 8 && size % 8 == 0 &&
                          load_le64(first) % 512 == 0 && load_le64(first) < (1u << 20);
  return is_energon ? ForeignIndex::kEnergon : ForeignIndex::kNone;
} catch (const Error&) {
  return ForeignIndex::kNone;
}

std::string shard_of_foreign_index(const std::string& path, ForeignIndex kind) {
  const std::string stem = path.substr(0, path.size() - kSuffix.size());
  return kind == ForeignIndex::kDali && !to_lower(stem).ends_with(".tar") ? stem + ".tar" : stem;
}

}  // namespace shardwise
