#include "storage/cache_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/hasher.h"
#include "base/own_directory.h"
#include "base/spelling.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

constexpr std::string_view kPurpose = "a shard cache";
constexpr std::string_view kMarkerName = "shardwise-cache";
constexpr std::string_view kMarkerText = "shardwise shard cache, version 2\n";
constexpr std::string_view kMarkerFamily = "shardwise shard cache, version ";
constexpr std::string_view kLocksName = "locks";
constexpr std::string_view kFuturesName = "futures";
constexpr std::string_view kLedgerName = "used";
constexpr std::string_view kShardsName = "shards";
constexpr std::string_view kShardSuffix = ".tar";
constexpr std::string_view kRecordSuffix = ".json";
constexpr std::string_view kNoteSuffix = ".note";
constexpr const char* kSourceAttribute = "user.shardwise.source";
// Size of the buffer for the attribute. A longer attribute counts as missing.
constexpr std::size_t kMaxSourceBytes = std::size_t{4} << 10;
constexpr std::size_t kNameLength = 32;
constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 10;
constexpr std::size_t kStartBytes = 4096;  // one page; a shorter read costs the same

constexpr unsigned kReadableMode = 0644;  // the umask applies
constexpr unsigned kPrivateMode = 0600;

constexpr char kNoteMagic[8] = {'S', 'H', 'A', 'R', 'D', 'W', 'N', '\n'};
constexpr std::uint32_t kNoteVersion = 1;

/// The header of a note file.
struct NoteHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t shard_hash_high;  // hash128 of the shard
  std::uint64_t shard_hash_low;
  std::uint64_t text_bytes;
  std::uint64_t text_hash_high;  // hash128 of the bytes after this header
  std::uint64_t text_hash_low;
  std::uint64_t checksum;  // hash64 of the preceding members
};
static_assert(sizeof(NoteHeader) == 64);

std::uint64_t checksum_of(const NoteHeader& header) noexcept {
  return hash64({reinterpret_cast<const char*>(&header), offsetof(NoteHeader, checksum)});
}

[[noreturn]] void refuse(const std::string& path, std::string_view why, std::string_view remedy) {
  refuse_directory(path, kPurpose, why, remedy);
}

struct stat status_of(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) throw_errno(errno, "cannot access", path);
  return st;
}

struct CloseDirectory {
  void operator()(DIR* entries) const noexcept { ::closedir(entries); }
};

/// @param visit  callback that takes each zero-terminated name and the folder's descriptor.
template <class Visit>
void for_each_name(const std::string& path, const Visit& visit) {
  const std::unique_ptr<DIR, CloseDirectory> entries(::opendir(path.c_str()));
  if (!entries) throw_errno(errno, "cannot read the directory", path);
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(entries.get());
    if (entry == nullptr && errno != 0) throw_errno(errno, "cannot read the directory", path);
    if (entry == nullptr) return;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") visit(name, ::dirfd(entries.get()));
  }
}

std::string read_small(const std::string& path, std::size_t max_bytes) {
  const File file = File::open_read(path);
  std::string text(max_bytes, '\0');
  text.resize(file.read_at(0, text.data(), text.size()));
  return text;
}

bool is_own_top_name(std::string_view name) {
  return name == kMarkerName || name == kLocksName || name == kLedgerName || name == kFuturesName ||
         name == kShardsName || is_temporary_name(name, kMarkerName);
}

