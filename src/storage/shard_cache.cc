#include "shardwise/storage/shard_cache.h"

#include "base/assert.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/own_directory.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "storage/cache_metrics.h"
#include "storage/cache_request.h"
#include "storage/cache_state.h"
#include "storage/source_identity.h"

namespace shardwise {

using detail::ByteLock;
using detail::find_size;
using detail::touch;

// How processes share one cache directory. docs/formats/cache-directory.md specifies the files and
// the bytes that are locked. This table shows the order in which the bytes are locked.
//
//   lock                  taken by                  how        while the thread holds
//   fetch byte of a shard lock_fetch()              waits      no lock that get() took
//                         begin_ahead(), follow(),
//                         remove_leftovers(),
//                         renew_record()            tries      any locks
//   use byte, shared      pin()                     waits      no lock, or the fetch byte
//   room byte             lock_room()               waits      at most these two, of one shard,
//                                                              and victims' use bytes
//   use byte, exclusive   try_to_remove(), prune(),
//                         remove()                  tries      any locks
//
// No thread waits forever. The room byte, and exclusive locks on use bytes, are held only briefly,
// never during a fetch. A holder of the room byte waits for no other lock. A fetch byte stays
// locked during the whole fetch, and the fetching thread may need to evict a shard that another
// thread still reads. Waiting for a shard to become unused is therefore limited: get() waits up to
// room_timeout, then fetches to a separate file (next_stage()).
//
// Deleting files: only a thread that holds the room byte, and has locked the shard's use byte
// exclusively, deletes a shard with its record and note. Only a holder of the fetch byte deletes a
// record or a note without a shard. A fetch takes a shared lock on the use byte before
// it writes these files, so that the new shard is not evicted at once. Any thread that has pinned a
// shard may replace the shard's note, by rename. A temporary file is deleted by its owner, or by a
// process that can lock it.
//
// Locks belong to open file descriptions, not to processes, because each ByteLock opens `locks`
// anew. Two threads of one process therefore exclude each other as two processes do, and a process
// cannot evict a shard that it has pinned. A killed process leaves no lock. It may leave a
// temporary file, or a record without its shard.

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

[[noreturn]] void throw_not_there(const CacheRequest& request, const ShardCache::Options& options) {
  const bool is_remote = is_fetched_url(request.source.url);
  const std::string past = is_remote && request.source.compression == Compression::kNone
                               ? ", or read single samples without the cache (" +
                                     spelled("Dataset::Access::kRange") + ")"
                               : "";
  throw Unsupported(
      "the shard is not in the read-only cache",
      in_quotes(redacted_url(request.source.url)) + " (cache " + in_quotes(options.directory) + ")",
      "ask a user with write access to fetch the shard into the cache (" +
          spelled("`shardwise cache fill`") + "), or use another cache" + past);
}

detail::CacheDirectory::Sharing sharing_of(const ShardCache::Options& options) {
  using Sharing = detail::CacheDirectory::Sharing;
  if (options.read_only) return Sharing::kReadOnly;
  return options.group_shared ? Sharing::kGroup : Sharing::kOwn;
}

}  // namespace

CachedShard::CachedShard(std::unique_ptr<Pin> pin, std::string path)
    : pin_(std::move(pin)), path_(std::move(path)) {}
CachedShard::CachedShard() = default;
CachedShard::~CachedShard() = default;
const std::string& CachedShard::name() const noexcept {
  SHARDWISE_ASSERT(is_pinned());
  return pin_->name;
}
bool CachedShard::is_overflow() const noexcept { return pin_ && pin_->overflow_file != nullptr; }
void CachedShard::share_with_children() noexcept {
  if (pin_) pin_->cache->locks.pins.share(pin_->name, pin_->pin);
}
MappedFile CachedShard::map() {
  if (checked_.fd() < 0) return MappedFile::open(path_);
  const File file = std::move(checked_);
  return MappedFile::open(file);
}
CachedShard::CachedShard(CachedShard&&) noexcept = default;
CachedShard& CachedShard::operator=(CachedShard&&) noexcept = default;

