#include "shardwise/ingest/index_export.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "index/index_files.h"
#include "ingest/md5.h"
#include "ingest/shard_scan.h"
#include "ingest/shard_url.h"
#include "shardwise/base/error.h"
#include "shardwise/base/file.h"
#include "shardwise/base/text.h"
#include "shardwise/base/url.h"

namespace shardwise {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kWriteBytes = std::size_t{1} << 20;
constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

/// All shards of `index`, each held against its file if that is a local one.
std::vector<ShardInfo> unchanged_shards(const Index& index, const std::atomic<bool>* cancel) {
  std::vector<ShardInfo> shards;
  shards.reserve(index.num_shards());
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    throw_if_cancelled(cancel);
    shards.push_back(index.shard(i));
    if (is_fetched_url(shards.back().path)) continue;
    const FileIdentity identity = file_identity(shards.back().path);
    require_unchanged(shards.back(), identity.size_bytes, identity.mtime_ns);
  }
  return shards;
}

/// A file that is written in large pieces.
class TextFile {
 public:
  explicit TextFile(const std::string& path) : file_(path) {}

  TextFile& operator<<(std::string_view text) {
    text_ += text;
    if (text_.size() >= kWriteBytes) flush();
    return *this;
  }
  TextFile& operator<<(std::uint64_t number) { return *this << std::to_string(number); }
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

/// How a descriptor at `descriptor` names the file at `path`, so that it is found again.
std::string url_in(const std::string& descriptor, const std::string& path) {
  std::string url = url_of_path(descriptor, path);
  if (!is_utf8(url)) {
    throw Unsupported("the shard's path is not UTF-8, and a wids descriptor can hold no other",
                      in_quotes(path), "rename the file, and index it again");
  }
  if (is_fetched_url(url)) return url;
  // A name such as `pipe:x.tar` or `a://x.tar` is a URL unless something comes before it.
  if (!is_plain_path(url)) url.insert(0, "./");
  return url;
}

std::string md5_of(const ShardInfo& shard, std::uint64_t bytes_before, std::uint64_t num_bytes,
                   const WidsExportOptions& options) {
  if (is_fetched_url(shard.path)) {
    throw Unsupported("the md5 of a remote shard is not taken", in_quotes(redacted_url(shard.path)),
                      "export without md5sum, or index a local copy");
  }
  const File file = File::open_read(shard.path);
  const FileIdentity identity = file_identity(file.fd(), file.path());
  require_unchanged(shard, identity.size_bytes, identity.mtime_ns);
  return file_md5(
      file,
      [&](std::uint64_t done) {
        if (options.progress) options.progress(bytes_before + done, num_bytes);
      },
      options.cancel);
}

/// "sub/train-0.tar" gives "train-0.idx".
std::string dali_name(const ShardInfo& shard) {
  const fs::path path(shard.path);
  return (path.extension() == ".tar" ? path.stem() : path.filename()).string() + ".idx";
}

[[noreturn]] void refuse_name(const ShardInfo& shard, std::string_view name) {
  throw Unsupported("a name with white space, which separates names in DALI's index files",
                    in_quotes(shard.path) + ", " + in_quotes(name),
                    "make shards whose names have none");
}

/// Throws unless DALI can read what dali_text makes of this shard.
void require_dali_can_read(const ShardInfo& shard, const SegmentView& segment) {
  if (segment.num_samples() == 0) {
    throw Unsupported("a shard without samples, which DALI refuses", in_quotes(shard.path),
                      "leave it out of the index");
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

}  // namespace

void write_wids_descriptor(const Index& index, const std::string& path,
                           const WidsExportOptions& options) {
  const IndexSummary summary = index.summary();
  if (summary.num_skipped > 0) {
    throw Unsupported("the index left out " + std::to_string(summary.num_skipped) +
                          " bad members, and wids would number the samples otherwise",
                      in_quotes(index.path()),
                      "see them with `shardwise info`, and make shards without them");
  }
  if (!is_utf8(options.name)) {
    throw Unsupported("the data set's name is not UTF-8", in_quotes(options.name),
                      "choose another");
  }
  const std::vector<ShardInfo> shards = unchanged_shards(index, options.cancel);
  sweep_temporaries(path);
  TextFile out(path);
  out << "{\n  \"__kind__\": \"wids-shard-index-v1\",\n  \"wids_version\": 1,\n";
  if (!options.name.empty()) out << "  \"name\": " << json_string(options.name) << ",\n";
  out << "  \"shardlist\": [";
  std::uint64_t bytes_before = 0;
  std::string_view separator = "\n";
  for (const ShardInfo& shard : shards) {
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
  throw_if_cancelled(options.cancel);
  out.commit();
}

std::vector<std::string> write_dali_index(const Index& index, const std::string& directory,
                                          const std::atomic<bool>* cancel) {
  const std::vector<ShardInfo> shards = unchanged_shards(index, cancel);
  std::vector<std::string> paths;
  std::unordered_map<std::string, std::uint64_t> taken;
  for (const ShardInfo& shard : shards) {
    throw_if_cancelled(cancel);
    const std::string name = dali_name(shard);
    const auto [it, is_new] = taken.emplace(name, shard.number);
    if (!is_new) {
      throw InvalidArgument("two shards would have one index file, " + in_quotes(name),
                            in_quotes(shards[it->second].path) + " and " + in_quotes(shard.path),
                            "rename one of them, or index them apart");
    }
    require_dali_can_read(shard, index.segment(shard.number));
    paths.push_back(directory + "/");
    paths.back() += name;
  }
  if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) {
    throw_errno(errno, "cannot make the folder", directory);
  }
  for (const ShardInfo& shard : shards) {
    throw_if_cancelled(cancel);
    write_dali_file(index.segment(shard.number), paths[shard.number]);
  }
  return paths;
}

}  // namespace shardwise