void require_marker(const std::string& path, bool create) {
  const std::string marker = path + "/" + std::string(kMarkerName);
  std::string text;
  try {
    text = read_small(marker, 256);
  } catch (const NotFound&) {
    for_each_name(path, [&](std::string_view name, int) {
      if (!is_own_top_name(name)) {
        refuse(path, "the directory has other files, e.g. " + in_quotes(name),
               "name an empty directory, or a new one");
      }
    });
    if (!create)
      refuse(path, "the directory has no shard cache", "name the directory of a shard cache");
    AtomicFile file(marker, kReadableMode);
    share_for_reading(file.file(), file.temporary_path());
    file.file().write(kMarkerText);
    file.commit();
    return;
  }
  if (text == kMarkerText) return;
  if (text.starts_with(kMarkerFamily)) {
    std::string_view version(text);
    version.remove_prefix(kMarkerFamily.size());
    throw VersionMismatch("the shard cache has another version",
                          in_quotes(path) + " (version " +
                              escaped(version.substr(0, version.find('\n'))) +
                              ", this program's version is " +
                              std::string(kMarkerText.substr(kMarkerFamily.size(), 1)) + ")",
                          "name another directory; if no other program uses this directory, remove "
                          "it, and its shards are fetched again");
  }
  refuse(path, "the file " + std::string(kMarkerName) + " is damaged",
         "remove the file, or name another directory");
}

/// True if `path` is a directory that this user cannot write to.
bool may_only_read(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) &&
         ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0 &&
         (errno == EACCES || errno == EROFS);
}

/// True if the name is a shard's name followed by `suffix`.
bool is_shard_file(std::string_view file, std::string_view suffix) {
  return file.size() == kNameLength + suffix.size() && file.ends_with(suffix) &&
         is_hex(file.substr(0, kNameLength));
}

/// Returns the name of the shard that the file belongs to. REQUIRES: the file's name begins with a
/// shard's name.
std::string shard_name_of(std::string_view file) {
  return std::string(file.substr(0, kNameLength));
}

}  // namespace

CacheDirectory::CacheDirectory(std::string path, bool create, Sharing sharing)
    : path_(std::move(path)),
      sharing_(sharing),
      is_read_only_(sharing == Sharing::kReadOnly || may_only_read(path_)) {
  if (path_.empty())
    throw InvalidArgument("the shard cache has no directory", "", "name a directory");
  if (!is_read_only_ && create) {
    if (sharing == Sharing::kGroup) {
      if (const std::string above = directory_of(path_); above != path_) make_directories(above);
      make_group_directory(path_);
    }
    make_directories(path_);
  }
  require_access(path_);
  require_marker(path_, create && !is_read_only_);
  if (!is_read_only_) make(create);
  const std::string shards = path_ + "/" + std::string(kShardsName);
  if (S_ISLNK(status_of(shards).st_mode))
    refuse(shards, "the path is a symbolic link", "remove the link");
  require_access(shards);
}

/// The owner of a directory can replace shards in it, even if the index has hashes of the shards.
/// The caller must therefore consent explicitly to using another user's directory.
void CacheDirectory::require_access(const std::string& path) const {
  if (sharing_ == Sharing::kReadOnly) return require_no_public_directory(path, kPurpose);
  const bool is_ours = !is_read_only_ && sharing_ == Sharing::kGroup && is_group_directory(path);
  if (!is_ours && belongs_to_another(path)) {
    refuse(path, "the directory belongs to another user",
           "name a directory that you own; or, if you trust this user, only read the directory (" +
               spelled("ShardCache::Options::read_only") + ")");
  }
  if (sharing_ == Sharing::kOwn) return require_nobody_elses(path);
  require_no_public_directory(path, kPurpose);
  if (!is_read_only_ && !is_group_directory(path)) require_own_directory(path, kPurpose);
}

void CacheDirectory::require_nobody_elses(const std::string& path) const {
  const bool is_shared = is_group_directory(path);
  if (!is_read_only_ && !is_shared) return require_own_directory(path, kPurpose);
  require_no_public_directory(path, kPurpose);
  if (is_shared) {
    refuse(path, "the directory is shared with its group",
           is_read_only_ ? "if you trust this group, only read the directory (" +
                               spelled("ShardCache::Options::read_only") + ")"
                         : "share the directory (" + spelled("ShardCache::Options::group_shared") +
                               "), or name another directory");
  }
  // This check is needed for a directory of root, which may grant access to a group.
  require_unshared_directory(path, kPurpose);
}

