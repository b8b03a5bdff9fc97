#include "shardwise/index/index_builder.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "index/catalogue.h"
#include "index/index_files.h"
#include "index/shard_scan.h"
#include "index/table_writer.h"
#include "shardwise/base/error.h"
#include "shardwise/base/fault_point.h"
#include "shardwise/base/file.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/ordered_pipeline.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

constexpr std::string_view kTableSuffix = ".table";
constexpr std::size_t kTableNameLength =
    16;  // hexadecimal digits between the index's name and suffix

std::string_view policy_name(OnBad on_bad) { return on_bad == OnBad::kError ? "error" : "skip"; }

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

/// A shard to be put into the index: where it is, what it looks like now, and where the old index
/// has it if it did not change.
struct Source {
  std::string path;
  std::string url;
  FileIdentity identity;
  std::optional<std::uint64_t> unchanged;  ///< its number in the old index
};

class Build {
 public:
  Build(const std::string& path, const std::vector<std::string>& shards,
        const BuildOptions& options)
      : path_(path), options_(options) {
    if (shards.empty()) {
      throw InvalidArgument("no shards to index", in_quotes(path), "name at least one shard");
    }
    sweep_temporaries(path_);
    open_old_index();
    list_sources(shards);
  }

  BuildReport run() {
    if (nothing_changed()) return finish_unchanged();
    {
      TableWriter table(path_);
      CatalogueWriter catalogue(path_);
      scan_all(table, catalogue);
      throw_if_cancelled(options_.cancel);
      table.commit();
      commit_catalogue(table, catalogue);
    }
    sweep_tables();
    report_.summary = Index::open(path_)->summary();
    return std::move(report_);
  }

 private:
  void open_old_index() {
    if (::access(path_.c_str(), F_OK) != 0) return;
    if (!Catalogue::looks_like_one(path_)) {
      throw InvalidArgument("will not replace a file that is no Shardwise index", in_quotes(path_),
                            "choose another name for the index, or remove the file");
    }
    try {
      auto old = std::make_unique<IndexFiles>(path_);
      old->check_sections();
      old_ = std::move(old);
    } catch (const CorruptIndex&) {
      // A damaged index is built anew: nothing of it is taken over.
    } catch (const VersionMismatch&) {
      // So is one of another version.
    }
  }

  void list_sources(const std::vector<std::string>& shards) {
    std::unordered_map<std::string, std::uint64_t> old_numbers;
    if (old_ && old_->catalogue().meta().on_bad == policy_name(options_.on_bad)) {
      for (std::uint64_t i = 0; i < old_->header().num_shards; ++i) {
        old_numbers.emplace(old_->catalogue().shard(i).url, i);
      }
    }
    sources_.reserve(shards.size());
    for (const std::string& path : shards) {
      throw_if_cancelled(options_.cancel);
      Source source{path, url_of_path(path_, path), file_identity(path), {}};
      if (const auto it = old_numbers.find(source.url); it != old_numbers.end()) {
        const ShardRow row = old_->catalogue().shard(it->second);
        if (row.size_bytes == source.identity.size_bytes &&
            row.mtime_ns == source.identity.mtime_ns) {
          source.unchanged = it->second;
        }
      }
      progress_.num_bytes += source.identity.size_bytes;
      sources_.push_back(std::move(source));
    }
    progress_.num_shards = sources_.size();
  }

  bool nothing_changed() const {
    if (!old_ || old_->header().num_shards != sources_.size()) return false;
    for (std::uint64_t i = 0; i < sources_.size(); ++i) {
      if (sources_[i].unchanged != i) return false;
    }
    return true;
  }

  BuildReport finish_unchanged() {
    progress_.shards_done = sources_.size();
    progress_.samples = old_->header().num_samples;
    progress_.bytes_done = progress_.num_bytes;
    for (std::uint64_t i = 0; i < sources_.size(); ++i) note(i, old_->catalogue().shard(i));
    report_.shards_reused = sources_.size();
    if (options_.progress) options_.progress(progress_);
    sweep_tables();
    report_.summary = Index::open(path_)->summary();
    return std::move(report_);
  }

  /// Scans on all threads, and appends the parts in shard order.
  void scan_all(TableWriter& table, CatalogueWriter& catalogue) {
    for (const Source& source : sources_) {
      if (source.unchanged) read_old_skipped();
    }
    const unsigned wanted = options_.num_threads != 0
                                ? options_.num_threads
                                : std::max(1U, std::thread::hardware_concurrency());
    const auto threads = static_cast<unsigned>(std::min<std::size_t>(wanted, sources_.size()));
    std::size_t next = 0;
    OrderedPipeline<const Source*, ShardPart> pipeline(
        [&]() -> std::optional<const Source*> {
          if (next == sources_.size()) return std::nullopt;
          return &sources_[next++];
        },
        [&](const Source* const& source) { return make_part(*source); },
        {.num_threads = threads, .prefetch = std::size_t{2} * threads});
    while (auto part = pipeline.next()) {
      throw_if_cancelled(options_.cancel);
      append(std::move(*part), table, catalogue);
    }
  }

