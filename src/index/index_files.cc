#include "index/index_files.h"

#include <dirent.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/origin.h"
#include "index/remedies.h"
#include "index/table_writer.h"
#include "shardwise/base/hash.h"

namespace shardwise {
namespace fs = std::filesystem;
IndexFiles::IndexFiles(const std::string& path) : path_(behind_links(path)) {
  if (is_remote_url(path)) {
    throw Unsupported("the index is at a URL, but its files are needed",
                      in_quotes(redacted_url(path)),
                      "download both files, and name the local index" +
                          if_there("; or open it with ", "Dataset::open"));
  }
  // Try again if a build ends between the two opens: it removes the old table, but then the new
  // catalogue exists.
  constexpr int kTries = 10;
  for (int i = 0;; ++i) {
    catalogue_ = std::make_unique<Catalogue>(path_);
    try {
      const File file = File::open_read(table_path());
      table_ = std::make_unique<MappedFile>(MappedFile::open(file));
      lookups_ = std::make_unique<MappedFile>(MappedFile::open(file, MappedFile::Access::kRandom));
      break;
    } catch (const NotFound&) {
      if (i >= kTries || file_identity(path_) == catalogue_->identity()) {
        throw CorruptIndex("the index's offset table is missing",
                           in_quotes(path_) + " names " + in_quotes(table_path()),
                           "keep the two files together, or build the index again");
      }
    }
  }
  view_ = TableView(table_->bytes(),
                    {"the index is damaged", in_quotes(table_path()), rebuild_remedy(path_)});
  view_.look_up_in(lookups_->bytes());
  const Index::Summary& summary = catalogue_->meta().summary;
  const TableHeader& h = header();
  if (h.header_checksum != catalogue_->meta().table_checksum ||
      h.num_shards != summary.num_shards || h.num_samples != summary.num_samples ||
      h.num_members != summary.num_members) {
    damaged("the offset table belongs to another index");
  }
}

std::string IndexFiles::table_path() const {
  return directory_of(path_) + "/" + catalogue_->meta().table_file;
}

SegmentView IndexFiles::segment(std::uint64_t shard, std::uint64_t expected_checksum) const {
  const SegmentView view = view_.segment(shard);
  require_own(shard, expected_checksum);
  return view;
}

void IndexFiles::require_intact(std::uint64_t shard, std::uint64_t expected_checksum) const {
  if (const char* const why = SegmentView::damage(segment_bytes(shard))) {
    damaged("shard " + std::to_string(shard) + ": " + why);
  }
  require_own(shard, expected_checksum);
}

/// REQUIRES: the segment's counts were checked.
void IndexFiles::require_own(std::uint64_t shard, std::uint64_t expected_checksum) const {
  SegmentHeader header;
  std::memcpy(&header, segment_bytes(shard).data(), sizeof header);
  const ShardEntry* entry = directory() + shard;
  const Index::Content& content = catalogue_->meta().summary.content;
  if (header.checksum != expected_checksum ||
      header.num_samples != entry[1].first_sample - entry[0].first_sample ||
      header.num_members != entry[1].first_member - entry[0].first_member ||
      header.num_columns != content.columns.size() ||
      ((header.flags & kHasMemberHashes) != 0) != content.hashes) {
    damaged("shard " + std::to_string(shard) + ": the segment belongs to another index");
  }
}

void IndexFiles::require_intact_keys() const {
  if (!keys().is_intact(header().keys_checksum)) damaged("the key section's checksum is wrong");
}

void IndexFiles::check_sections(
    const CancelToken& cancel,
    const std::function<void(std::uint64_t shard, const SegmentView& segment)>& check) const {
  catalogue_->validate(cancel);
  require_intact_keys();
  Hasher128 segments;
  for (std::uint64_t shard = 0; shard < header().num_shards; ++shard) {
    cancel.throw_if_cancelled();
    const Index::Shard row = catalogue_->shard(shard);
    const SegmentView view = segment(shard, row.segment_checksum);
    if (!view.fits_shard(row.expanded_bytes)) {
      damaged("shard " + std::to_string(shard) + ": a member lies outside the shard");
    }
    if (check) check(shard, view);
    segments.update_u64(row.segment_checksum);
  }
  if (segments.digest().low != header().segments_checksum)
    damaged("the segments' checksum is wrong");
}

std::string_view owner_of_table(std::string_view name) noexcept {
  const std::size_t end = 1 + kTableNameLength + kTableSuffix.size();
  if (name.size() <= end || !name.ends_with(kTableSuffix)) return {};
  const std::string_view owner = name.substr(0, name.size() - end);
  return name[owner.size()] == '.' && is_hex(name.substr(owner.size() + 1, kTableNameLength))
             ? owner
             : std::string_view();
}

/// True if an index in this directory names the table.
bool is_named(const std::string& directory, std::string_view table) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string& path = entry.path().native();
    try {
      if (entry.is_regular_file() && Catalogue::looks_like_one(path) &&
          Catalogue(path).meta().table_file == table) {
        return true;
      }
    } catch (const Error&) {
      // This file is not a readable index.
    }
  }
  return false;
}

