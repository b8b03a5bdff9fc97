#include "shardwise/ingest/index_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/own_directory.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/catalogue.h"
#include "index/offset_table.h"
#include "ingest/quick_check.h"
#include "ingest/remote_shards.h"
#include "ingest/shard_scan.h"
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
//   Place::take_turn()    waits for the lock on <name>.idx.lock
//   is_current()          again, because the previous holder has probably built the index
//   build()               continues from the journal if an earlier process was killed
//   remove_others_unused()
//   note_use()            sets the lock file's time, at most once a day
//
// The lock file: A process may build or remove an index only while it holds the index's lock. The
// file's content names the process that builds, and its time is the time of the index's last use.
// After locking the file, a process calls has_name(), because the file may have been unlinked after
// it was opened, and other processes may lock a new file. Only the holder of the lock unlinks the
// file: remove() as its last step, or leave_nothing_empty() after a failed build that left no
// files.
//
// Place::remove() tries to lock without waiting, and calls is_unused() again with the lock held. It
// removes the catalogue first, because without a catalogue there is no index. If the process is
// killed after that, the lock file still has its old time. The next build or removal of this name
// then removes the other files. Processes that have opened the index can still read it.
//
// On file systems without locks, take_turn() lets every process build. Concurrent builds are safe
// (build_run.cc): the build that finishes last determines the index.

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kPurpose = "a folder for indexes";
constexpr std::string_view kIndexSuffix = ".idx";
constexpr std::string_view kLockSuffix = ".lock";
constexpr std::size_t kNameLength = 32;  // hexadecimal digits of a Hash128
constexpr std::time_t kDaySeconds = std::time_t{24} * 60 * 60;
constexpr std::time_t kUnusedSeconds = 30 * kDaySeconds;

std::string instead() {
  return "run " + spelled("`shardwise index -o INDEX SOURCE`") +
         ", then give INDEX instead of the shards";
}
std::string name_folder() {
  return "name another folder (" + spelled("IndexCacheOptions::directory") + "), or " + instead();
}

bool has_any(const std::string& text, std::string_view characters) {
  return text.find_first_of(characters) != std::string::npos;
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
  if (bytes.starts_with("SQLite format 3")) return true;
  if (is_named_like_a_shard(path) || is_named_like_a_descriptor(path)) return false;
  return shard_compression(bytes) == Compression::kNone &&
         !(got == sizeof first && tar::has_valid_checksum(first));
}

/// Returns the value of an environment variable if it is an absolute path.
std::optional<std::string> folder_in(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || value[0] != '/') return std::nullopt;
  return value;
}

bool has_folder(const IndexCacheOptions& options) {
  return !options.directory.empty() || folder_in("XDG_CACHE_HOME") || folder_in("HOME");
}

