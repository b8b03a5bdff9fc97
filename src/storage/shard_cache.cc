#include "shardwise/storage/shard_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "shardwise/base/error.h"
#include "shardwise/base/fault_point.h"
#include "shardwise/base/file.h"
#include "shardwise/base/mapped_file.h"
#include "shardwise/base/mapped_read.h"
#include "shardwise/base/text.h"
#include "shardwise/base/url.h"
#include "shardwise/storage/replacement.h"
#include "storage/cache_directory.h"

namespace shardwise {

using detail::ByteLock;
using detail::CacheDirectory;
using detail::fetch_byte;
using detail::kRoomByte;
using detail::use_byte;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint64_t kWriteBackBytes = std::uint64_t{8} << 20;
/// Room is made in these steps for a shard of which the source does not say how large it is.
constexpr std::uint64_t kGrowBytes = std::uint64_t{64} << 20;
/// However many shards come meanwhile, nobody waits for room longer than so many room_timeouts.
constexpr int kMostRoomTimeouts = 10;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
/// A lock is asked for again after this long at first, and at most.
constexpr std::chrono::microseconds kFirstPause{100};
constexpr std::chrono::microseconds kLongestPause{10'000};

void throw_if_cancelled(const CacheRequest& request) {
  if (request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed)) {
    throw Cancelled("stopped, as asked for", "", "");
  }
}

/// Nothing if there is none.
std::optional<std::uint64_t> find_size(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return std::nullopt;
    throw_errno(errno, "cannot examine", path);
  }
  if (!S_ISREG(st.st_mode)) return std::nullopt;  // it will be replaced, not followed
  return static_cast<std::uint64_t>(st.st_size);
}

/// Says that the shard was used now.
void touch(const std::string& path) noexcept {
  timespec times[2] = {};
  ::clock_gettime(CLOCK_REALTIME, &times[0]);
  times[1].tv_nsec = UTIME_OMIT;
  // If it cannot be said, a shard goes sooner than it should: no more.
  static_cast<void>(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW));
}

/// Waits between the tries of a lock, longer each time.
class Pause {
 public:
  void operator()() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, kLongestPause);
  }

 private:
  std::chrono::microseconds next_ = kFirstPause;
};

/// Writes what comes to a file from its start, hashes it, and has the kernel begin to write it out.
class FileSink : public FetchSink {
 public:
  using Grow = std::function<void(std::uint64_t size_bytes)>;
  FileSink(File& file, Grow grow) : file_(file), grow_(std::move(grow)) {}

  void write(std::string_view bytes) override {
    if (grow_) grow_(size_ + bytes.size());
    file_.write_at(size_, bytes);
    hasher_.update(bytes);
    size_ += bytes.size();
    if (size_ - written_back_ >= kWriteBackBytes) {
      // So that syncing at the end finds little to do.
      ::sync_file_range(file_.fd(), static_cast<off_t>(written_back_),
                        static_cast<off_t>(size_ - written_back_), SYNC_FILE_RANGE_WRITE);
      written_back_ = size_;
    }
    SHARDWISE_FAULT_POINT("shard_cache.written");
  }
  bool restart() override {
    size_ = written_back_ = 0;
    hasher_ = Hasher128();
    return true;
  }

  std::uint64_t size_bytes() const noexcept { return size_; }
  Hash128 hash() const noexcept { return hasher_.digest(); }

 private:
  File& file_;
  const Grow grow_;
  Hasher128 hasher_;
  std::uint64_t size_ = 0;
  std::uint64_t written_back_ = 0;
};

}  // namespace

struct ShardCache::Impl : std::enable_shared_from_this<ShardCache::Impl> {
  explicit Impl(const ShardCacheOptions& wanted)
      : options(wanted),
        directory(wanted.directory, wanted.create),
        uses(directory),
        fetchers(wanted.fetchers ? wanted.fetchers : std::make_shared<const Fetchers>()) {}

