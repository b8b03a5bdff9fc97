#include "shardwise/ingest/index_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ascii.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/catalogue.h"
#include "index/offset_table.h"
#include "index/sqlite.h"
#include "ingest/fetched_index.h"
#include "ingest/index_folder.h"
#include "ingest/quick_check.h"
#include "ingest/remote_shards.h"
#include "ingest/source_names.h"
#include "ingest/stored_sources.h"
#include "ingest/wids_claims.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "shardwise/ingest/wids_descriptor.h"
#include "tar/tar_header.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace fs = std::filesystem;

// Building at first use, with any number of concurrent processes:
//
//   is_current()          without a lock: usually this costs only one look-up of each shard
//   IndexSlot::take_turn()  waits for the lock on <name>.idx.lock
//   is_current()          again, because the previous holder has probably built the index
//   build()               continues from the journal if an earlier process was killed
//   remove_others_unused()
//   note_use()            sets the lock file's time, at most once a day
//
// On file systems without locks, take_turn() lets every process build. Concurrent builds are safe
// (build_run.cc): the build that finishes last determines the index.

namespace {

constexpr std::string_view kIndexSuffix = ".idx";
std::string instead() {
  return "run " + spelled("`shardwise index -o INDEX SOURCE`") +
         ", then give INDEX instead of the shards";
}

/// True if the file exists and its content shows that it is an index.
bool holds_an_index(const std::string& path) {
  char first[kTarBlockBytes];
  std::size_t got = 0;
  try {
    got = File::open_read(path).read_at(0, first, sizeof first);
  } catch (const Error&) {
    return !is_named_like_a_shard(path) && !is_named_like_a_descriptor(path);
  }
  const std::string_view bytes(first, got);
  if (bytes.starts_with(sqlite::kMagic)) return true;
  if (is_named_like_a_shard(path) || is_named_like_a_descriptor(path)) return false;
  return shard_compression(bytes) == Compression::kNone &&
         !(got == sizeof first && tar::has_valid_checksum(first));
}

/// Returns a shard, or an element of SourceList::sources, in a form that does not depend on the
/// working directory.
std::string absolute_word(const std::string& word) {
  if (is_fetched_url(word)) return word;
  const std::size_t pattern = word.find_first_of(kPatternCharacters);
  if (pattern == std::string::npos) return normal_absolute_path(word);
  const std::size_t slash = word.rfind('/', pattern);
  if (slash == std::string::npos) return normal_absolute_path(".") + "/" + word;
  const std::string folder = normal_absolute_path(word.substr(0, slash + 1));
  return (folder == "/" ? "" : folder) + word.substr(slash);
}

std::vector<std::string> absolute_words(const std::vector<std::string>& words) {
  std::vector<std::string> absolute;
  absolute.reserve(words.size());
  for (const std::string& word : words) absolute.push_back(absolute_word(word));
  return absolute;
}

/// Returns the name of the index of these sources: a hash of the sources, without signatures, and
/// of all options that affect the index's content.
std::string name_of(const SourceList& sources, const Index::Content& content) {
  Hasher128 hasher;
  const auto add = [&](std::string_view text) {
    hasher.update_u64(text.size());
    hasher.update(text);
  };
  hasher.update_u64(kIndexVersion);
  add(to_string(content.policies));
  hasher.update_u64(content.columns.size());
  for (const Index::Column& column : content.columns) add(to_string(column));
  hasher.update_u64((content.hashes ? 1u : 0u) + (content.unique_keys ? 2u : 0u));
  // If no sources are stored, the user named each shard, so hash the list of shards.
  const bool has_words = !sources.sources.empty();
  hasher.update_u64(has_words ? 1 : 0);
  const std::vector<std::string>& named = has_words ? sources.sources : sources.shards;
  for (const std::string& word : sources_without_secrets(named)) add(word);
  return to_string(hasher.digest());
}

/// True if the shard is still the one that was indexed. A local shard is compared by size, time and
/// first 512 bytes, a remote one by its validator.
/// @param shard  the shard's row; its path is the one that the sources name now.
bool is_same_version(const Index::Shard& shard, RemoteShards* remote) {
  if (!is_fetched_url(shard.path)) {
    const File file = File::open_read(shard.path);
    const FileIdentity identity = file_identity(file.fd(), shard.path);
    return identity.size_bytes == shard.size_bytes && identity.mtime_ns == shard.mtime_ns &&
           !difference_at_start(shard, reader_of(file));
  }
  // Without remote access the index counts as outdated, and the build then reports the missing
  // access.
  if (remote == nullptr) return false;
  const RemoteShards::State state = remote->state(shard.path);
  return !state.validator.empty() && state.validator == shard.validator &&
         state.size_bytes == shard.size_bytes;
}

/// True if the index at `path` has this content, and exactly these shards in their present
/// versions.
bool is_current(const std::string& path, const std::vector<std::string>& shards,
                const BuildOptions& build) try {
  if (::access(path.c_str(), F_OK) != 0) return false;
  const std::shared_ptr<const Index> index = Index::open(path, {.urls = shards});
  if (index->num_shards() != shards.size() || index->content() != build.content) return false;
  for (std::uint64_t i = 0; i < index->num_shards(); ++i) {
    build.cancel.throw_if_cancelled();
    const Index::Shard shard = index->shard(i);
    if (shard.path != shards[i] || !is_same_version(shard, build.remote.get())) return false;
  }
  return true;
} catch (const Cancelled&) {
  throw;
} catch (const Error&) {
  // The index is damaged or has another version, or a shard is missing. Building repairs the index
  // or reports the cause.
  return false;
}

void check_claims(const std::string& path, const SourceList& sources) {
  if (sources.descriptors.empty()) return;
  const std::shared_ptr<const Index> index = Index::open(path);
  for (const WidsDescriptor& descriptor : sources.descriptors) {
    check_against_descriptor(*index, descriptor);
  }
}

void build(const IndexSlot& slot, const SourceList& sources, const BuildOptions& how,
           const IndexCacheOptions& options) {
  if (options.on_build) {
    const BuildPlan plan = plan_index(slot.path(), sources.shards, how);
    options.on_build(slot.path(), remote_reading(plan, sources, how.remote));
  }
  const BuildReport report = build_index(slot.path(), sources.shards, how);
  if (options.on_built) options.on_built(slot.path(), sources, report);
}

/// Returns the options of a build in the folder. Makes the paths of `sources` absolute.
BuildOptions build_of(SourceList& sources, const IndexCacheOptions& options) {
  sources.shards = absolute_words(sources.shards);
  sources.sources = absolute_words(sources.sources);
  BuildOptions how = options.build;
  how.sources = sources.sources;
  how.part.reset();
  how.drop_missing = false;
  return how;
}

std::string index_of_sources(const std::vector<std::string>& names,
                             const IndexCacheOptions& options) {
  if (!options.build_missing) {
    throw InvalidArgument(
        "an index is needed, but shards were given, and building an index is off (" +
            spelled("IndexCacheOptions::build_missing") + ")",
        names.empty() ? "" : in_quotes(without_secrets(names.front())), instead());
  }
  const std::string folder = index_folder(options);
  SourceList sources = read_sources(names, options.build.remote);
  if (options.on_sources) options.on_sources(sources);
  BuildOptions how = build_of(sources, options);
  if (how.remote) how.remote = remembering_states(how.remote, sources.shards);
  for (const WidsDescriptor& descriptor : sources.descriptors) {
    check_remote_sizes(descriptor, how.remote);
  }
  const IndexSlot slot(folder, name_of(sources, how.content));
  require_own_index_folder(folder);
  if (!is_current(slot.path(), sources.shards, how)) {
    make_index_folder(folder);
    const File turn = in_index_folder([&] { return slot.take_turn(options); });
    if (!is_current(slot.path(), sources.shards, how)) {
      try {
        slot.remove_what_is_no_index();
        build(slot, sources, how, options);
      } catch (...) {
        slot.leave_nothing_empty();
        throw;
      }
      slot.remove_others_unused();
    }
  }
  slot.note_use();
  check_claims(slot.path(), sources);
  return slot.path();
}

}  // namespace

