#include "ingest/fetched_index.h"

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/mapped_file.h"
#include "base/own_directory.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/index_files.h"
#include "index/offset_table.h"
#include "index/origin.h"
#include "index/table_view.h"
#include "index/table_writer.h"
#include "ingest/index_folder.h"
#include "ingest/remote_shards.h"
#include "ingest/shard_url.h"

namespace shardwise::detail {
namespace fs = std::filesystem;

// The copy of an index at a URL, in the folder <hash of the URL>.idx.fetched:
//
//   origin.json         names the current catalogue, and the version that the server stated for it
//   <hash>.idx          a catalogue, named by the hash of its bytes
//   NAME.<hash>.table   its offset table, under the name that the catalogue contains
//   *.tmp               a file that is being fetched
//
// Step                                           if the process is killed before the next step
// current()            compare with the server   nothing has changed
// IndexSlot::take_turn(), current() again        the kernel frees the lock
// fetch_catalogue()    AtomicFile                the file is not in use; a later fetch replaces it
// fetch_table()        AtomicFile                as above; check_sections() finds a damaged one
// check_sections()     both files together       as above
// write_origin()       AtomicFile                the new version is current
// remove_old()                                   a later fetch removes the files
//
// No file changes after it has its name. The version before the current one stays, so that workers
// of a running job can open the version that the job uses.

namespace {

constexpr std::string_view kCatalogueSuffix = ".idx";

std::string upload_both() {
  return "upload both files of the index, the table first and then the file that ends in .idx";
}

/// The index's two files at the server do not belong together. Fetching them again may help.
class NotAPair : public CorruptIndex {
  using CorruptIndex::CorruptIndex;
};

/// Returns the name of a catalogue, which is a hash of its bytes.
std::string catalogue_name(const Hash128& hash) {
  return to_string(hash) + std::string(kCatalogueSuffix);
}

/// Returns the fingerprint of a version. Returns nullopt unless the catalogue's bytes are those
/// that were fetched, and its table can be opened. Segments of the table are checked on use.
/// Cost: reads the catalogue.
std::optional<Hash128> intact_fingerprint(const std::string& path) try {
  const IndexFiles files(path);
  const File file = File::open_read(path);
  Hasher128 hasher;
  std::string bytes(std::size_t{1} << 18, '\0');
  std::uint64_t offset = 0;
  while (const std::size_t size = file.read_at(offset, bytes.data(), bytes.size())) {
    hasher.update({bytes.data(), size});
    offset += size;
  }
  if (!path.ends_with("/" + catalogue_name(hasher.digest()))) return std::nullopt;
  return files.catalogue().meta().summary.fingerprint;
} catch (const Error&) {
  return std::nullopt;  // e.g. a file that a killed process left
}

/// True if the table has this checksum in its header, and all its sections are those of its header.
/// Such a table is right even if a catalogue that names it is wrong.
/// Cost: reads the table.
bool is_intact_table(const std::string& path, std::uint64_t checksum) {
  try {
    const MappedFile file = MappedFile::open(path);
    const TableView table(file.bytes(), {});
    table.check_sections();
    return table.header().header_checksum == checksum;
  } catch (const CorruptIndex&) {
  } catch (const VersionMismatch&) {
  } catch (const NotFound&) {
  }
  return false;
}

/// The copy of one index at a URL.
class Copy {
 public:
  Copy(std::string url, const IndexCacheOptions& options)
      : url_(std::move(url)),
        shown_(in_quotes(redacted_url(url_))),
        options_(options),
        root_(index_folder(options)),
        slot_(root_, name_of(url_)),
        folder_(slot_.fetched_folder()) {}

  std::string path();

 private:
  using State = RemoteShards::State;

  static std::string name_of(const std::string& url) {
    Hasher128 hasher;
    hasher.update("an index at a URL");
    hasher.update_u64(kIndexVersion);
    hasher.update(unsigned_url(canonical_url(url)));
    return to_string(hasher.digest());
  }

  std::string in_folder(const std::string& name) const { return folder_ + "/" + name; }
  RemoteShards& remote() const {
    if (options_.build.remote) return *options_.build.remote;
    throw Unsupported("the index is at a URL, but no remote access was given", shown_,
                      "give BuildOptions::remote");
  }

  /// Returns the origin of the current version. Returns nullopt if the folder has no version, or
  /// the version is damaged.
  std::optional<Origin> current() const;
  /// Returns the path of a version with the fingerprint of the options. If both versions have it,
  /// returns the current one. Returns nullopt if the folder has no such version, or if the options
  /// name no fingerprint.
  std::optional<std::string> find_wanted(const std::optional<Origin>& kept) const;
  std::string unreached(const std::optional<Origin>& kept, const std::string& why) const;
  State state() const;
  std::optional<State> state_if_reached(std::string& why) const;
  bool is_same(const Origin& kept, const State& now) const {
    return !now.validator.empty() && kept.validator == now.validator &&
           now.size_bytes.value_or(kept.size) == kept.size;
  }