  enum class Room : std::uint8_t {
    kMade,
    kNotNow,  ///< what should go is needed still
    kNone     ///< nothing may go
  };
  /// How much a shard is needed.
  struct Need {
    std::optional<std::uint64_t> ahead_for = {};  ///< not before this position
    bool patient = false;  ///< now, but rather wait until what should go is not needed any more
  };

  std::optional<CachedShard> find(const CacheRequest& request, const std::string& name);
  /// For locks that others hold briefly. Errors: kIo; Cancelled.
  template <class Attempt>
  auto wait_for(const CacheRequest& request, std::string_view who_is_stuck,
                const Attempt& attempt) const;
  /// The lock, as soon as it can be had. Errors: kIo; Cancelled.
  ByteLock lock_room(const CacheRequest& request) const;
  CachedShard hold(const CacheRequest& request, const std::string& name);
  /// Waits for who fetches the shard, as long as it gets on.
  ByteLock lock_fetch(const CacheRequest& request, const std::string& name);
  std::uint64_t size_wanted(const CacheRequest& request) const;
  void require_within_budget(const CacheRequest& request, std::uint64_t size_bytes) const;
  /// Makes room for `size_bytes` more, not counting what is there of `name`. REQUIRES: the room
  /// lock.
  Room make_room(const std::string& name, std::uint64_t size_bytes, const NextUseOf& next_use,
                 const Need& need);
  bool ask_to_release(const std::string& name);
  /// True if room was made for the shard, or it is there.
  bool has_room(const std::string& name) const;
  void remove(const CacheDirectory::Shard& shard);
  void sweep(const CacheDirectory::Contents& contents) const;

  template <class Change>
  void count(const Change& change) const {
    const std::lock_guard lock(mutex);
    change(stats);
  }

  const ShardCacheOptions options;
  const CacheDirectory directory;
  detail::UseTable uses;
  const std::shared_ptr<const Fetchers> fetchers;

  struct Releaser {
    std::weak_ptr<void> owner;
    std::function<bool(const std::string&)> release;
  };
  /// Says, while what is returned lives, that this process fetches the shard.
  std::shared_ptr<void> note_fetch(const std::string& name);
  bool is_fetched_here(const std::string& name) const;

  std::atomic<int> num_running{0};  // fetches of this process
  mutable std::mutex mutex;
  mutable ShardCacheStats stats;            // guarded by mutex
  std::vector<Releaser> releasers;          // guarded by mutex
  std::multiset<std::string> fetched_here;  // by name; guarded by mutex
};

struct CachedShard::Hold {
  Hold(std::shared_ptr<ShardCache::Impl> of, std::string shard, std::uint64_t since)
      : cache(std::move(of)), name(std::move(shard)), generation(since) {}
  ~Hold() {
    own_file.reset();
    cache->uses.release(name, generation);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  const std::shared_ptr<ShardCache::Impl> cache;
  const std::string name;
  const std::uint64_t generation;
  std::unique_ptr<AtomicFile> own_file;  // the shard, if there was no room for it
};

CachedShard::CachedShard(std::unique_ptr<Hold> hold, std::string path)
    : hold_(std::move(hold)), path_(std::move(path)) {}
CachedShard::CachedShard() = default;
CachedShard::~CachedShard() = default;
const std::string& CachedShard::name() const noexcept { return hold_->name; }
CachedShard::CachedShard(CachedShard&&) noexcept = default;
CachedShard& CachedShard::operator=(CachedShard&&) noexcept = default;

/// A shard that is being fetched.
struct ShardCache::Fetch::Impl {
  CachedShard run();
  void transfer(FileSink& sink);
  void expand(FileSink& sink, std::string_view compressed, const std::string& name);
  /// Makes the temporary file, of the size that the shard will have.
  void make_file();
  void grow(std::uint64_t size_bytes);
  std::uint64_t fetch_to(FileSink& sink);
  void require_source_hash(const Hash128& hash) const;
  void require_size(std::optional<std::uint64_t> wanted, std::uint64_t size_bytes) const;