std::string folder_of(const IndexCacheOptions& options) {
  if (!options.directory.empty()) return normal_absolute_path(options.directory);
  if (const auto cache = folder_in("XDG_CACHE_HOME")) return *cache + "/shardwise";
  if (const auto home = folder_in("HOME")) return *home + "/.cache/shardwise";
  throw InvalidArgument("no folder is known for the index that is built at first use",
                        "neither XDG_CACHE_HOME nor HOME is set", name_folder());
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
  // If no sources are stored, the user named the shards themselves, and that list does not grow.
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

std::string this_process() {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return "process " + std::to_string(::getpid()) + " on " + host;
}

/// One index in the folder. take_turn() gives this process the right to build it.
class Place {
 public:
  Place(const std::string& folder, const std::string& name)
      : folder_(folder), path_(folder + "/" + name + std::string(kIndexSuffix)) {}

  const std::string& path() const noexcept { return path_; }
  std::string lock_path() const { return path_ + std::string(kLockSuffix); }

  /// Waits until this process may build. The right ends when the returned file is closed or the
  /// process ends.
  /// Errors: Cancelled; errors of creating files.
  File take_turn(const IndexCacheOptions& options) const {
    constexpr std::chrono::milliseconds kLongestPause{100};
    constexpr std::chrono::seconds kFirstWord{1}, kNextWord{10};
    const Clock::time_point start = Clock::now();
    Clock::time_point next_word = start + kFirstWord;
    std::chrono::milliseconds pause{1};
    for (;; pause = std::min(pause * 2, kLongestPause)) {
      options.build.cancel.throw_if_cancelled();
      File file = File::open_or_create(lock_path(), 0600);  // mode 0600: other users cannot lock it
      switch (file.try_lock()) {
        case FileLock::kUnsupported:
          return file;
        case FileLock::kTaken:
          if (!file.has_name()) continue;  // the file was removed after it was opened
          file.resize(0);
          file.write_at(0, this_process());
          return file;
        case FileLock::kHeldByAnother:
          break;
      }
      if (const auto now = Clock::now(); now >= next_word) {
        next_word = now + kNextWord;
        if (options.on_wait) {
          options.on_wait(builder(file),
                          std::chrono::duration_cast<std::chrono::milliseconds>(now - start));
        }
      }
      std::this_thread::sleep_for(pause);
    }
  }

  /// Removes a file at the path that is not an index, e.g. because its first bytes are damaged. All
  /// files in this folder are indexes, and a build would refuse to replace the damaged one.
  /// REQUIRES: take_turn() has returned.
  /// Errors: InvalidArgument if a folder or a special file has this path.
  void remove_what_is_no_index() const {
    struct stat status {};
    if (::stat(path_.c_str(), &status) == 0) {
      if (!S_ISREG(status.st_mode)) {
        throw InvalidArgument("the path of the index exists and is not a file", in_quotes(path_),
                              "move or remove what has this path");
      }
      if (Catalogue::looks_like_one(path_)) return;
    }
    if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
      throw_errno(errno, "cannot remove", path_);
    }
  }

  /// Call this after a failed build. Removes the lock file if the build left neither an index nor a
  /// journal.
  /// REQUIRES: take_turn() has returned.
  void leave_nothing_empty() const noexcept {
    if (::access(path_.c_str(), F_OK) == 0 || ::access((path_ + ".journal").c_str(), F_OK) == 0) {
      return;
    }
    ::unlink(lock_path().c_str());
  }

  /// Records that the index was used now. Never throws: without the record the index may be removed
  /// early, and is then built again.
  void note_use() const noexcept {
    struct stat status {};
    if (::stat(lock_path().c_str(), &status) != 0) return;
    if (std::time(nullptr) - status.st_mtim.tv_sec < kDaySeconds) return;
    ::utimensat(AT_FDCWD, lock_path().c_str(), nullptr, 0);
  }

  /// Removes other indexes that have not been used for long. Never throws, because a leftover only
  /// costs disk space.
  void remove_others_unused() const noexcept {
    try {
      for (const auto& entry : fs::directory_iterator(folder_)) {
        const std::string name = entry.path().filename().string();
        if (name.size() != kNameLength + kIndexSuffix.size() + kLockSuffix.size() ||
            !is_hex(name.substr(0, kNameLength)) || !name.ends_with(kLockSuffix)) {
          continue;
        }
        const Place other(folder_, name.substr(0, kNameLength));
        if (other.path() != path_ && other.is_unused()) other.remove();
      }
    } catch (const std::exception&) {
      // A leftover only costs disk space.
    }
  }

 private:
  static std::string builder(const File& file) {
    std::string text(512, '\0');
    text.resize(file.read_at(0, text.data(), text.size()));
    return text.empty() ? "another process" : text;
  }

  bool is_unused() const {
    struct stat status {};
    return ::stat(lock_path().c_str(), &status) == 0 &&
           std::time(nullptr) - status.st_mtim.tv_sec > kUnusedSeconds;
  }

  void remove() const {
    File file = File::open_or_create(lock_path(), 0600);  // mode 0600: other users cannot lock it
    if (file.try_lock() != FileLock::kTaken || !file.has_name() || !is_unused()) return;
    ::unlink(path_.c_str());  // first, because without a catalogue there is no index
    const std::string start = fs::path(path_).filename().string() + ".";
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(start) && entry.path() != lock_path()) ::unlink(entry.path().c_str());
    }
    // Last, because another process may build once the lock file is gone.
    ::unlink(lock_path().c_str());
  }

  const std::string folder_;
  const std::string path_;
};

