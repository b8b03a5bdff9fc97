#include "ingest/index_hints.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "base/file.h"
#include "base/text.h"
#include "base/url.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "ingest/foreign_index.h"
#include "ingest/shard_scan.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace fs = std::filesystem;
namespace {

std::string of_samples(std::uint64_t in_hint, std::uint64_t in_shard) {
  return "it has " + std::to_string(in_hint) + " samples, the shard " + std::to_string(in_shard);
}

std::string of_sample(std::uint32_t sample, const std::string& what) {
  return "sample " + std::to_string(sample) + ": " + what;
}

/// Takes a text apart at white space, within lines.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  /// The next word of the line; empty at its end.
  std::string_view next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \n"));
    rest_.remove_prefix(word.size());
    return word;
  }
  void end_line() { rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size() - 1) + 1); }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// How DALI's file differs; empty if it does not.
std::string dali_difference(std::string_view text, const SegmentView& segment) {
  Words words(text);
  const bool has_names = words.next() == "v1.2";
  const auto count = parse_int64(words.next());
  if (!count || *count < 0) return "its first line is no \"v1.2 <samples>\"";
  if (static_cast<std::uint64_t>(*count) != segment.num_samples()) {
    return of_samples(static_cast<std::uint64_t>(*count), segment.num_samples());
  }
  for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
    if (words.at_end()) return "it is cut";
    words.end_line();
    const auto members = segment.members(i);
    std::size_t num_found = 0;
    while (!words.next().empty()) {
      const auto offset = parse_int64(words.next());
      const auto size = parse_int64(words.next());
      if (!offset || !size || (has_names && words.next().empty())) {
        return of_sample(i, "its line is malformed");
      }
      const bool is_there =
          std::any_of(members.begin(), members.end(), [&](const MemberRecord& member) {
            return member.data_offset() == static_cast<std::uint64_t>(*offset) &&
                   member.size_bytes == static_cast<std::uint64_t>(*size);
          });
      if (!is_there) {
        return of_sample(i, "the shard has no member of " + std::to_string(*size) +
                                " bytes at offset " + std::to_string(*offset));
      }
      ++num_found;
    }
    if (num_found != members.size()) {
      return of_sample(i, "it has " + std::to_string(num_found) + " members, the shard " +
                              std::to_string(members.size()));
    }
  }
  return {};
}

/// As dali_difference(), for an index file of Energon.
std::string energon_difference(std::string_view bytes, const SegmentView& segment,
                               std::uint64_t shard_bytes) {
  constexpr std::uint64_t kBlock = 512;
  const std::uint64_t num_samples = segment.num_samples();
  const std::uint64_t num_offsets = bytes.size() / 8;  // the last one is the end
  if (num_offsets != num_samples + 1) {
    return of_samples(num_offsets == 0 ? 0 : num_offsets - 1, num_samples);
  }
  std::uint64_t end = 0;  // of the sample before
  for (std::uint32_t i = 0; i <= num_samples; ++i) {
    const std::uint64_t offset = load_le64(bytes.data() + std::size_t{8} * i);
    // Members of extended headers begin before the block before their data.
    std::uint64_t last = shard_bytes;
    std::uint64_t next_end = end;
    if (i < num_samples) {
      last = UINT64_MAX;
      for (const MemberRecord& member : segment.members(i)) {
        last = std::min(last, member.data_offset() - kBlock);
        next_end = std::max(next_end, member.data_offset() + member.size_bytes);
      }
    }
    if (offset < end || offset > last) {
      return i < num_samples ? of_sample(i, "it begins at offset " + std::to_string(last) +
                                                ", not at " + std::to_string(offset))
                             : "the samples do not end at offset " + std::to_string(offset);
    }
    end = next_end;
  }
  return {};
}

/// Names of the files in folders that may be index files: a folder is listed once, so that looking
/// for those of many shards costs nothing where there are none.
class Candidates {
 public:
  std::vector<std::string> beside(const std::string& shard) {
    const std::string folder = directory_of(shard);
    const auto [it, is_new] = names_.try_emplace(folder);
    std::unordered_set<std::string>& names = it->second;
    if (is_new) list(folder, names);
    std::vector<std::string> paths;
    const auto add = [&](const std::string& path) {
      if (names.contains(path.substr(path.rfind('/') + 1))) paths.push_back(path);
    };
    add(shard + ".idx");
    const std::size_t dot = shard.rfind('.');
    if (dot != std::string::npos) add(shard.substr(0, dot) + ".idx");
    return paths;
  }

 private:
  static void list(const std::string& folder, std::unordered_set<std::string>& names) {
    std::error_code failed;  // a folder that cannot be listed has no index files
    for (fs::directory_iterator it(folder, failed), end; !failed && it != end;
         it.increment(failed)) {
      std::string name = it->path().filename().string();
      if (name.ends_with(".idx")) names.insert(std::move(name));
    }
  }

  std::unordered_map<std::string, std::unordered_set<std::string>> names_;  // by folder
};

/// The most bytes that an index file of the shard can have: Energon's an offset a sample, DALI's
/// some words a member, which may hold a long name.
std::uint64_t longest(ForeignIndex kind, const SegmentView& segment) {
  if (kind == ForeignIndex::kEnergon) return 8 * (segment.num_samples() + std::uint64_t{1}) + 7;
  constexpr std::uint64_t kWordsBytes = 4096;
  return kWordsBytes * (segment.members().size() + segment.num_samples() + std::uint64_t{1});
}

/// How the file at `path` differs from the shard; nothing if it is of no kind that can be compared.
std::optional<std::string> difference(const std::string& path, const Index& index,
                                      const Index::Shard& shard) {
  const ForeignIndex kind = foreign_index_at(path);
  if (kind == ForeignIndex::kNone) return std::nullopt;
  const SegmentView segment = segment_of(index, shard.number);
  std::string bytes;
  try {
    const File file = File::open_read(path);
    const std::uint64_t size = file_identity(file.fd(), path).size_bytes;
    if (size > longest(kind, segment)) {  // not read: it may be larger than the memory
      return "it is " + human_bytes(size) + " long, too long for the shard's " +
             std::to_string(segment.num_samples()) + " samples";
    }
    bytes.resize(size);
    bytes.resize(file.read_at(0, bytes.data(), bytes.size()));
  } catch (const Error&) {
    return std::nullopt;  // a file that cannot be read is no finding
  }
  if (kind == ForeignIndex::kEnergon) {
    return energon_difference(bytes, segment, shard.size_bytes);
  }
  if (!bytes.starts_with("v1.1 ") && !bytes.starts_with("v1.2 ")) return std::nullopt;
  return dali_difference(bytes, segment);
}

}  // namespace

IndexHints check_hints(const Index& index, const CancelToken& cancel) {
  IndexHints hints;
  Candidates candidates;
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    cancel.throw_if_cancelled();
    const Index::Shard shard = index.shard(i);
    if (is_fetched_url(shard.path) || shard.compression != Compression::kNone) continue;
    for (const std::string& path : candidates.beside(shard.path)) {
      const auto different = difference(path, index, shard);
      if (!different) continue;
      if (different->empty()) {
        hints.agreeing.push_back(path);
      } else {
        hints.stale.push_back({path, *different});
      }
    }
  }
  return hints;
}

bool is_index_hint(const std::string& path) {
  return foreign_index_at(path) != ForeignIndex::kNone;
}

}  // namespace shardwise::detail