  std::shared_ptr<ShardCache::Impl> cache;
  CacheRequest request;
  std::string name;
  NextUseOf next_use;
  CachedShard held;
  ByteLock lock;
  std::shared_ptr<void> noted = nullptr;  // see note_fetch
  std::uint64_t reserved_bytes = 0;
  bool bypass = false;
  std::unique_ptr<AtomicFile> file = nullptr;
};

/// What `attempt` gives, as soon as it gives something.
template <class Attempt>
auto ShardCache::Impl::wait_for(const CacheRequest& request, std::string_view who_is_stuck,
                                const Attempt& attempt) const {
  Pause pause;
  for (const auto start = Clock::now();;) {
    if (auto got = attempt()) return *std::move(got);
    throw_if_cancelled(request);
    if (Clock::now() - start > options.wait_timeout) {
      throw Error(ErrorCode::kIo, who_is_stuck, in_quotes(directory.path()),
                  "see whether one is stopped, and end it");
    }
    pause();
  }
}

CachedShard ShardCache::Impl::hold(const CacheRequest& request, const std::string& name) {
  const std::uint64_t since = wait_for(request, "a process does not finish evicting a shard",
                                       [&] { return uses.try_hold(name); });
  return CachedShard(std::make_unique<CachedShard::Hold>(shared_from_this(), name, since),
                     directory.shard_path(name));
}

std::optional<CachedShard> ShardCache::Impl::find(const CacheRequest& request,
                                                  const std::string& name) {
  CachedShard shard = hold(request, name);
  const auto size = find_size(shard.path());
  if (!size || (request.size_bytes && *size != *request.size_bytes)) return std::nullopt;
  if (request.is_current && !request.is_current(shard.path())) return std::nullopt;
  touch(shard.path());
  return shard;
}

ByteLock ShardCache::Impl::lock_room(const CacheRequest& request) const {
  return wait_for(request, "a process does not finish making room in the shard cache",
                  [&] { return ByteLock::try_take(directory, kRoomByte); });
}

std::shared_ptr<void> ShardCache::Impl::note_fetch(const std::string& name) {
  {
    const std::lock_guard lock(mutex);
    fetched_here.insert(name);
  }
  return {nullptr, [self = shared_from_this(), name](void*) {
            const std::lock_guard lock(self->mutex);
            self->fetched_here.erase(self->fetched_here.find(name));
          }};
}

bool ShardCache::Impl::is_fetched_here(const std::string& name) const {
  const std::lock_guard lock(mutex);
  return fetched_here.contains(name);
}

ByteLock ShardCache::Impl::lock_fetch(const CacheRequest& request, const std::string& name) {
  Pause pause;
  const auto start = Clock::now();
  auto last_growth = start, last_word = start;
  std::int64_t mtime_ns = 0;
  bool waited = false;
  for (;;) {
    if (auto lock = ByteLock::try_take(directory, fetch_byte(name))) return *std::move(lock);
    if (!std::exchange(waited, true)) count([](ShardCacheStats& s) { ++s.waits; });
    throw_if_cancelled(request);
    const auto now = Clock::now();
    if (now - last_word >= std::chrono::seconds(1)) {
      last_word = now;
      if (options.on_wait && !is_fetched_here(name)) {
        options.on_wait(redacted_url(request.url),
                        std::chrono::duration_cast<milliseconds>(now - start));
      }
      for (const auto& temporary : directory.scan().temporaries) {
        if (temporary.name != name || temporary.mtime_ns == mtime_ns) continue;
        mtime_ns = temporary.mtime_ns;
        last_growth = now;
      }
    }
    if (now - last_growth > options.wait_timeout) {
      throw Error(
          ErrorCode::kIo, "another process fetches the shard, and does not get on",
          in_quotes(redacted_url(request.url)) + " (nothing came for " +
              std::to_string(std::chrono::duration_cast<milliseconds>(now - last_growth).count() /
                             1000) +
              " s)",
          "see whether a process that uses " + in_quotes(directory.path()) +
              " is stopped, and end it");
    }
    pause();
  }
}

std::uint64_t ShardCache::Impl::size_wanted(const CacheRequest& request) const {
  if (request.size_bytes) return *request.size_bytes;
  if (request.compression != Compression::kNone) return 0;
  if (request.source_bytes) return *request.source_bytes;
  if (!is_fetched_url(request.url)) return file_identity(request.url).size_bytes;
  return fetchers->stat({.url = request.url, .cancel = request.cancel}).size_bytes.value_or(0);
}

void ShardCache::Impl::require_within_budget(const CacheRequest& request,
                                             std::uint64_t size_bytes) const {
  if (size_bytes <= options.budget_bytes || options.bypass_large) return;
  throw Error(ErrorCode::kNoSpace, "the shard is larger than the shard cache's budget",
              in_quotes(redacted_url(request.url)) + " (" + human_bytes(size_bytes) + ", budget " +
                  human_bytes(options.budget_bytes) + ")",
              "give the cache " + std::to_string(size_bytes) +
                  " bytes at least, or let large shards bypass it (--cache-bypass-large)");
}

bool ShardCache::Impl::ask_to_release(const std::string& name) {
  std::vector<std::pair<std::shared_ptr<void>, std::function<bool(const std::string&)>>> living;
  {
    const std::lock_guard lock(mutex);
    std::erase_if(releasers, [](const Releaser& r) { return r.owner.expired(); });
    for (const Releaser& r : releasers) {
      if (auto owner = r.owner.lock()) living.emplace_back(std::move(owner), r.release);
    }
  }
  bool released = false;
  for (const auto& [owner, release] : living) released |= release(name);
  return released;
}

bool ShardCache::Impl::has_room(const std::string& name) const {
  const auto contents = directory.scan();
  const auto is_it = [&](const auto& file) { return file.name == name; };
  return std::any_of(contents.temporaries.begin(), contents.temporaries.end(), is_it) ||
         std::any_of(contents.shards.begin(), contents.shards.end(), is_it);
}

void ShardCache::Impl::remove(const CacheDirectory::Shard& shard) {
  directory.remove(shard.name);
  count([&](ShardCacheStats& s) {
    ++s.evicted;
    s.evicted_bytes += shard.size_bytes;
  });
}

ShardCache::Impl::Room ShardCache::Impl::make_room(const std::string& name,
                                                   std::uint64_t size_bytes,
                                                   const NextUseOf& next_use, const Need& need) {
  if (size_bytes > options.budget_bytes) return Room::kNone;
  const std::uint64_t allowed = options.budget_bytes - size_bytes;
  struct Candidate {
    const CacheDirectory::Shard* shard;
    NextUse next;
  };
  const CacheDirectory::Contents contents = directory.scan();
  std::vector<Candidate> candidates;
  std::uint64_t used = 0;
  for (const auto& temporary : contents.temporaries) {
    if (!sweep_temporary(temporary.path)) used += temporary.size_bytes;
  }
  for (const auto& shard : contents.shards) {
    if (shard.name == name) continue;  // what is fetched takes its place
    used += shard.size_bytes;
    const NextUse next = next_use ? next_use(shard.name) : NextUse{};
    if (next.kind != NextUse::Kind::kInUse) candidates.push_back({&shard, next});
  }
  if (used <= allowed) return Room::kMade;

  const auto known = [](const NextUse& next) { return next.kind != NextUse::Kind::kUnknown; };
  const auto rank = [](const Candidate& c) -> EvictionCandidate {
    EvictionCandidate candidate{
        .shard = c.next.shard, .size_bytes = c.shard->size_bytes, .last_use = 0, .next_use = {}};
    if (c.next.kind == NextUse::Kind::kAt) candidate.next_use = c.next.position;
    return candidate;
  };
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    if (known(a.next) != known(b.next)) return known(b.next);
    if (!known(a.next)) return a.shard->last_use_ns < b.shard->last_use_ns;
    return leaves_before(rank(a), rank(b), Replacement::kNextUse);
  });

  const bool can_wait = need.ahead_for || need.patient;
  std::vector<std::pair<const CacheDirectory::Shard*, ByteLock>> victims;
  for (const Candidate& candidate : candidates) {
    if (used <= allowed) break;
    const bool is_known = known(candidate.next);
    if (is_known && can_wait && !candidate.next.may_go_now) return Room::kNotNow;
    if (need.ahead_for && candidate.next.kind == NextUse::Kind::kAt &&
        candidate.next.position <= *need.ahead_for) {
      return Room::kNotNow;
    }
    auto lock = ByteLock::try_take(directory, use_byte(candidate.shard->name));
    if (!lock && ask_to_release(candidate.shard->name)) {
      lock = ByteLock::try_take(directory, use_byte(candidate.shard->name));
    }
    if (!lock) {
      if (is_known && can_wait) return Room::kNotNow;
      continue;
    }
    used -= candidate.shard->size_bytes;
    victims.emplace_back(candidate.shard, *std::move(lock));
  }
  if (used > allowed) return need.ahead_for ? Room::kNotNow : Room::kNone;
  for (const auto& [shard, lock] : victims) remove(*shard);
  return Room::kMade;
}