  std::string refresh(const State& now) const;
  Origin fetch(const State& now) const;
  Origin fetch_catalogue(const State& now) const;
  void fetch_table(const CatalogueMeta& meta) const;
  void read(const std::string& url, const State& state, File& file,
            const std::function<void(std::string_view)>& see) const;
  void remove_old(const Origin& now, const std::optional<Origin>& before) const;

  const std::string url_;
  const std::string shown_;
  const IndexCacheOptions& options_;
  const std::string root_;
  const IndexSlot slot_;
  const std::string folder_;
};

std::optional<Origin> Copy::current() const {
  auto origin = read_origin(folder_);
  if (origin && (origin->index.find('/') != std::string::npos ||
                 !intact_fingerprint(in_folder(origin->index)))) {
    origin.reset();
  }
  return origin;
}

std::optional<std::string> Copy::find_wanted(const std::optional<Origin>& kept) const {
  // Without an origin, no version can be opened.
  if (!options_.fingerprint || !read_origin(folder_)) return std::nullopt;
  std::vector<std::string> paths;
  if (kept) paths.push_back(in_folder(kept->index));
  std::error_code failed;
  for (fs::directory_iterator entry(folder_, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().native().ends_with(kCatalogueSuffix)) paths.push_back(entry->path());
  }
  for (const std::string& path : paths) {
    if (intact_fingerprint(path) == options_.fingerprint) return path;
  }
  return std::nullopt;
}

/// Returns the path of the current version, without asking the server. Errors: NotFound if this
/// machine has no intact copy.
std::string Copy::unreached(const std::optional<Origin>& kept, const std::string& why) const {
  if (!kept) {
    throw NotFound(::access(folder_.c_str(), F_OK) == 0
                       ? "this machine's copy of the index is damaged or incomplete"
                       : "this machine has no copy of the index",
                   shown_, "open it once without " + spelled("IndexCacheOptions::offline"));
  }
  slot_.note_use();
  if (!why.empty() && options_.on_unreached) options_.on_unreached(redacted_url(url_), why);
  return in_folder(kept->index);
}

Copy::State Copy::state() const try { return remote().state(url_); } catch (const NotFound& e) {
  throw NotFound("no index is at this URL", shown_ + " (" + e.what() + ")",
                 "if the URL is right, " + upload_both());
}

/// Like state(), for an index of which the folder has a copy.
std::optional<Copy::State> Copy::state_if_reached(std::string& why) const try {
  return remote().state_if_reached(url_, why);
} catch (const NotFound&) {
  return state();  // throws the error
} catch (const FetchError& e) {
  throw FetchError(std::string(e.what()) + "; or use this machine's copy of the index (" +
                   spelled("IndexCacheOptions::offline") + ")");
}

std::string Copy::path() {
  require_own_index_folder(root_);
  const std::optional<Origin> kept = current();
  if (const auto path = find_wanted(kept)) {
    slot_.note_use();
    return *path;
  }
  if (options_.offline) return unreached(kept, "");
  State now;
  if (kept) {
    std::string why;
    const auto answer = state_if_reached(why);
    if (!answer) return unreached(kept, why);
    now = *answer;
  } else {
    now = state();
  }
  if (kept && is_same(*kept, now)) {
    slot_.note_use();
    return in_folder(kept->index);
  }
  make_index_folder(root_);
  const File turn = in_index_folder([&] { return slot_.take_turn(options_); });
  try {
    std::string path = refresh(now);
    slot_.remove_others_unused();
    slot_.note_use();
    return path;
  } catch (...) {
    slot_.leave_nothing_empty();
    throw;
  }
}

/// Fetches the index, unless another process has done so. REQUIRES: the caller holds the lock
/// of IndexSlot::take_turn().
std::string Copy::refresh(const State& seen) const {
  const std::optional<Origin> before = current();
  if (before && is_same(*before, seen)) return in_folder(before->index);
  const std::optional<Origin> last = read_origin(folder_);  // set even if that version is damaged
  in_index_folder([&] { make_directory(folder_); });
  State now = seen;
  for (bool is_last = false;; is_last = true) {
    try {
      const Origin fetched = fetch(now);
      in_index_folder([&] { write_origin(folder_, fetched); });
      SHARDWISE_FAULT_POINT("fetched_index.current");
      if (!last || last->index != fetched.index) remove_old(fetched, last);
      return in_folder(fetched.index);
    } catch (const NotAPair&) {
      if (is_last) throw;
    } catch (const StaleIndex& e) {
      if (is_last) {
        throw StaleIndex("the index at the URL keeps changing", shown_ + " (" + e.what() + ")",
                         "wait until both files are uploaded, then try again");
      }
    }
    now = state();  // the index was probably replaced during the fetch
  }
}

/// Fetches both files, and checks them completely.
Origin Copy::fetch(const State& now) const {
  Origin origin = fetch_catalogue(now);
  const std::string path = in_folder(origin.index);
  std::string table;  // set once the folder has the table
  std::uint64_t table_checksum = 0;
  try {
    {
      const Catalogue catalogue(path);
      const CatalogueMeta& meta = catalogue.meta();
      const std::string_view owner = owner_of_table(meta.table_file);
      if (owner.empty() || meta.table_file != table_of(owner, meta.table_checksum)) {
        throw CorruptIndex("the index refers to the table of another index",
                           shown_ + ", " + in_quotes(meta.table_file), "build the index again");
      }
      fetch_table(meta);
      table = in_folder(meta.table_file);
      table_checksum = meta.table_checksum;
    }
    IndexFiles(path).check_sections(options_.build.cancel);
  } catch (const Error& e) {
    const bool has_table = !table.empty();
    // The table is of the catalogue's version, so another version in its header is damage.
    const bool is_damage = e.code() == ErrorCode::kCorruptIndex ||
                           (has_table && e.code() == ErrorCode::kVersionMismatch);
    if (!is_damage) throw;
    // Remove the wrong file of the two. A wrong catalogue may name the table of another version,
    // which running jobs use.
    if (has_table) {
      ::unlink(is_intact_table(table, table_checksum) ? path.c_str() : table.c_str());
    }
    throw NotAPair("the index at the URL is damaged, or its two files do not belong together",
                   shown_ + " (" + e.what() + ")", upload_both());
  }
  return origin;
}

/// Fetches the catalogue, and gives it its name.
Origin Copy::fetch_catalogue(const State& now) const {
  Origin origin{.url = unsigned_url(url_), .index = {}, .validator = now.validator};
  sweep_temporaries(in_folder("catalogue"));
  return in_index_folder([&] {
    AtomicFile file(in_folder("catalogue"), 0600);
    Hasher128 hasher;
    read(url_, now, file.file(), [&](std::string_view bytes) {
      // The first piece may be shorter than the magic.
      if (origin.size == 0 && !sqlite::kMagic.starts_with(bytes.substr(0, sqlite::kMagic.size()))) {
        throw CorruptIndex("the file at the URL is not an index",
                           shown_ + " (it begins with " + in_quotes(bytes.substr(0, 20)) + ")",
                           "check the URL, and whether it leads to a page or a login");
      }
      hasher.update(bytes);
      origin.size += bytes.size();
    });
    origin.index = catalogue_name(hasher.digest());
    file.set_path(in_folder(origin.index));
    file.commit();
    return origin;
  });
}

/// Fetches the table, unless the folder has it.
void Copy::fetch_table(const CatalogueMeta& meta) const try {
  const std::string path = in_folder(meta.table_file);
  if (::access(path.c_str(), F_OK) == 0) return;
  std::string url = url_beside(url_, meta.table_file);
  // Append the query if it is only a signature, which may be valid for the whole folder. Other
  // parameters select a version of the catalogue.
  const std::size_t query = is_object_url(url_) ? std::string::npos : url_.find('?');
  if (query != std::string::npos && unsigned_url(url_).find('?') == std::string::npos) {
    url += url_.substr(query);
  }
  sweep_temporaries(path);
  const State state = remote().state(url);
  if (options_.on_fetch) options_.on_fetch(redacted_url(url_), state.size_bytes.value_or(0));
  in_index_folder([&] {
    AtomicFile file(path, 0600);
    if (state.size_bytes) file.file().reserve(*state.size_bytes);
    Progress progress{.num_bytes = state.size_bytes.value_or(0)};
    std::uint64_t size = 0;
    read(url, state, file.file(), [&](std::string_view bytes) {
      size += bytes.size();
      progress.bytes_done = size;
      if (options_.build.progress) options_.build.progress(progress);
    });
    file.file().resize(size);
    file.commit();
  });
} catch (const NotFound& e) {
  throw NotAPair("the index's table is missing at the URL", shown_ + " (" + e.what() + ")",
                 upload_both());
}

/// Reads the file at `url`, writes it, and passes its bytes to `see`.
void Copy::read(const std::string& url, const State& state, File& file,
                const std::function<void(std::string_view)>& see) const {
  std::uint64_t offset = 0;
  remote().read(url, state, 0, std::nullopt, [&](std::string_view bytes) {
    options_.build.cancel.throw_if_cancelled();
    see(bytes);
    file.write_at(offset, bytes);
    offset += bytes.size();
    SHARDWISE_FAULT_POINT("fetched_index.bytes");
  });
}

/// Removes all files but those of these two versions. Never throws: a leftover only costs disk
/// space.
void Copy::remove_old(const Origin& now, const std::optional<Origin>& before) const {
  try {
    std::set<std::string> needed{"origin.json"};
    for (const Origin* const origin : {&now, before ? &*before : nullptr}) {
      if (origin == nullptr) continue;
      needed.insert(origin->index);
      needed.insert(Catalogue(in_folder(origin->index)).meta().table_file);
    }
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (needed.contains(name)) continue;
      if (name.ends_with(".tmp")) {
        sweep_temporary(entry.path().string());
      } else {
        ::unlink(entry.path().c_str());
      }
    }
  } catch (const std::exception&) {
    // The next fetch tries again.
  }
}

}  // namespace

bool is_index_url(std::string_view name) {
  return is_remote_url(name) && to_lower(without_query(name)).ends_with(".idx");
}

std::string fetched_index(const std::string& url, const IndexCacheOptions& options) {
  return Copy(url, options).path();
}

}  // namespace shardwise::detail
