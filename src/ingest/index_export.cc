#include "shardwise/ingest/index_export.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/ascii.h"
#include "base/counted.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/normal_path.h"
#include "base/private_file.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/index_files.h"
#include "index/missing_shards.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "ingest/md5.h"
#include "ingest/shard_url.h"
#include "ingest/wids_json.h"

namespace shardwise {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kTextBytes = std::size_t{1} << 20;
constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

/// Returns all shards of `index`. Throws if a local shard has changed since it was indexed.
std::vector<Index::Shard> unchanged_shards(const Index& index, const CancelToken& cancel) {
  std::vector<Index::Shard> shards;
  shards.reserve(index.num_shards());
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    cancel.throw_if_cancelled();
    shards.push_back(index.shard(i));
    if (is_fetched_url(shards.back().path)) continue;
    if (is_missing(shards.back())) {
      throw missing_shard_error(index, shards.back(), count_missing_shards(index));
    }
    const FileIdentity identity = file_identity(shards.back().path);
    require_unchanged(shards.back(), identity.size_bytes, identity.mtime_ns);
  }
  return shards;
}

/// A text file that is written in large pieces. commit() gives the file its name.
class TextFile {
 public:
  explicit TextFile(const std::string& path) : file_(path) {}

  TextFile& operator<<(std::string_view text) {
    text_ += text;
    if (text_.size() >= kTextBytes) flush();
    return *this;
  }
  TextFile& operator<<(std::uint64_t number) { return *this << std::to_string(number); }
  void make_private() { shardwise::make_private(file_.file()); }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.file().write(text_);
    text_.clear();
  }

  AtomicFile file_;
  std::string text_;
};

std::string json_string(std::string_view text) { return nlohmann::json(text).dump(); }

/// Returns the reference to the file at `path` for a descriptor at `descriptor`. URLs are written
/// without secrets, as in the index.
std::string url_in(const std::string& descriptor, const std::string& path) {
  std::string url = url_of_path(descriptor, path);
  if (!is_utf8(url)) {
    throw Unsupported("the shard's path is not UTF-8, as a wids descriptor requires",
                      in_quotes(path), "rename the file, and index it again");
  }
  if (is_fetched_url(url)) return url;
  // Without this prefix, a file name such as `pipe:x.tar` or `a://x.tar` would be read as a URL.
  if (!is_plain_path(url)) url.insert(0, "./");
  return url;
}

std::string md5_of(const Index::Shard& shard, std::uint64_t bytes_before, std::uint64_t num_bytes,
                   const WidsDescriptor::ExportOptions& options) {
  if (is_fetched_url(shard.path)) {
    throw Unsupported("the md5 of a remote shard is not computed",
                      in_quotes(redacted_url(shard.path)),
                      "export without md5sum, or index a local copy");
  }
  return local_md5(
      shard,
      [&](std::uint64_t done) {
        if (options.progress) {
          options.progress({.bytes_done = bytes_before + done, .num_bytes = num_bytes});
        }
      },
      options.cancel);
}

/// Formats the shard's path for error texts.
std::string shown(const Index::Shard& shard) { return in_quotes(without_secrets(shard.path)); }

/// Returns the first `max_bytes` bytes of the file at `path`, or the whole file if it is shorter;
/// nullopt if it does not exist.
std::optional<std::string> begin_of_file(const std::string& path, std::size_t max_bytes) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) return std::nullopt;
  const File file = File::open_read(path);
  const std::uint64_t size = file_identity(file.fd(), path).size_bytes;
  std::string bytes(std::min<std::uint64_t>(size, max_bytes), '\0');
  bytes.resize(file.read_at(0, bytes.data(), bytes.size()));
  return bytes;
}

[[noreturn]] void refuse_to_replace(const std::string& path, std::string_view kind) {
  throw InvalidArgument("cannot replace a file that is not a " + std::string(kind), in_quotes(path),
                        "choose another name, or remove the file");
}

/// Throws if the file at `path` has content that is not a wids descriptor.
void require_descriptor_or_nothing(const std::string& path) {
  const auto begin = begin_of_file(path, 64);
  if (!begin || begin->empty()) return;
  const std::size_t first = begin->find_first_not_of(kWhiteSpace);
  if (first == std::string::npos || (*begin)[first] != '{') {
    refuse_to_replace(path, "wids descriptor");
  }
  try {
    wids_json::parse(*begin_of_file(path, wids_json::kMaxBytes), path);
  } catch (const Error&) {
    refuse_to_replace(path, "wids descriptor");
  }
}

/// True if a file with these first bytes is a DALI index (of any version).
bool is_dali_index(std::string_view first_bytes) {
  return first_bytes.size() > 5 && first_bytes.starts_with("v1.") && is_digit(first_bytes[3]) &&
         first_bytes[4] == ' ' && is_digit(first_bytes[5]);
}