void ShardCache::Impl::sweep(const CacheDirectory::Contents& contents) const {
  for (const auto& temporary : contents.temporaries) sweep_temporary(temporary.path);
  for (const std::string& name : contents.records) {
    const bool has_shard = std::any_of(contents.shards.begin(), contents.shards.end(),
                                       [&](const auto& shard) { return shard.name == name; });
    if (has_shard) continue;
    // A record is written just before its shard appears.
    const auto lock = ByteLock::try_take(directory, fetch_byte(name));
    if (lock && !find_size(directory.shard_path(name))) {
      ::unlink(directory.record_path(name).c_str());
    }
  }
}

void ShardCache::Fetch::Impl::make_file() {
  file = std::make_unique<AtomicFile>(cache->directory.shard_path(name));
  SHARDWISE_FAULT_POINT("shard_cache.temporary_made");
  file->file().reserve(reserved_bytes);
}

void ShardCache::Fetch::Impl::grow(std::uint64_t size_bytes) {
  if (size_bytes <= reserved_bytes) return;
  if (request.size_bytes) {
    throw StaleIndex("the shard is longer than it was when it was indexed",
                     in_quotes(redacted_url(request.url)) + " (" +
                         std::to_string(*request.size_bytes) + " bytes then)",
                     "run `shardwise index` again");
  }
  const std::uint64_t more = std::max(size_bytes - reserved_bytes, kGrowBytes);
  if (!bypass) {
    cache->require_within_budget(request, size_bytes);
    const ByteLock room = cache->lock_room(request);
    // Its temporary file is counted already.
    bypass = cache->make_room(name, more, next_use, {}) != ShardCache::Impl::Room::kMade;
  }
  reserved_bytes += more;
  file->file().reserve(reserved_bytes);
}