/// Creates the missing folders of a cache.
void CacheDirectory::make(bool create) const {
  const std::string shards = path_ + "/" + std::string(kShardsName);
  if (sharing_ != Sharing::kGroup || !create) return make_directory(shards);
  make_group_directory(shards);
  make_group_directory(futures_path());
  for (const std::string& folder : {path_, shards, futures_path()}) {
    if (!is_group_directory(folder)) {
      refuse(
          folder, "the directory is not shared with its group",
          "run chmod g+rwxs on the directory and chmod g+rw on its files, or name a new directory");
    }
  }
}

bool CacheDirectory::may_be_changed_by_others(const File& shard) const {
  return may_be_written_by_others(shard) || may_be_replaced_by_others(shard.path());
}

void CacheDirectory::publish(const File& file) const noexcept {
  share_for_reading(file, path_ + "/" + std::string(kMarkerName));
}

std::string CacheDirectory::shard_path(const std::string& name) const {
  return path_ + "/" + std::string(kShardsName) + "/" + name + std::string(kShardSuffix);
}
std::string CacheDirectory::record_path(const std::string& name) const {
  return path_ + "/" + std::string(kShardsName) + "/" + name + std::string(kRecordSuffix);
}
std::string CacheDirectory::note_path(const std::string& name) const {
  return path_ + "/" + std::string(kShardsName) + "/" + name + std::string(kNoteSuffix);
}
std::string CacheDirectory::locks_path() const { return path_ + "/" + std::string(kLocksName); }
std::string CacheDirectory::futures_path() const { return path_ + "/" + std::string(kFuturesName); }
std::string CacheDirectory::ledger_path() const { return path_ + "/" + std::string(kLedgerName); }

void CacheDirectory::note_source(const File& temporary, const std::string& url) noexcept {
  static_cast<void>(::fsetxattr(temporary.fd(), kSourceAttribute, url.data(), url.size(), 0));
}

std::string CacheDirectory::source_of(const std::string& temporary_path) {
  std::string url(kMaxSourceBytes, '\0');
  const auto size = ::lgetxattr(temporary_path.c_str(), kSourceAttribute, url.data(), url.size());
  url.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return url;
}

CacheDirectory::Contents CacheDirectory::scan(Listed listed) const {
  SHARDWISE_FAULT_POINT("shard_cache.listing");
  // Limit on the number of listings. It is not reached in practice: shards are not renamed so fast.
  constexpr int kTries = 100;
  for (int i = 1;; ++i) {
    bool moved = false;
    Contents contents = list(listed, moved);
    if (!moved || i == kTries) return contents;
  }
}