ShardCache::Impl::Impl(const ShardCache::Options& wanted)
    : options(wanted),
      directory(wanted.directory, wanted.create, sharing_of(wanted)),
      fetchers(wanted.fetchers ? wanted.fetchers : std::make_shared<const Fetchers>()),
      counts(options),
      locks(directory, options, fetchers->options().retry_for, counts),
      failures(fetchers->options().retry_for),
      room(options, directory, locks, readers, counts) {}

CachedShard ShardCache::Impl::pin(const CacheRequest& request, const std::string& name) {
  return CachedShard(
      std::make_unique<CachedShard::Pin>(shared_from_this(), name, locks.pin(name, request.cancel)),
      directory.shard_path(name));
}

void ShardCache::Impl::renew_record(const std::string& name, const Record& record) const {
  if (directory.is_read_only()) return;  // the next reader examines the whole shard again
  // A process that writes or removes only a record must hold the fetch lock.
  const auto lock = locks.try_lock_fetch(name);
  if (!lock) return;  // another process is writing the record; the next reader tries again
  try {
    directory.write_record(name, record);
  } catch (const Error&) {  // the next reader examines the whole shard again
  }
}

void ShardCache::Impl::write_note(const std::string& name, const Hash128& shard_hash,
                                  std::string_view text) const {
  if (directory.is_read_only()) return;
  try {
    directory.write_note(name, shard_hash, text);
  } catch (const Error&) {  // the next reader makes the note again
  }
}

bool ShardCache::Impl::has_recorded_bytes(const CacheRequest& request, const std::string& name,
                                          Record& record) const {
  try {
    const File file = File::open_read(directory.shard_path(name));
    if (file_identity(file.fd(), file.path()).size_bytes != record.size_bytes) return false;
    const auto now = detail::CacheDirectory::quick_check_of(file);
    if (now == record.quick_check) return true;
    if (detail::hash_of_file(file, request.cancel) != record.hash) return false;
    record.quick_check = now;
  } catch (const Cancelled&) {
    throw;
  } catch (const NoDescriptor&) {
    throw;
  } catch (const Error&) {
    return false;  // unreadable
  }
  renew_record(name, record);
  return true;
}

bool ShardCache::Impl::is_as_asked(const CacheRequest& request, const std::string& name) const {
  auto [record, is_damaged] = directory.read_record(name);
  if (is_damaged) return false;  // whatever damaged the record may have damaged the shard as well
  if (request.source.source_hash && (!record || record->source_hash != *request.source.source_hash))
    return false;
  if (record && !has_recorded_bytes(request, name, *record)) return false;
  if (!request.admission.checked_as) return true;
  if (record && record->checked_as) return record->checked_as == request.admission.checked_as;
  try {
    request.admission.check(directory.shard_path(name));
  } catch (const Cancelled&) {
    throw;
  } catch (const Error&) {
    return false;
  }
  if (record) {  // spares the next reader this check
    record->checked_as = request.admission.checked_as;
    renew_record(name, *record);
  }
  return true;
}