  ShardPart make_part(const Source& source) const {
    SHARDWISE_FAULT_POINT("build.scan_shard");
    throw_if_cancelled(options_.cancel);
    if (!source.unchanged) return scan_shard(source.path, options_.on_bad, options_.cancel);
    ShardPart part;
    part.row = old_->catalogue().shard(*source.unchanged);
    const SegmentView view = old_->segment(*source.unchanged, part.row.segment_checksum);
    part.segment = old_->segment_bytes(*source.unchanged);
    part.key_hashes.resize(view.num_samples());
    for (std::uint32_t i = 0; i < view.num_samples(); ++i) part.key_hashes[i] = hash64(view.key(i));
    part.fields = count_fields(view);
    if (const auto it = old_skipped_.find(*source.unchanged); it != old_skipped_.end()) {
      part.skipped = it->second;
    }
    part.reused = true;
    return part;
  }

  void read_old_skipped() {
    if (!old_skipped_.empty() || old_->catalogue().meta().num_skipped == 0) return;
    for (SkippedMember& member : old_->catalogue().skipped(UINT64_MAX)) {
      old_skipped_[member.shard].push_back(std::move(member));
    }
  }

  void append(ShardPart part, TableWriter& table, CatalogueWriter& catalogue) {
    const std::uint64_t number = progress_.shards_done;
    ShardRow& row = part.row;
    row.url = sources_[number].url;
    row.first_sample = meta_.num_samples;
    table.append(part.segment, part.key_hashes);
    catalogue.add_shard(row);
    for (SkippedMember& member : part.skipped) {
      member.shard = number;
      catalogue.add_skipped(member);
    }
    for (const FieldInfo& field : part.fields) {
      FieldInfo& total = fields_[field.name];
      total.name = field.name;
      total.num_members += field.num_members;
      total.bytes += field.bytes;
      meta_.content_bytes += field.bytes;
    }
    fingerprint_.update_u64(row.size_bytes);
    fingerprint_.update_u64(row.header_hash.high);
    fingerprint_.update_u64(row.header_hash.low);
    fingerprint_.update_u64(row.num_samples);
    fingerprint_.update_u64(row.num_members);
    meta_.num_samples += row.num_samples;
    meta_.num_members += row.num_members;
    meta_.shard_bytes += row.size_bytes;
    meta_.num_skipped += part.skipped.size();
    note(number, row);
    ++(part.reused ? report_.shards_reused : report_.shards_scanned);

    ++progress_.shards_done;
    progress_.samples = meta_.num_samples;
    progress_.bytes_done += row.size_bytes;
    if (options_.progress) options_.progress(progress_);
  }

  void note(std::uint64_t number, const ShardRow& row) {
    report_.num_not_samples += row.num_not_samples;
    if (!row.end_marker) report_.without_end_marker.push_back(number);
    if (row.num_archives > 1) report_.concatenated.push_back(number);
    if (row.trailing_bytes > 0) report_.with_trailing_bytes.push_back(number);
  }

  void commit_catalogue(const TableWriter& table, CatalogueWriter& catalogue) {
    for (const auto& [name, field] : fields_) catalogue.add_field(field);
    meta_.table_file = table.path().substr(table.path().rfind('/') + 1);
    meta_.table_checksum = table.header().header_checksum;
    meta_.fingerprint = fingerprint_.digest();
    meta_.built_with = "shardwise " SHARDWISE_VERSION;
    meta_.built_at = now_utc();
    meta_.on_bad = policy_name(options_.on_bad);
    meta_.num_shards = table.header().num_shards;
    catalogue.commit(meta_);
    SHARDWISE_FAULT_POINT("build.committed");
  }

  /// Removes the offset tables of this index that its catalogue does not name and nobody is
  /// building.
  void sweep_tables() const noexcept {
    try {
      const std::string directory = directory_of(path_);
      const std::string prefix = path_.substr(path_.rfind('/') + 1) + ".";
      const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
      if (!entries) return;
      while (const dirent* entry = ::readdir(entries.get())) {
        const std::string name = entry->d_name;
        if (name.size() != prefix.size() + kTableNameLength + kTableSuffix.size() ||
            !name.starts_with(prefix) || !name.ends_with(kTableSuffix) ||
            !is_hex(std::string_view(name).substr(prefix.size(), kTableNameLength))) {
          continue;
        }
        File file = File::open_read(directory + "/" + name);
        // First the lock, then the question: a build that just let go of it has committed.
        if (!file.try_lock()) continue;
        if (Catalogue(path_).meta().table_file != name) ::unlink(file.path().c_str());
      }
    } catch (const std::exception&) {
      // A table that stays behind costs room, nothing else; the next build tries again.
    }
  }

  const std::string path_;
  const BuildOptions& options_;
  std::unique_ptr<IndexFiles> old_;
  std::map<std::uint64_t, std::vector<SkippedMember>> old_skipped_;  // by shard
  std::vector<Source> sources_;
  std::map<std::string, FieldInfo> fields_;
  CatalogueMeta meta_;
  Hasher128 fingerprint_;
  BuildProgress progress_;
  BuildReport report_;
};

}  // namespace

BuildReport build_index(const std::string& path, const std::vector<std::string>& shards,
                        const BuildOptions& options) {
  return Build(path, shards, options).run();
}

}  // namespace shardwise