bool names_an_index(const std::string& named) {
  const std::string name = at_home(named);
  if (detail::is_index_url(name)) return true;
  if (name == "-" || name.starts_with('@') || is_fetched_url(name)) return false;
  struct stat status {};
  if (::stat(name.c_str(), &status) == 0) {
    if (S_ISREG(status.st_mode)) return holds_an_index(name);
    return !S_ISDIR(status.st_mode);
  }
  if (to_lower(name).ends_with(kIndexSuffix)) return true;
  return !is_pattern(name) && !is_named_like_a_shard(name) && !is_named_like_a_descriptor(name);
}

std::string index_for(const std::string& named, const IndexCacheOptions& options) {
  std::string name = at_home(named);
  if (detail::is_index_url(name)) return detail::fetched_index(name, options);
  return names_an_index(name) ? name : index_of_sources({name}, options);
}

std::string index_for(const std::vector<std::string>& sources, const IndexCacheOptions& options) {
  if (sources.size() == 1) return index_for(sources.front(), options);
  for (const std::string& source : sources) {
    if (names_an_index(source)) {
      throw InvalidArgument(
          "an index cannot be one of several sources", in_quotes(source),
          "join indexes with " + spelled("`shardwise merge`") + ", or name the shards");
    }
  }
  return index_of_sources(sources, options);
}

std::optional<std::string> detail::find_current_index(SourceList sources,
                                                      const IndexCacheOptions& options) {
  if (!has_index_folder(options)) return std::nullopt;
  const std::string folder = index_folder(options);
  BuildOptions how = build_of(sources, options);
  const IndexSlot slot(folder, name_of(sources, how.content));
  if (::access(slot.path().c_str(), F_OK) != 0) return std::nullopt;
  require_own_index_folder(folder);
  if (how.remote) how.remote = remembering_states(how.remote, sources.shards);
  if (!is_current(slot.path(), sources.shards, how)) return std::nullopt;
  slot.note_use();
  check_claims(slot.path(), sources);
  return slot.path();
}

BuildPlan::RemoteReading remote_reading(const BuildPlan& plan, const SourceList& sources,
                                        const RemoteAccess& remote) {
  BuildPlan::RemoteReading reading;
  std::unordered_map<std::string_view, std::uint64_t> claimed;
  for (const WidsDescriptor& descriptor : sources.descriptors) {
    for (const WidsDescriptor::Set& set : descriptor.datasets) {
      for (const WidsDescriptor::Shard& shard : set.shards) {
        if (shard.size_bytes) claimed.emplace(shard.path, *shard.size_bytes);
      }
    }
  }
  for (const std::string& shard : plan.read) {
    if (!is_fetched_url(shard)) continue;
    ++reading.num_shards;
    const auto claim = claimed.find(shard);
    if (const auto size = remote->state(shard).size_bytes) {
      reading.bytes += *size;
    } else if (claim != claimed.end()) {
      reading.bytes += claim->second;
    } else {
      ++reading.num_unknown;
    }
  }
  return reading;
}

}  // namespace shardwise