void ShardCache::Fetch::Impl::require_source_hash(const Hash128& hash) const {
  if (!request.source_hash || *request.source_hash == hash) return;
  throw StaleIndex("the bytes that came are not those that were indexed",
                   in_quotes(redacted_url(request.url)) + " (hash " + to_string(hash) + ", not " +
                       to_string(*request.source_hash) + ")",
                   "fetch it again; if it changed at its source, run `shardwise index` again");
}

void ShardCache::Fetch::Impl::require_size(std::optional<std::uint64_t> wanted,
                                           std::uint64_t size_bytes) const {
  if (!wanted || *wanted == size_bytes) return;
  throw StaleIndex("the shard is not as long as it was when it was indexed",
                   in_quotes(redacted_url(request.url)) + " (" + std::to_string(size_bytes) +
                       " bytes now, " + std::to_string(*wanted) + " then)",
                   "run `shardwise index` again");
}

/// Fetches the file as it is at its source. @return  its size.
std::uint64_t ShardCache::Fetch::Impl::fetch_to(FileSink& sink) {
  cache->fetchers->fetch({.url = request.url, .cancel = request.cancel}, sink);
  require_source_hash(sink.hash());
  require_size(request.source_bytes, sink.size_bytes());
  return sink.size_bytes();
}

void ShardCache::Fetch::Impl::expand(FileSink& sink, std::string_view compressed,
                                     const std::string& shown) {
  ExpandingReader reader(compressed, request.compression, shown);
  std::string piece(kPieceBytes, '\0');
  while (const std::size_t n = reader.read(piece.data(), piece.size())) {
    throw_if_cancelled(request);
    sink.write(std::string_view(piece).substr(0, n));
  }
}