void check_claims(const std::string& path, const SourceList& sources) {
  if (sources.descriptors.empty()) return;
  const std::shared_ptr<const Index> index = Index::open(path);
  for (const WidsDescriptor& descriptor : sources.descriptors) {
    check_against_descriptor(*index, descriptor);
  }
}

/// Calls `call`, which creates files in the folder. If it throws, the error also explains how to
/// choose another folder.
template <class Call>
auto in_folder(const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kCancelled) throw;
    throw_error(e.code(), std::string(e.what()) + "; or " + name_folder());
  }
}

void build(const Place& place, const SourceList& sources, const BuildOptions& how,
           const IndexCacheOptions& options) {
  if (options.on_build) {
    const BuildPlan plan = plan_index(place.path(), sources.shards, how);
    options.on_build(place.path(), remote_reading(plan, sources, how.remote));
  }
  const BuildReport report = build_index(place.path(), sources.shards, how);
  if (options.on_built) options.on_built(place.path(), sources, report);
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
  const std::string folder = folder_of(options);
  SourceList sources = read_sources(names, options.build.remote);
  if (options.on_sources) options.on_sources(sources);
  BuildOptions how = build_of(sources, options);
  if (how.remote) how.remote = remembering_states(how.remote, sources.shards);
  for (const WidsDescriptor& descriptor : sources.descriptors) {
    check_remote_sizes(descriptor, how.remote);
  }
  const Place place(folder, name_of(sources, how.content));
  if (::access(folder.c_str(), F_OK) == 0) require_own_directory(folder, kPurpose);
  if (!is_current(place.path(), sources.shards, how)) {
    in_folder([&] { make_directories(folder); });
    require_own_directory(folder, kPurpose);
    const File turn = in_folder([&] { return place.take_turn(options); });
    if (!is_current(place.path(), sources.shards, how)) {
      try {
        place.remove_what_is_no_index();
        build(place, sources, how, options);
      } catch (...) {
        place.leave_nothing_empty();
        throw;
      }
      place.remove_others_unused();
    }
  }
  place.note_use();
  check_claims(place.path(), sources);
  return place.path();
}

}  // namespace

bool names_an_index(const std::string& named) {
  const std::string name = at_home(named);
  if (name == "-" || name.starts_with('@') || is_fetched_url(name)) return false;
  struct stat status {};
  if (::stat(name.c_str(), &status) == 0) {
    if (S_ISREG(status.st_mode)) return holds_an_index(name);
    return !S_ISDIR(status.st_mode);
  }
  if (to_lower(name).ends_with(kIndexSuffix)) return true;
  return !has_any(name, kPatternCharacters) && !is_named_like_a_shard(name) &&
         !is_named_like_a_descriptor(name);
}

std::string index_for(const std::string& named, const IndexCacheOptions& options) {
  std::string name = at_home(named);
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
  if (!has_folder(options)) return std::nullopt;
  const std::string folder = folder_of(options);
  BuildOptions how = build_of(sources, options);
  const Place place(folder, name_of(sources, how.content));
  if (::access(place.path().c_str(), F_OK) != 0) return std::nullopt;
  require_own_directory(folder, kPurpose);
  if (how.remote) how.remote = remembering_states(how.remote, sources.shards);
  if (!is_current(place.path(), sources.shards, how)) return std::nullopt;
  place.note_use();
  check_claims(place.path(), sources);
  return place.path();
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