/// @param moved  set to true if a file vanished during the listing; the list may then miss a shard
///   that was just renamed.
CacheDirectory::Contents CacheDirectory::list(Listed listed, bool& moved) const {
  Contents contents;
  std::vector<std::uint64_t> inodes;  // inodes of the shards
  const std::string shards = path_ + "/" + std::string(kShardsName);
  for_each_name(shards, [&](std::string_view file, int folder) {
    if (is_shard_file(file, kRecordSuffix)) {
      if (listed == Listed::kAll) contents.records.push_back(shard_name_of(file));
      return;
    }
    if (is_shard_file(file, kNoteSuffix)) {
      if (listed == Listed::kAll) contents.notes.push_back(shard_name_of(file));
      return;
    }
    const auto path = [&] { return shards + "/" + std::string(file); };
    struct stat st {};
    // Stat relative to the folder's descriptor, so that the kernel does not resolve the path each
    // time.
    if (::fstatat(folder, file.data(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) {
        moved |= file.ends_with(".tmp");
        return;
      }
      throw_errno(errno, "cannot access", path());
    }
    const auto size = static_cast<std::uint64_t>(st.st_size);
    const std::string_view base = file.substr(0, kNameLength + kShardSuffix.size());
    const std::string_view note = file.substr(0, kNameLength + kNoteSuffix.size());
    if (!S_ISREG(st.st_mode)) {
      contents.foreign.emplace_back(file);
    } else if (is_shard_file(file, kShardSuffix)) {
      inodes.push_back(st.st_ino);
      contents.shards.push_back(
          {shard_name_of(file), size, st.st_atim.tv_sec * 1'000'000'000 + st.st_atim.tv_nsec});
    } else if (is_shard_file(base, kShardSuffix) && is_temporary_name(file, base)) {
      contents.temporaries.push_back({shard_name_of(file), path(), size,
                                      st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec,
                                      st.st_ino});
    } else if (is_shard_file(note, kNoteSuffix) && is_temporary_name(file, note)) {
      contents.temporary_notes.push_back(path());
    } else {
      contents.foreign.emplace_back(file);
    }
  });
  // A shard that was renamed during the listing is listed twice: remove its temporary entry. A
  // linear search suffices, because temporary files are few.
  std::erase_if(contents.temporaries, [&](const Temporary& temporary) {
    return std::find(inodes.begin(), inodes.end(), temporary.inode) != inodes.end();
  });
  return contents;
}

CacheDirectory::QuickCheck CacheDirectory::quick_check_of(const File& shard) {
  char start[kStartBytes];
  const std::size_t size = shard.read_at(0, start, sizeof start);
  return {.mtime_ns = file_identity(shard.fd(), shard.path()).mtime_ns,
          .start_hash = hash64({start, size})};
}

std::optional<CacheDirectory::Record> CacheDirectory::parse_record(const std::string& name,
                                                                   const std::string& bytes) {
  // A valid record has no floats. The parser turns an integer that overflows into a float.
  bool has_fraction = false;
  const auto json = nlohmann::json::parse(
      bytes, [&](int /*depth*/, nlohmann::json::parse_event_t, const nlohmann::json& value) {
        has_fraction |= value.is_number_float();
        return true;
      });
  if (has_fraction) return std::nullopt;
  const auto text = [&](const char* key) { return json.at(key).get<std::string>(); };
  const auto hash = [&](const char* key) {
    return Hash128{json.at(key).at(0).get<std::uint64_t>(),
                   json.at(key).at(1).get<std::uint64_t>()};
  };
  if (json.value("name", name) != name) return std::nullopt;
  std::optional<Hash128> checked_as;
  if (!json.at("checked_as").is_null()) checked_as = hash("checked_as");
  return Record{.url = text("url"),
                .validator = text("validator"),
                .compression = text("compression"),
                .source_bytes = json.at("source_size").get<std::uint64_t>(),
                .source_hash = hash("source_hash"),
                .size_bytes = json.at("size").get<std::uint64_t>(),
                .hash = hash("hash"),
                .checked_as = checked_as,
                .quick_check = {.mtime_ns = json.value("mtime_ns", std::int64_t{0}),
                                .start_hash = json.value("start_hash", std::uint64_t{0})}};
}

CacheDirectory::RecordFile CacheDirectory::read_record(const std::string& name) const {
  std::string bytes;
  try {
    bytes = read_small(record_path(name), kMaxRecordBytes);
    if (bytes.empty()) return {};  // empty after a power cut
    auto record = parse_record(name, bytes);
    const bool is_damaged = !record;
    return {std::move(record), is_damaged};
  } catch (const NoDescriptor&) {
    throw;
  } catch (const std::exception&) {
    return {.record = std::nullopt, .is_damaged = !bytes.empty()};
  }
}

void CacheDirectory::write_record(const std::string& name, const Record& record) const {
  const auto both = [](const Hash128& hash) { return nlohmann::json{hash.high, hash.low}; };
  nlohmann::json json = {{"name", name},
                         {"url", escaped(record.url)},
                         {"validator", escaped(record.validator)},
                         {"compression", record.compression},
                         {"source_size", record.source_bytes},
                         {"source_hash", both(record.source_hash)},
                         {"size", record.size_bytes},
                         {"hash", both(record.hash)},
                         {"checked_as", nullptr},
                         {"mtime_ns", record.quick_check.mtime_ns},
                         {"start_hash", record.quick_check.start_hash}};
  if (record.checked_as) json["checked_as"] = both(*record.checked_as);
  const std::string text = json.dump() + "\n";
  File file = File::open_or_create(record_path(name), kPrivateMode);
  publish(file);
  file.write_at(0, text);  // before resize(), so that the old record survives a full disk
  file.resize(text.size());
}

std::optional<Note> CacheDirectory::read_note(const std::string& name,
                                              const Hash128& shard_hash) const {
  std::optional<Note> note;
  try {
    note.emplace(Note{MappedFile::open(note_path(name)), {}, shard_hash});
  } catch (const NoDescriptor&) {
    throw;
  } catch (const CannotMap&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;  // missing or unreadable
  }
  const std::string_view file = note->file.bytes();
  NoteHeader header;
  if (file.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof header);
  note->bytes = file.substr(sizeof header);
  if (std::memcmp(header.magic, kNoteMagic, sizeof kNoteMagic) != 0 ||
      header.version != kNoteVersion || header.checksum != checksum_of(header) ||
      Hash128{header.shard_hash_high, header.shard_hash_low} != shard_hash ||
      header.text_bytes != note->bytes.size() ||
      Hash128{header.text_hash_high, header.text_hash_low} != hash128(note->bytes)) {
    return std::nullopt;
  }
  return note;
}

void CacheDirectory::write_note(const std::string& name, const Hash128& shard_hash,
                                std::string_view text) const {
  const Hash128 text_hash = hash128(text);
  NoteHeader header{};
  std::memcpy(header.magic, kNoteMagic, sizeof kNoteMagic);
  header.version = kNoteVersion;
  header.shard_hash_high = shard_hash.high;
  header.shard_hash_low = shard_hash.low;
  header.text_bytes = text.size();
  header.text_hash_high = text_hash.high;
  header.text_hash_low = text_hash.low;
  header.checksum = checksum_of(header);
  AtomicFile file(note_path(name), kPrivateMode);
  publish(file.file());
  SHARDWISE_FAULT_POINT("shard_cache.note_made");
  file.file().write({reinterpret_cast<const char*>(&header), sizeof header});
  file.file().write(text);
  SHARDWISE_FAULT_POINT("shard_cache.note_written");
  // Not synced, because that is slow. If a power cut damages the note, its hashes do not match and
  // a reader writes it again.
  file.keep_as(note_path(name));
  SHARDWISE_FAULT_POINT("shard_cache.note_kept");
}

void CacheDirectory::remove(const std::string& name) const {
  SHARDWISE_FAULT_POINT("shard_cache.before_unlink");
  const std::string path = shard_path(name);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_errno(errno, "cannot remove", path);
  SHARDWISE_FAULT_POINT("shard_cache.between_unlinks");
  remove_record(name);
  remove_note(name);
}

void CacheDirectory::remove_record(const std::string& name) const noexcept {
  ::unlink(record_path(name).c_str());
}

void CacheDirectory::remove_note(const std::string& name) const noexcept {
  ::unlink(note_path(name).c_str());
}

std::optional<std::uint64_t> find_size(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return std::nullopt;
    throw_errno(errno, "cannot access", path);
  }
  if (!S_ISREG(st.st_mode)) return std::nullopt;  // e.g. a link; a new shard replaces it
  return static_cast<std::uint64_t>(st.st_size);
}

void touch(const std::string& path) noexcept {
  timespec times[2] = {};
  ::clock_gettime(CLOCK_REALTIME, &times[0]);
  times[1].tv_nsec = UTIME_OMIT;
  // If this fails, the shard is only evicted sooner than it should be.
  static_cast<void>(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW));
}

}  // namespace shardwise::detail