void ShardCache::Fetch::Impl::transfer(FileSink& sink) {
  std::uint64_t fetched_bytes = 0;
  const bool fetches = request.local_copy.empty() && is_fetched_url(request.url);
  if (fetches && request.compression == Compression::kNone) {
    fetched_bytes = fetch_to(sink);
  } else if (fetches) {
    // Beside the budget: gone as soon as it is expanded.
    AtomicFile stored(cache->directory.shard_path(name));
    FileSink to(stored.file(), nullptr);
    fetched_bytes = fetch_to(to);
    stored.file().resize(fetched_bytes);
    const MappedFile map =
        MappedFile::open(stored.temporary_path(), MappedFile::Access::kSequential);
    expand(sink, map.bytes(), redacted_url(request.url));
  } else {
    const std::string& path = request.local_copy.empty() ? request.url : request.local_copy;
    const MappedFile map = MappedFile::open(path, MappedFile::Access::kSequential);
    const MappedReadGuard guard(map.bytes().data(), map.bytes().size());
    const auto require_whole = [&] {
      if (!guard.damaged() && file_identity(path) == map.identity()) return;
      throw StaleIndex("the shard changed while it was read", in_quotes(path),
                       "run `shardwise index` again");
    };
    fetched_bytes = map.bytes().size();
    try {
      if (request.source_hash) require_source_hash(hash128(map.bytes()));
      if (request.compression == Compression::kNone) {
        for (std::size_t at = 0; at < map.bytes().size(); at += kPieceBytes) {
          throw_if_cancelled(request);
          sink.write(map.bytes().substr(at, kPieceBytes));
        }
      } else {
        expand(sink, map.bytes(), path);
      }
    } catch (const Error&) {
      require_whole();
      throw;
    }
    require_whole();
  }
  cache->count([&](ShardCacheStats& s) {
    ++s.fetched;
    s.fetched_bytes += fetched_bytes;
  });
}

CachedShard ShardCache::Fetch::Impl::run() {
  throw_if_cancelled(request);
  struct Running {
    std::atomic<int>& count;
    explicit Running(std::atomic<int>& in) : count(in) { ++count; }
    ~Running() { --count; }
  } const running(cache->num_running);
  FileSink sink(file->file(), [this](std::uint64_t size_bytes) { grow(size_bytes); });
  transfer(sink);
  require_size(request.size_bytes, sink.size_bytes());
  file->file().resize(sink.size_bytes());
  if (request.check) request.check(file->temporary_path());
  SHARDWISE_FAULT_POINT("shard_cache.checked");
  if (bypass) {
    cache->count([](ShardCacheStats& s) { ++s.bypassed; });
    held.path_ = file->temporary_path();
    held.hold_->own_file = std::move(file);
    return std::move(held);
  }
  cache->directory.write_record(
      name,
      {.url = redacted_url(request.url), .size_bytes = sink.size_bytes(), .hash = sink.hash()});
  file->file().sync();
  {
    // Whoever counts what is there sees a shard under one name.
    const ByteLock room = cache->lock_room(request);
    file->commit();
  }
  file.reset();
  touch(held.path());
  return std::move(held);
}

ShardCache::Fetch::Fetch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardCache::Fetch::~Fetch() = default;
ShardCache::Fetch::Fetch(Fetch&&) noexcept = default;
ShardCache::Fetch& ShardCache::Fetch::operator=(Fetch&&) noexcept = default;

CachedShard ShardCache::Fetch::run() { return impl_->run(); }