void sweep_tables(const std::string& path, const std::string& replaced) noexcept {
  try {
    const std::string directory = directory_of(path);
    const std::string_view base = std::string_view(path).substr(path.rfind('/') + 1);
    const std::string_view owner = owner_of_table(replaced);
    if (!owner.empty() && owner != base &&
        ::access((directory + "/" + std::string(owner)).c_str(), F_OK) != 0 &&
        !is_named(directory, replaced)) {
      ::unlink((directory + "/" + replaced).c_str());
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
    if (!entries) return;
    const std::string in_use = Catalogue(path).meta().table_file;
    while (const dirent* entry = ::readdir(entries.get())) {
      const std::string_view name = entry->d_name;
      if (owner_of_table(name) != base || name == in_use) continue;
      File file = File::open_to_lock(directory + "/" + std::string(name));
      SHARDWISE_FAULT_POINT("sweep.opened");
      // Lock the table before reading the catalogue again. A build that released its lock just
      // before has already committed its catalogue.
      const FileLock lock = file.try_lock();
      if (lock == FileLock::kHeldByAnother) continue;
      // On a file system without locks, a build may be writing the table, unless it is the table of
      // the replaced index.
      if (lock == FileLock::kUnsupported && name != replaced) continue;
      if (Catalogue(path).meta().table_file == name) continue;
      SHARDWISE_FAULT_POINT("sweep.locked");
      // A build may have replaced the file by one of the same content before it was locked.
      if (file.has_path()) ::unlink(file.path().c_str());
    }
  } catch (const std::exception&) {
    // Never throws; see the comment in the header file.
  }
}

namespace {

/// Returns the URL of a shard of the index that was fetched from `index_url`.
std::string url_in_fetched(const std::string& index_url, const std::string& url) {
  if (is_remote_url(url)) return url;
  const auto named = [&] { return in_quotes(url) + " in " + in_quotes(redacted_url(index_url)); };
  if (is_command_url(url) || url.starts_with('/')) {
    throw Unsupported(is_command_url(url) ? "an index from a URL contains a command"
                                          : "an index from a URL contains a path on this machine",
                      named(),
                      "index shards in the folder of the index, or at URLs; or give the folder "
                      "of its shards with " +
                          spelled("Dataset::Options::root"));
  }
  if (("/" + url + "/").find("/../") != std::string::npos) {
    throw InvalidArgument("the stored path of a shard leads out of the index's folder", named(),
                          "build the index again");
  }
  return url_beside(index_url, url.starts_with("./") ? url.substr(2) : url);
}

}  // namespace

std::string resolve_url(const std::string& home, const std::string& url) {
  if (is_remote_url(home)) return url_in_fetched(home, url);
  if (is_fetched_url(url) || (!url.empty() && url[0] == '/')) return url;
  const std::string below = url.starts_with("./") ? url.substr(2) : url;
  return home == "/" ? "/" + below : home + "/" + below;
}

std::string url_of_path(const std::string& index_path, const std::string& path) {
  if (is_fetched_url(path)) return unsigned_url(path);
  std::string absolute = normal_absolute_path(path);
  std::string home = normal_absolute_path(directory_of(index_path));
  if (absolute == home) return ".";
  if (!home.ends_with('/')) home += '/';
  if (!absolute.starts_with(home)) return absolute;
  // A file may be named "pipe:x.tar", which looks like a command, or ":x.tar", which looks like a
  // URL relative to the URL base.
  std::string text = absolute.substr(home.size());
  return is_fetched_url(text) || text.starts_with(':') ? "./" + text : text;
}

}  // namespace shardwise