/// Throws if the file has content that is not a DALI index.
void require_dali_index_or_nothing(const std::string& path) {
  const auto text = begin_of_file(path, 64);
  if (!text || text->empty()) return;
  if (!is_dali_index(*text)) refuse_to_replace(path, "DALI index");
}

/// Throws if wids' own tar reader would not find the samples and fields that the index has.
void require_wids_can_read(const Index::Shard& shard, const SegmentView& segment) {
  // wids' reader uses only two fields of a header: the name of 100 bytes, and the size in 11 octal
  // digits.
  constexpr std::size_t kMaxName = 100;
  constexpr std::uint64_t kMaxMemberBytes = (std::uint64_t{1} << 33) - 1;
  const auto refuse = [&](const std::string& what, std::string_view name, std::string_view remedy) {
    throw Unsupported(what, shown(shard) + (name.empty() ? "" : ", " + in_quotes(name)), remedy);
  };
  if (shard.compression != Compression::kNone) {
    refuse("the shard is compressed, and wids would read it as a plain tar", "",
           "expand the shard, and index the expanded file");
  }
  if (shard.num_archives > 1) {
    refuse("the shard holds several archives, but wids reads only the first", "",
           "join the archives with `tar -A`, or repack the shard");
  }
  std::unordered_map<std::string_view, std::uint64_t> first_samples;  // by key
  std::unordered_set<std::uint64_t> names;  // the key's first sample << 24 | field number
  std::uint64_t last_offset = 0;
  for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
    const std::string_view key = segment.key(i);
    const std::uint64_t first = first_samples.try_emplace(key, i).first->second;
    for (const MemberRecord& member : segment.members(i)) {
      const std::string_view field = segment.field_name(member.field());
      const std::string name = std::string(key) + "." + std::string(field);
      if (name.size() > kMaxName) {
        refuse("the name of the member has more than 100 bytes, and wids would cut it off", name,
               "repack the shard with shorter names");
      }
      if (!is_utf8(name)) {
        refuse("the name of the member is not UTF-8, and wids cannot read the shard", name,
               "rename the member");
      }
      if (member.size_bytes > kMaxMemberBytes) {
        refuse("the member has 8 GiB or more, and wids cannot read the shard", name,
               "repack the shard with smaller members");
      }
      if (member.data_offset() <= last_offset) {
        refuse("the member is a hard link, which wids would leave out", name,
               "repack the shard without links: `tar --hard-dereference`");
      }
      last_offset = member.data_offset();
      if (!names.insert(first << 24 | member.field()).second) {
        refuse("the name of the member occurs twice, but wids would read only one of the two", name,
               "rename one of the two members");
      }
    }
  }
}

/// The index file's name: "sub/train-0.tar" gives "train-0.idx". A URL's query and fragment are
/// left out. In a path, or in the key of an object store, a question mark is part of the name.
std::string dali_name(const Index::Shard& shard) {
  const bool is_key = is_object_url(shard.path);
  const std::string plain = is_key ? shard.path : without_secrets(shard.path);
  const bool has_query = is_remote_url(plain) && !is_key;
  const fs::path path(plain.substr(0, has_query ? plain.find('?') : std::string::npos));
  return (path.extension() == ".tar" ? path.stem() : path.filename()).string() + ".idx";
}

[[noreturn]] void refuse_name(const Index::Shard& shard, std::string_view name) {
  throw Unsupported(
      "the name of the member has white space, which separates names in DALI's index files",
      shown(shard) + ", " + in_quotes(name), "repack the shard with names without white space");
}

/// Throws if DALI could not read the file that write_dali_file() makes for this shard.
void require_dali_can_read(const Index::Shard& shard, const SegmentView& segment) {
  if (shard.compression != Compression::kNone) {
    throw Unsupported("the shard is compressed, and DALI needs the offsets in a plain tar",
                      shown(shard), "expand the shard, and index the expanded file");
  }
  if (segment.num_samples() == 0) {
    throw Unsupported("the shard has no samples, and DALI refuses such shards", shown(shard),
                      "leave the shard out of the index");
  }
  for (std::uint32_t i = 0; i < segment.num_fields(); ++i) {
    const std::string_view field = segment.field_name(i);
    if (field.find_first_of(kWhiteSpace) != std::string_view::npos) refuse_name(shard, field);
  }
  for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
    const std::string_view key = segment.key(i);
    if (key.find_first_of(kWhiteSpace) != std::string_view::npos) refuse_name(shard, key);
  }
}