ShardCache::ShardCache(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardCache::~ShardCache() = default;

std::shared_ptr<ShardCache> ShardCache::open(const ShardCacheOptions& options) {
  if (options.budget_bytes == 0) {
    throw InvalidArgument("a shard cache without a budget", in_quotes(options.directory),
                          "give it as many bytes as its disk has to spare");
  }
  auto impl = std::make_shared<Impl>(options);
  const ByteLock room = impl->lock_room({});
  impl->sweep(impl->directory.scan());
  return std::shared_ptr<ShardCache>(new ShardCache(std::move(impl)));
}

const ShardCacheOptions& ShardCache::options() const noexcept { return impl_->options; }

std::string ShardCache::name_of(const CacheRequest& request) {
  Hasher128 hasher;
  hasher.update(is_remote_url(request.url) ? canonical_url(request.url) : request.url);
  hasher.update(std::string_view("\0", 1));
  hasher.update(compression_name(request.compression));
  hasher.update(std::string_view("\0", 1));
  hasher.update(request.version);
  return to_string(hasher.digest());
}

CachedShard ShardCache::get(const CacheRequest& request, const NextUseOf& next_use) {
  const std::string name = name_of(request);
  if (auto shard = impl_->find(request, name)) {
    impl_->count([](ShardCacheStats& s) { ++s.hits; });
    return *std::move(shard);
  }
  impl_->count([](ShardCacheStats& s) { ++s.misses; });
  struct Stopwatch {
    Impl& impl;
    const Clock::time_point start = Clock::now();
    ~Stopwatch() {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      impl.count([&](ShardCacheStats& s) { s.wait_seconds += seconds; });
    }
  } stopwatch{*impl_};

  ByteLock lock = impl_->lock_fetch(request, name);
  if (auto shard = impl_->find(request, name)) return *std::move(shard);
  CachedShard held = impl_->hold(request, name);
  Fetch::Impl fetch{.cache = impl_,
                    .request = request,
                    .name = name,
                    .next_use = next_use,
                    .held = std::move(held),
                    .lock = std::move(lock),
                    .noted = impl_->note_fetch(name)};
  fetch.reserved_bytes = impl_->size_wanted(request);
  impl_->require_within_budget(request, fetch.reserved_bytes);
  Pause pause;
  // What is needed still is so for work that began before. Such work gets on while shards come; if
  // none come, it is done, or waits for this very shard.
  const auto start = Clock::now();
  auto quiet_since = start;
  for (bool patient = true; fetch.file == nullptr;) {
    throw_if_cancelled(request);
    {
      const ByteLock room = impl_->lock_room(request);
      const auto made =
          impl_->make_room(name, fetch.reserved_bytes, next_use, {.patient = patient});
      if (made != Impl::Room::kNotNow) {
        fetch.bypass = made == Impl::Room::kNone;
        fetch.make_file();
        break;
      }
    }
    pause();
    const auto now = Clock::now();
    const auto timeout = impl_->options.room_timeout;
    if (impl_->num_running > 0 && now - start < kMostRoomTimeouts * timeout) quiet_since = now;
    patient = now - quiet_since < timeout;
  }
  return fetch.run();
}

ShardCache::Ahead ShardCache::begin_ahead(const CacheRequest& request, std::uint64_t needed_at,
                                          const NextUseOf& next_use, std::optional<Fetch>& fetch) {
  const std::string name = name_of(request);
  if (impl_->find(request, name)) return Ahead::kPresent;
  auto lock = ByteLock::try_take(impl_->directory, fetch_byte(name));
  // Who has the lock and no room yet goes first: what is fetched for later must not take its room.
  if (!lock) return impl_->has_room(name) ? Ahead::kPresent : Ahead::kNotNow;
  if (impl_->find(request, name)) return Ahead::kPresent;
  CachedShard held = impl_->hold(request, name);
  auto begun = std::make_unique<Fetch::Impl>(Fetch::Impl{.cache = impl_,
                                                         .request = request,
                                                         .name = name,
                                                         .next_use = next_use,
                                                         .held = std::move(held),
                                                         .lock = *std::move(lock),
                                                         .noted = impl_->note_fetch(name)});
  begun->reserved_bytes = impl_->size_wanted(request);
  impl_->require_within_budget(request, begun->reserved_bytes);
  {
    const ByteLock room = impl_->lock_room(request);
    if (impl_->make_room(name, begun->reserved_bytes, next_use, {.ahead_for = needed_at}) !=
        Impl::Room::kMade) {
      return Ahead::kNotNow;
    }
    begun->make_file();
  }
  fetch.emplace(Fetch(std::move(begun)));
  return Ahead::kFetch;
}

void ShardCache::add_releaser(std::weak_ptr<void> owner,
                              std::function<bool(const std::string&)> release) {
  const std::lock_guard lock(impl_->mutex);
  impl_->releasers.push_back({std::move(owner), std::move(release)});
}

ShardCacheStats ShardCache::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

std::uint64_t ShardCache::used_bytes() const {
  const auto contents = impl_->directory.scan();
  std::uint64_t used = 0;
  for (const auto& shard : contents.shards) used += shard.size_bytes;
  for (const auto& temporary : contents.temporaries) used += temporary.size_bytes;
  return used;
}

std::vector<CacheEntry> ShardCache::entries() const {
  std::vector<CacheEntry> entries;
  for (const auto& shard : impl_->directory.scan().shards) {
    CacheEntry entry{.name = shard.name,
                     .url = {},
                     .size_bytes = shard.size_bytes,
                     .last_use_ns = shard.last_use_ns};
    if (const auto record = impl_->directory.read_record(shard.name)) {
      entry.url = record->url;
      entry.hash = record->hash;
    }
    entry.in_use = !ByteLock::try_take(impl_->directory, use_byte(shard.name));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const CacheEntry& a, const CacheEntry& b) {
    return a.last_use_ns != b.last_use_ns ? a.last_use_ns < b.last_use_ns : a.name < b.name;
  });
  return entries;
}