bool ShardCache::Impl::is_genuine(const CacheRequest& request, CachedShard& shard) {
  const detail::ShardAdmission& admission = request.admission;
  try {
    File file = File::open_read(shard.path());
    if (!directory.may_be_changed_by_others(file)) return true;
    // Without hashes, a file that other users wrote cannot be verified. Exceptions: in a group
    // cache, the group's members trust each other; a user who asked to read another user's cache
    // trusts that user.
    if (!admission.check_content && directory.is_own() && may_be_written_by_others(file)) {
      return false;
    }
    const detail::FileIdentity identity = file_identity(file.fd(), file.path());
    const auto is_known = [&] {
      const Lock lock(mutex);
      return checked.contains(identity);
    };
    if (!is_known()) {
      // Open through the descriptor, because the path may refer to another file by now.
      const std::string path = "/proc/self/fd/" + std::to_string(file.fd());
      if (admission.check_content) {
        admission.check_content(path, request.cancel);
      } else if (admission.checked_as) {
        admission.check(path);
      }
      const Lock lock(mutex);
      checked.insert(identity);
    }
    shard.checked_ = std::move(file);
    return true;
  } catch (const Cancelled&) {
    throw;
  } catch (const NoDescriptor&) {
    throw;
  } catch (const NotFound&) {  // the shard is not in the cache
    return false;
  } catch (const Error& wrong) {
    if (!directory.is_read_only()) return false;
    const std::string what = wrong.what();
    throw StaleIndex("the cached shard differs from the indexed shard",
                     in_quotes(redacted_url(request.source.url)) + " (cache " +
                         in_quotes(directory.path()) + "; " +
                         // omit the remedy, which does not apply to a read-only cache
                         what.substr(0, what.find("; ")) + ")",
                     "use another cache, or tell the owner of this cache that other users may have "
                     "changed the cache");
  }
}

std::optional<CachedShard> ShardCache::Impl::find(const CacheRequest& request,
                                                  const std::string& name) {
  // Pin first, so that the shard cannot be evicted between find_size() and the return.
  CachedShard shard = pin(request, name);
  const auto size = find_size(shard.path());
  if (!size || request.admission.fetch_again) return std::nullopt;
  const auto wanted = request.source.compression == Compression::kNone && !request.source.size_bytes
                          ? request.source.source_bytes
                          : request.source.size_bytes;
  if (wanted && *size != *wanted) return std::nullopt;
  if (!is_as_asked(request, name) || !is_genuine(request, shard)) return std::nullopt;
  if (!directory.is_read_only()) touch(shard.path());
  return shard;
}

std::unique_ptr<ShardFetch::Impl> ShardCache::Impl::begin_fetch(ByteLock lock,
                                                                const CacheRequest& request,
                                                                const std::string& name,
                                                                const NextUseOf& next_use) {
  // Pin now, so that the shard cannot be evicted between run()'s rename and its return.
  CachedShard pinned = pin(request, name);
  auto begun = std::make_unique<ShardFetch::Impl>(ShardFetch::Impl{.cache = shared_from_this(),
                                                                   .request = request,
                                                                   .name = name,
                                                                   .next_use = next_use,
                                                                   .pinned = std::move(pinned),
                                                                   .lock = std::move(lock)});
  if (request.source.compression == Compression::kNone && request.source.source_bytes) {
    begun->coming.shard = readers.begin_coming(name);
  }
  begun->retry_for = failures.retry_budget(name);
  begun->reserved_bytes = begun->size_wanted();
  room.require_within_budget(request, begun->reserved_bytes);
  return begun;
}

ShardFetch::ShardFetch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardFetch::~ShardFetch() = default;
ShardFetch::ShardFetch(ShardFetch&&) noexcept = default;
ShardFetch& ShardFetch::operator=(ShardFetch&&) noexcept = default;

CachedShard ShardFetch::run() { return impl_->run(); }