void write_dali_file(const SegmentView& segment, const std::string& path) {
  TextFile out(path);
  out << "v1.2 " << segment.num_samples() << "\n";
  for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
    std::string_view separator;
    for (const MemberRecord& member : segment.members(i)) {
      const std::string_view field = segment.field_name(member.field());
      out << separator << field << " " << member.data_offset() << " " << member.size_bytes << " "
          << segment.key(i) << "." << field;
      separator = " ";
    }
    out << "\n";
  }
  out.commit();
}

/// Throws if wids would number the samples differently, because it also reads members that the
/// index skipped.
void require_wids_numbers_alike(const Index& index, std::uint64_t num_skipped) {
  std::uint64_t num_found = 0;  // number of members that wids reads and the index skipped
  for (const Index::SkippedMember& member : index.skipped(num_skipped)) {
    if (member.kind == Index::SkippedMember::Kind::kNoValue) continue;  // the index has this member
    const bool is_file = member.kind != Index::SkippedMember::Kind::kLink &&
                         member.kind != Index::SkippedMember::Kind::kSpecial;
    // Python wids splits the whole path at its first dot. It treats any link or special file whose
    // path has a dot as a member.
    if (is_file || member.name.find('.') != std::string::npos) ++num_found;
  }
  if (num_found > 0) {
    throw Unsupported("the index left out " + counted(num_found, "member") +
                          ", and wids would number the samples differently",
                      in_quotes(index.path()),
                      "list these members with " + spelled("`shardwise ls --left-out`") +
                          ", and repack the shards without them");
  }
}

}  // namespace

void write_wids_descriptor(const Index& index, const std::string& named,
                           const WidsDescriptor::ExportOptions& options) {
  const std::string path = at_home(named);
  const Index::Summary summary = index.summary();
  if (summary.part) {
    throw InvalidArgument("the index is part " + to_string(*summary.part) +
                              ", but a descriptor describes a whole data set",
                          in_quotes(index.path()),
                          "join the parts with " + spelled("`shardwise merge`") + " first");
  }
  require_wids_numbers_alike(index, summary.num_skipped);
  if (!is_utf8(options.name)) {
    throw Unsupported("the data set's name is not UTF-8", in_quotes(options.name),
                      "choose another name");
  }
  require_descriptor_or_nothing(path);
  const std::vector<Index::Shard> shards = unchanged_shards(index, options.cancel);
  for (const Index::Shard& shard : shards) {
    options.cancel.throw_if_cancelled();
    require_wids_can_read(shard, segment_of(index, shard.number));
  }
  sweep_temporaries(path);
  TextFile out(path);
  if (std::any_of(shards.begin(), shards.end(), [](const Index::Shard& shard) {
        return without_secrets(shard.url) != shard.url;
      })) {
    out.make_private();
  }
  out << "{\n  \"__kind__\": \"wids-shard-index-v1\",\n  \"wids_version\": 1,\n";
  if (!options.name.empty()) out << "  \"name\": " << json_string(options.name) << ",\n";
  out << "  \"shardlist\": [";
  std::uint64_t bytes_before = 0;
  std::string_view separator = "\n";
  for (const Index::Shard& shard : shards) {
    out << separator << "    {\"url\": " << json_string(url_in(path, shard.path))
        << ", \"nsamples\": " << shard.num_samples << ", \"filesize\": " << shard.size_bytes;
    if (options.md5) {
      out << ", \"md5sum\": \"" << md5_of(shard, bytes_before, summary.shard_bytes, options)
          << "\"";
    }
    out << "}";
    bytes_before += shard.size_bytes;
    separator = ",\n";
  }
  out << "\n  ]\n}\n";
  options.cancel.throw_if_cancelled();
  out.commit();
}

std::vector<std::string> write_dali_index(const Index& index, const std::string& named,
                                          const CancelToken& cancel) {
  const std::string directory = at_home(named);
  const std::vector<Index::Shard> shards = unchanged_shards(index, cancel);
  std::vector<std::string> paths;
  std::unordered_map<std::string, std::uint64_t> taken;
  for (const Index::Shard& shard : shards) {
    cancel.throw_if_cancelled();
    const std::string name = dali_name(shard);
    const auto [it, is_new] = taken.emplace(name, shard.number);
    if (!is_new) {
      throw InvalidArgument("two shards would have one index file, " + in_quotes(name),
                            shown(shards[it->second]) + " and " + shown(shard),
                            "rename one of the two shards, or export the shards separately");
    }
    require_dali_can_read(shard, segment_of(index, shard.number));
    paths.push_back(directory + "/");
    paths.back() += name;
    require_dali_index_or_nothing(paths.back());
  }
  if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) {
    throw_errno(errno, "cannot make the folder", directory);
  }
  for (const Index::Shard& shard : shards) {
    cancel.throw_if_cancelled();
    write_dali_file(segment_of(index, shard.number), paths[shard.number]);
  }
  return paths;
}

}  // namespace shardwise