CacheCheck ShardCache::verify(const std::atomic<bool>* cancel,
                              const std::function<void(std::uint64_t)>& progress) const {
  CacheCheck result;
  result.foreign = impl_->directory.scan().foreign;
  const CacheRequest request{.url = {}, .cancel = cancel};
  std::string piece(kPieceBytes, '\0');
  for (CacheEntry& entry : entries()) {
    ++result.num_shards;
    if (!entry.hash) {
      result.unknown.push_back(std::move(entry));
      continue;
    }
    Hasher128 hasher;
    try {
      const File file = File::open_read(impl_->directory.shard_path(entry.name));
      for (std::uint64_t at = 0;;) {
        throw_if_cancelled(request);
        const std::size_t n = file.read_at(at, piece.data(), piece.size());
        if (n == 0) break;
        hasher.update(std::string_view(piece).substr(0, n));
        at += n;
        if (progress) progress(n);
      }
    } catch (const NotFound&) {
      --result.num_shards;  // evicted meanwhile
      continue;
    }
    if (hasher.digest() != *entry.hash) result.damaged.push_back(std::move(entry));
  }
  return result;
}

CacheRemoval ShardCache::prune(std::uint64_t max_bytes) {
  const ByteLock room = impl_->lock_room({});
  auto contents = impl_->directory.scan();
  impl_->sweep(contents);
  std::sort(contents.shards.begin(), contents.shards.end(),
            [](const auto& a, const auto& b) { return a.last_use_ns < b.last_use_ns; });
  std::uint64_t used = 0;
  for (const auto& shard : contents.shards) used += shard.size_bytes;
  CacheRemoval removal;
  for (const auto& shard : contents.shards) {
    if (used <= max_bytes) break;
    const auto lock = ByteLock::try_take(impl_->directory, use_byte(shard.name));
    if (!lock) {
      ++removal.num_in_use;
      continue;
    }
    impl_->remove(shard);
    used -= shard.size_bytes;
    ++removal.num_shards;
    removal.bytes += shard.size_bytes;
  }
  return removal;
}

bool ShardCache::remove(const std::string& name) {
  const ByteLock room = impl_->lock_room({});
  for (const auto& shard : impl_->directory.scan().shards) {
    if (shard.name != name) continue;
    const auto lock = ByteLock::try_take(impl_->directory, use_byte(name));
    if (!lock) return false;
    impl_->remove(shard);
    return true;
  }
  return false;
}

}  // namespace shardwise