ShardCache::ShardCache(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardCache::~ShardCache() = default;

std::shared_ptr<ShardCache> ShardCache::open(const ShardCache::Options& options) {
  if (options.budget_bytes == 0) {
    throw InvalidOption("the budget of the shard cache is 0 bytes", in_quotes(options.directory),
                        "set the budget to the bytes that its disk can spare");
  }
  Options own = options;
  own.directory = at_home(std::move(own.directory));
  own.metrics_file = at_home(std::move(own.metrics_file));
  auto impl = std::make_shared<Impl>(own);
  if (!impl->directory.is_read_only()) impl->room.take_stock();
  // Write the metrics file now, so that an unwritable file is reported here and not in a long run.
  if (!own.metrics_file.empty()) detail::write_metrics(own.metrics_file, impl->counts.metrics());
  return std::shared_ptr<ShardCache>(new ShardCache(std::move(impl)));
}

std::string detail::local_validator(std::uint64_t size_bytes, std::int64_t mtime_ns) {
  return std::to_string(size_bytes) + "-" + std::to_string(mtime_ns);
}

bool ShardCache::is_read_only() const noexcept { return impl_->directory.is_read_only(); }

void ShardCache::Impl::require_writable(std::string_view what) const {
  if (!directory.is_read_only()) return;
  throw Unsupported(
      "the shard cache is read-only, and " + std::string(what), in_quotes(directory.path()),
      options.read_only ? "open the cache without " + spelled("ShardCache::Options::read_only")
                        : "ask the owner of the cache to fetch the shards into the cache (" +
                              spelled("`shardwise cache fill`") + "), or name another directory");
}

const ShardCache::Options& ShardCache::options() const noexcept { return impl_->options; }

namespace detail {

std::string CacheAccess::name_of(const CacheRequest& request) {
  Hasher128 hasher;
  hasher.update(source_identity(request.source.url));
  hasher.update(std::string_view("\0", 1));
  hasher.update(compression_name(request.source.compression));
  hasher.update(std::string_view("\0", 1));
  const detail::ShardSource& source = request.source;
  hasher.update(source.validator.empty() ? source.indexed_as : source.validator);
  return to_string(hasher.digest());
}

CachedShard CacheAccess::get(ShardCache& cache, const CacheRequest& request,
                             const NextUseOf& next_use) {
  const std::string name = name_of(request);
  if (auto shard = cache.impl_->find(request, name)) {
    if (!request.was_followed) cache.impl_->counts.add([](ShardCache::Stats& s) { ++s.hits; });
    if (!cache.is_read_only()) cache.impl_->room.trim_once(name, next_use);
    cache.impl_->counts.write_if_due();
    return *std::move(shard);
  }
  if (!request.was_followed) cache.impl_->counts.add([](ShardCache::Stats& s) { ++s.misses; });
  if (cache.is_read_only()) throw_not_there(request, cache.options());
  struct Stopwatch {
    ShardCache::Impl& impl;
    const Clock::time_point start = Clock::now();
    ~Stopwatch() {
      impl.counts.add([&](ShardCache::Stats& s) { s.waited += Clock::now() - start; });
    }
  } stopwatch{*cache.impl_};

  ByteLock lock = cache.impl_->locks.lock_fetch(request, name);
  // The previous holder of the lock has probably fetched the shard.
  if (auto shard = cache.impl_->find(request, name)) return *std::move(shard);
  // Otherwise, a thread of this process may have spent the whole retry budget while this thread
  // waited. Report that thread's error.
  if (const auto error = cache.impl_->failures.since(stopwatch.start, name)) {
    std::rethrow_exception(error);
  }
  // If another version of the shard is in use under the same name, that version stays. In this case
  // do not read single samples from the source. The source gave both versions the same validator,
  // so a sample could be of either version. A whole shard is checked for its version.
  const bool is_free =
      cache.impl_->room.evict_stale(lock, request, name, cache.impl_->options.room_timeout);
  const auto fetch = cache.impl_->begin_fetch(std::move(lock), request, name, next_use);
  if (!is_free) {
    fetch->make_overflow_file();
  } else if (!fetch->find_room()) {
    cache.impl_->counts.add([](ShardCache::Stats& s) { ++s.bypassed; });
    return {};
  }
  return fetch->run();
}

Followed CacheAccess::follow(ShardCache& cache, const CacheRequest& request,
                             const NextUseOf& next_use, bool may_begin) {
  ShardCache::Impl& impl = *cache.impl_;
  const std::string name = name_of(request);
  Followed followed;
  const auto find = [&] {
    followed.coming = impl.readers.find_coming(name);
    if (!followed.coming) return false;
    followed.held = impl.pin(request, name);
    impl.counts.add([](ShardCache::Stats& s) { ++s.misses; });
    return true;
  };
  const auto is_there = [&] { return find_size(impl.directory.shard_path(name)).has_value(); };
  if (find() || !may_begin || is_there()) return followed;
  auto lock = impl.locks.try_lock_fetch(name);
  if (!lock || is_there()) {
    find();
    return followed;
  }
  auto begun = impl.begin_fetch(*std::move(lock), request, name, next_use);
  if (!begun->coming || begun->make_room(Urgency::kPolite) != Room::kMade) return followed;
  impl.counts.add([](ShardCache::Stats& s) { ++s.misses; });
  followed.coming = begun->coming.shard;
  followed.held = impl.pin(request, name);
  followed.fetch.emplace(ShardFetch(std::move(begun)));
  return followed;
}

bool CacheAccess::is_there(const ShardCache& cache, const std::string& name) {
  return find_size(cache.impl_->directory.shard_path(name)).has_value();
}

void CacheAccess::add_wait(ShardCache& cache, std::chrono::nanoseconds waited) {
  cache.impl_->counts.add([&](ShardCache::Stats& s) { s.waited += waited; });
}

std::optional<Note> CacheAccess::note_of(const CachedShard& shard) {
  if (!shard.is_pinned() || shard.is_overflow()) return std::nullopt;
  const CacheDirectory& directory = shard.pin_->cache->directory;
  const auto record = directory.read_record(shard.name()).record;
  if (!record) return std::nullopt;
  return directory.read_note(shard.name(), record->hash);
}

void CacheAccess::write_note(const CachedShard& shard, std::string_view bytes) {
  if (!shard.is_pinned() || shard.is_overflow()) return;
  const ShardCache::Impl& cache = *shard.pin_->cache;
  const auto record = cache.directory.read_record(shard.name()).record;
  if (record) cache.write_note(shard.name(), record->hash, bytes);
}

Ahead CacheAccess::begin_ahead(ShardCache& cache, const CacheRequest& request,
                               std::uint64_t needed_at, const NextUseOf& next_use,
                               std::optional<ShardFetch>& fetch) {
  const std::string name = name_of(request);
  if (cache.is_read_only()) return Ahead::kPresent;  // a read-only cache cannot fetch
  if (const auto shard = cache.impl_->find(request, name)) {
    cache.impl_->room.trim_once(name, next_use);
    return Ahead::kPresent;
  }
  auto lock = cache.impl_->locks.try_lock_fetch(name);
  // The holder of the lock may not have found room yet. It takes precedence, so this fetch ahead
  // must not take the room.
  if (!lock) return cache.impl_->room.has_room(name) ? Ahead::kPresent : Ahead::kNotNow;
  if (cache.impl_->find(request, name)) return Ahead::kPresent;
  if (!cache.impl_->room.evict_stale(*lock, request, name, milliseconds::zero()))
    return Ahead::kNotNow;
  auto begun = cache.impl_->begin_fetch(*std::move(lock), request, name, next_use);
  const Room made = begun->make_room(Urgency::kAhead, needed_at);
  if (made != Room::kMade) return Ahead::kNotNow;
  fetch.emplace(ShardFetch(std::move(begun)));
  return Ahead::kFetch;
}

void CacheAccess::trim_overrun(ShardCache& cache, const NextUseOf& next_use) {
  cache.impl_->room.trim_overrun(next_use);
}

void CacheAccess::add_releaser(ShardCache& cache, std::weak_ptr<void> owner, Releaser releaser) {
  cache.impl_->readers.add_releaser(std::move(owner), std::move(releaser));
}

}  // namespace detail

std::string ShardCache::metrics() const { return impl_->counts.metrics(); }

ShardCache::Stats ShardCache::stats() const { return impl_->counts.stats(); }

}  // namespace shardwise
