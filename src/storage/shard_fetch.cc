#include <fcntl.h>

#include <algorithm>

#include "base/counted.h"
#include "base/expanding_reader.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/mapped_file.h"
#include "base/mapped_read.h"
#include "base/own_directory.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "storage/backoff.h"
#include "storage/cache_request.h"
#include "storage/cache_state.h"
#include "storage/coming_shard.h"
#include "storage/fetch_failure.h"
#include "storage/range_download.h"

namespace shardwise {

using detail::ComingShard;
using detail::kCachePieceBytes;
using detail::Pause;

// How a shard enters the cache: the steps of ShardFetch::Impl::run(). The fetch byte and a shared
// lock on the use byte are held during all steps (see shard_cache.cc).
//
//   step                        files afterwards             if the process is killed afterwards
//   make_file(), with the room  <name>.tar.<random>.tmp,     the file is unlocked; the next process
//     byte locked               locked, of its full size     that makes room removes it
//   transfer(), check           the same, with its bytes     the same
//   write_record(), note        + <name>.json, <name>.note   the next process that opens the cache
//                                                             also removes the record and the note
//   sync(), without the room    the same                     the same
//     byte, because it is slow
//   rename, with the room byte  <name>.tar + both            the shard is complete
//     locked
//   sync of the directory       the same                     the same
//
// The record is written before the rename, so that no process finds a shard with an unknown hash.
// The bytes are synced before the rename, so that the final name never refers to missing bytes.
//
// If a step throws, the members of ShardFetch::Impl are destroyed in reverse order: the temporary
// file, the fetch byte, the use byte. A thread that waits for the fetch byte therefore finds no
// trace of the failed attempt.
//
// While an uncompressed shard is fetched, readers of this process may map the temporary file and
// read the bytes that have arrived (ComingShard). Each byte is therefore written only once. If the
// transfer restarts after a reader mapped the file, renew_file() replaces the temporary file.
//
// A fetch outside the budget ends after the check. Its shard remains the temporary file, without a
// final name or a record. The file stays locked until the CachedShard is destroyed, and is then
// deleted.

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A caller waits for room at most this many times room_timeout, even if other fetches keep
/// running.
constexpr int kMaxRoomTimeouts = 10;

constexpr std::uint64_t kWriteBackBytes = std::uint64_t{8} << 20;
/// If the source does not report the shard's size, room is made in steps of this many bytes.
constexpr std::uint64_t kGrowBytes = std::uint64_t{64} << 20;
/// Upper bound of a record's size on disk.
constexpr std::uint64_t kRecordBytes = std::uint64_t{16} << 10;

/// A shard smaller than this is fetched by one request, because several requests would cost more
/// than they gain.
constexpr std::uint64_t kMinPartedBytes = std::uint64_t{32} << 20;

/// True if fetching again may return other bytes. These errors may be caused by a proxy's page or
/// by bytes that changed in transit.
bool may_be_wrong_bytes(ErrorCode code) noexcept {
  return code == ErrorCode::kStaleIndex || code == ErrorCode::kCorruptShard ||
         code == ErrorCode::kMismatch || code == ErrorCode::kUnsupported;
}

}  // namespace

/// Appends received bytes to a file and hashes them. Makes the kernel begin write-back.
class FileSink : public Fetcher::Sink {
 public:
  using Grow = std::function<void(std::uint64_t size_bytes)>;
  FileSink(File& file, Grow grow) : file_(&file), grow_(std::move(grow)) {}
  /// @param coming  receives the ranges that have arrived, until the transfer restarts.
  /// @param renew   creates the file for a restarted transfer, if a reader has mapped the first
  ///   file.
  FileSink(File& file, Grow grow, ComingShard& coming, std::function<File&()> renew)
      : file_(&file), grow_(std::move(grow)), coming_(&coming), renew_(std::move(renew)) {}

  void write(std::string_view bytes) override {
    if (grow_) grow_(size_ + bytes.size());
    write_part(size_, bytes);
    add(bytes);
  }
  /// Writes bytes at any offset. Threads: several concurrently, but not while write() runs.
  void write_part(std::uint64_t offset, std::string_view bytes) {
    file_->write_at(offset, bytes);
    if (coming_ != nullptr) coming_->came(offset, offset + bytes.size());
    SHARDWISE_FAULT_POINT("shard_cache.written");
  }
  /// Hashes and counts all bytes before `end`. REQUIRES: write_part() has written them.
  void advance(std::uint64_t end) {
    std::string piece;
    while (size_ < end) {
      piece.resize(std::min<std::uint64_t>(end - size_, kCachePieceBytes));
      piece.resize(file_->read_at(size_, piece.data(), piece.size()));
      if (piece.empty()) {
        throw Error(ErrorCode::kIo, "the temporary file was truncated while it was written",
                    in_quotes(file_->path()),
                    "run again, and let no other program change the cache's files");
      }
      add(piece);
    }
  }
  /// The bytes that readers are waiting for, most urgent first.
  std::vector<std::uint64_t> wanted() const {
    return coming_ == nullptr ? std::vector<std::uint64_t>() : coming_->wanted();
  }
  bool restart() override {
    if (coming_ != nullptr && std::exchange(coming_, nullptr)->end(false)) file_ = &renew_();
    size_ = written_back_ = 0;
    hasher_ = Hasher128();
    return true;
  }

  std::uint64_t size_bytes() const noexcept { return size_; }
  Hash128 hash() const noexcept { return hasher_.digest(); }

 private:
  void add(std::string_view bytes) {
    hasher_.update(bytes);
    size_ += bytes.size();
    if (size_ - written_back_ >= kWriteBackBytes) {
      // Start write-back now, so that the sync at the end is short.
      ::sync_file_range(file_->fd(), static_cast<off_t>(written_back_),
                        static_cast<off_t>(size_ - written_back_), SYNC_FILE_RANGE_WRITE);
      written_back_ = size_;
    }
  }

  File* file_;
  const Grow grow_;
  ComingShard* coming_ = nullptr;
  const std::function<File&()> renew_;
  Hasher128 hasher_;
  std::uint64_t size_ = 0;
  std::uint64_t written_back_ = 0;
};

Fetcher::Request ShardFetch::Impl::source_request() const {
  return {.url = request.source.url,
          .validator = request.source.validator,
          .cancel = request.cancel,
          .retry_for = retry_for};
}

std::uint64_t ShardFetch::Impl::size_wanted() const {
  const ShardSource& source = request.source;
  if (source.size_bytes) return *source.size_bytes;
  if (source.compression != Compression::kNone) return 0;
  if (source.source_bytes) return *source.source_bytes;
  if (!is_fetched_url(source.url)) return file_identity(source.url).size_bytes;
  return cache->fetchers->stat(source_request()).size_bytes.value_or(0);
}

Room ShardFetch::Impl::make_room(Urgency urgency, std::uint64_t needed_at, bool may_overflow) {
  detail::CacheRoom::Wanted room = wanted(reserved_bytes);
  room.urgency = urgency;
  room.needed_at = needed_at;
  room.may_overflow = may_overflow;
  return cache->room.make(room, [&](bool makes_overflow) {
    is_overflow = makes_overflow;
    make_file();
  });
}

bool ShardFetch::Impl::find_room() {
  const auto may_read_uncached = [&] {
    return request.may_read_uncached && request.may_read_uncached();
  };
  Pause pause;
  const auto start = Clock::now();
  auto last_running = start;
  for (Urgency stage = Urgency::kPolite;;) {
    request.cancel.throw_if_cancelled();
    try {
      if (make_room(stage) == Room::kNone) {
        // A process has at most one shard outside the budget, unless samples cannot be read
        // uncached.
        if (!overflow) overflow = cache->readers.overflows.add_up_to(1);
        if (!overflow && may_read_uncached()) return false;
        if (!overflow) overflow = cache->readers.overflows.add();
        make_room(stage, 0, true);
      }
    } catch (const Error& e) {
      // The disk is full and no shard may be evicted. Single samples can still be read from the
      // source.
      if (e.code() != ErrorCode::kNoSpace || !may_read_uncached()) throw;
      return false;
    }
    if (file) break;
    pause();
    const auto now = Clock::now();
    const milliseconds timeout = cache->options.room_timeout;
    if (!cache->readers.fetches.is_zero() && now - start < kMaxRoomTimeouts * timeout)
      last_running = now;
    stage = next_stage(now - start, now - last_running, timeout);
  }
  if (!is_overflow) overflow.reset();  // room was found within the budget after all
  return true;
}

void ShardFetch::Impl::make_overflow_file() {
  overflow = cache->readers.overflows.add();
  is_overflow = true;
  make_file();
  cache->room.ledger.doubt();
}

std::unique_ptr<AtomicFile> ShardFetch::Impl::new_file() const {
  auto made = std::make_unique<AtomicFile>(cache->directory.shard_path(name), 0600);
  share_as_folder(made->file());
  detail::CacheDirectory::note_source(made->file(), redacted_url(request.source.url));
  return made;
}

void ShardFetch::Impl::make_file() {
  uncounted.reset(&cache->room.ledger);
  auto made = new_file();
  SHARDWISE_FAULT_POINT("shard_cache.temporary_made");
  made->file().reserve(reserved_bytes);
  file = std::move(made);
}

/// Continues in a new file, so that the bytes of the mapped file do not change.
File& ShardFetch::Impl::renew_file() {
  cache->room.ledger.doubt();
  auto made = new_file();
  cache->room.with_disk_space(wanted(reserved_bytes),
                              [&] { made->file().reserve(reserved_bytes); });
  file = std::move(made);
  return file->file();
}

void ShardFetch::Impl::grow(std::uint64_t size_bytes) {
  if (size_bytes <= reserved_bytes) return;
  if (request.source.size_bytes) {
    throw StaleIndex("the shard is longer than when it was indexed",
                     in_quotes(redacted_url(request.source.url)) + " (" +
                         counted(*request.source.size_bytes, "byte") + " when indexed)",
                     "run " + spelled("`shardwise index` again"));
  }
  const std::uint64_t more = std::max(size_bytes - reserved_bytes, kGrowBytes);
  const auto grow_file = [&](bool) { file->file().reserve(reserved_bytes + more); };
  if (is_overflow) {
    const auto room = cache->locks.lock_room(request.cancel);
    cache->room.ledger.change([&] {
      grow_file(true);
      return static_cast<std::int64_t>(more);
    });
  } else {
    cache->room.require_within_budget(request, size_bytes);
    // The ledger already counts the temporary file at its present size, so ask only for the growth.
    is_overflow = cache->room.make(wanted(more), grow_file) != Room::kMade;
  }
  reserved_bytes += more;
}

void ShardFetch::Impl::cut(std::uint64_t size_bytes) {
  if (size_bytes == reserved_bytes) return;
  const auto room = cache->locks.lock_room(request.cancel);
  cache->room.ledger.change([&] {
    file->file().resize(size_bytes);
    return static_cast<std::int64_t>(size_bytes - reserved_bytes);
  });
  reserved_bytes = size_bytes;
}

void ShardFetch::Impl::require_source_hash(const Hash128& hash) const {
  if (!request.source.source_hash || *request.source.source_hash == hash) return;
  throw StaleIndex("the fetched bytes differ from the indexed ones",
                   in_quotes(redacted_url(request.source.url)) + " (hash " + to_string(hash) +
                       ", not " + to_string(*request.source.source_hash) + ")",
                   "fetch the shard again; if the shard changed at its source, run " +
                       spelled("`shardwise index` again"));
}

void ShardFetch::Impl::require_size(std::optional<std::uint64_t> wanted,
                                    std::uint64_t size_bytes) const {
  if (!wanted || *wanted == size_bytes) return;
  throw StaleIndex("the shard's length differs from its length when indexed",
                   in_quotes(redacted_url(request.source.url)) + " (" +
                       counted(size_bytes, "byte") + " now, " + human_count(*wanted) +
                       " when indexed)",
                   "run " + spelled("`shardwise index` again"));
}

/// Fetches the file with several concurrent requests, if it is large and the server supports that.
/// Returns nullopt if the file must be fetched by one request instead.
std::optional<std::string> ShardFetch::Impl::fetch_parts(Fetcher::Request asked, FileSink& sink) {
  const auto size_bytes = request.source.source_bytes;
  const Fetchers::Options& how = cache->fetchers->options();
  int num_connections = how.max_connections_per_shard;
  if (how.max_connections_per_host > 0) {
    num_connections = std::min(num_connections, how.max_connections_per_host);
  }
  if (!size_bytes || *size_bytes < kMinPartedBytes || num_connections < 2 || is_one_stream) {
    return std::nullopt;
  }
  is_one_stream = true;  // takes effect if the fetch is restarted
  const Fetcher::Stat found = cache->fetchers->stat(asked);
  if (!found.has_ranges || found.validator.empty() || found.size_bytes != *size_bytes) {
    return std::nullopt;
  }
  asked.validator = found.validator;
  try {
    download_ranges({.fetchers = *cache->fetchers,
                     .request = asked,
                     .size_bytes = *size_bytes,
                     .num_connections = num_connections,
                     .write = [&](std::uint64_t offset,
                                  std::string_view bytes) { sink.write_part(offset, bytes); },
                     .advance = [&](std::uint64_t end) { sink.advance(end); },
                     .wanted = [&] { return sink.wanted(); }});
  } catch (const BadPart&) {
    sink.restart();
    return std::nullopt;
  }
  return found.validator;
}

/// Fetches the file as it is stored at the source, without expanding it.
ShardFetch::Impl::Source ShardFetch::Impl::fetch_to(FileSink& sink) {
  const Fetcher::Request asked = source_request();
  std::optional<std::string> validator = fetch_parts(asked, sink);
  if (!validator) validator = cache->fetchers->fetch(asked, sink).validator;
  require_source_hash(sink.hash());
  require_size(request.source.source_bytes, sink.size_bytes());
  return {sink.size_bytes(), sink.hash(), *std::move(validator)};
}

void ShardFetch::Impl::expand(FileSink& sink, std::string_view compressed,
                              const std::string& shown) {
  ExpandingReader reader(compressed, request.source.compression, shown);
  std::string piece(kCachePieceBytes, '\0');
  while (const std::size_t n = reader.read(piece.data(), piece.size())) {
    request.cancel.throw_if_cancelled();
    sink.write(std::string_view(piece).substr(0, n));
  }
}

ShardFetch::Impl::Source ShardFetch::Impl::transfer(FileSink& sink) {
  if (!request.source.local_copy.empty() || !is_fetched_url(request.source.url))
    return copy_local(sink);
  return request.source.compression == Compression::kNone ? fetch_to(sink) : fetch_compressed(sink);
}

ShardFetch::Impl::Source ShardFetch::Impl::fetch_compressed(FileSink& sink) {
  // The compressed file does not count against the budget, but the disk must have room for it.
  AtomicFile stored(cache->directory.shard_path(name), 0600);
  share_as_folder(stored.file());
  std::uint64_t stored_bytes = 0;
  const auto add = [&](std::uint64_t more) {
    cache->room.with_disk_space(wanted(more), [&] {
      SHARDWISE_FAULT_POINT("shard_cache.stored");
      stored.file().reserve(stored_bytes + more);
    });
    stored_bytes += more;
  };
  if (request.source.source_bytes) add(*request.source.source_bytes);
  FileSink to(stored.file(), [&](std::uint64_t size_bytes) {
    if (size_bytes <= stored_bytes) return;
    add(std::max<std::uint64_t>(size_bytes - stored_bytes, kCachePieceBytes));
  });
  Source source = fetch_to(to);
  stored.file().resize(source.size_bytes);
  const MappedFile map = MappedFile::open(stored.temporary_path(), MappedFile::Access::kSequential);
  expand(sink, map.bytes(), redacted_url(request.source.url));
  return source;
}

/// Reads a source on this machine: a local shard, or the local copy of a remote shard.
ShardFetch::Impl::Source ShardFetch::Impl::copy_local(FileSink& sink) {
  const bool is_copy = !request.source.local_copy.empty();
  const std::string& path = is_copy ? request.source.local_copy : request.source.url;
  const MappedFile map = MappedFile::open(path, MappedFile::Access::kSequential);
  Source source{map.bytes().size(), {}, request.source.validator};
  if (!is_copy) {
    source.validator = local_validator(map.identity().size_bytes, map.identity().mtime_ns);
    if (!request.source.validator.empty() && source.validator != request.source.validator) {
      throw_changed_at_source(path, request.source.validator, source.validator);
    }
  }
  const MappedReadGuard guard(map.bytes().data(), map.bytes().size());
  // If the file changes while it is read, any error may follow. Report the change as the cause.
  const auto require_whole = [&] {
    if (!guard.damaged() && file_identity(path) == map.identity()) return;
    throw StaleIndex("the shard changed while it was read", in_quotes(path),
                     "run " + spelled("`shardwise index` again"));
  };
  try {
    source.hash = hash128(map.bytes());
    require_source_hash(source.hash);
    if (request.source.compression == Compression::kNone) {
      for (std::size_t at = 0; at < map.bytes().size(); at += kCachePieceBytes) {
        request.cancel.throw_if_cancelled();
        sink.write(map.bytes().substr(at, kCachePieceBytes));
      }
    } else {
      expand(sink, map.bytes(), path);
    }
  } catch (const Error&) {
    require_whole();
    throw;
  }
  require_whole();
  return source;
}

ShardFetch::Impl::Source ShardFetch::Impl::fetch_checked(FileSink& sink) {
  const Fetcher::Request asked = source_request();
  for (Backoff backoff(cache->fetchers->options(), asked);;) {
    try {
      Source source = transfer(sink);
      require_size(request.source.size_bytes, sink.size_bytes());
      cut(sink.size_bytes());
      if (request.admission.check) request.admission.check(file->temporary_path());
      cache->counts.add([&](ShardCache::Stats& s) {
        ++s.fetched;
        s.fetched_bytes += source.size_bytes;
      });
      return source;
    } catch (const Error& e) {
      if (may_be_wrong_bytes(e.code())) cache->counts.add([](ShardCache::Stats& s) { ++s.wrong; });
      const bool is_fetched =
          request.source.local_copy.empty() && is_fetched_url(request.source.url);
      if (!is_fetched || !may_be_wrong_bytes(e.code()) || !backoff.wait_after_wrong(e.what())) {
        throw;
      }
      sink.restart();
    }
  }
}

CachedShard ShardFetch::Impl::run() {
  const auto running = cache->readers.fetches.add();
  struct Metrics {
    detail::CacheCounts& counts;
    ~Metrics() { counts.write_if_due(); }
  } const metrics{cache->counts};
  try {
    request.cancel.throw_if_cancelled();
    CachedShard shard = run_once();
    cache->failures.forget(name);
    return shard;
  } catch (const FetchError&) {
    cache->failures.add(name);
    throw;
  }
}

CachedShard ShardFetch::Impl::run_once() {
  const auto grow_file = [this](std::uint64_t size_bytes) { grow(size_bytes); };
  std::optional<FileSink> to;
  if (coming && !is_overflow) {
    coming->begin(file->file());
    to.emplace(file->file(), grow_file, *coming, [this]() -> File& { return renew_file(); });
  } else {
    if (coming) coming->end(false);
    to.emplace(file->file(), grow_file);
  }
  const Source source = fetch_checked(*to);
  SHARDWISE_FAULT_POINT("shard_cache.checked");
  return is_overflow ? keep_outside_budget() : keep_in_cache(source, *to);
}

CachedShard ShardFetch::Impl::keep_outside_budget() {
  cache->counts.add([](ShardCache::Stats& s) { ++s.bypassed; });
  pinned.path_ = file->temporary_path();
  pinned.pin_->overflow_file = std::move(file);
  // The shard outgrew the budget during the fetch.
  if (!overflow) overflow = cache->readers.overflows.add();
  pinned.pin_->overflow = std::move(overflow);
  static_cast<void>(uncounted.release());
  return std::move(pinned);
}

CachedShard ShardFetch::Impl::keep_in_cache(const Source& source, const FileSink& sink) {
  const detail::CacheDirectory& directory = cache->directory;
  struct NewRecord {
    const detail::CacheDirectory& directory;
    const std::string& name;
    bool stays = false;
    ~NewRecord() {
      if (stays) return;
      directory.remove_record(name);
      directory.remove_note(name);
    }
  } new_record{directory, name};
  const ShardCache::Impl::Record record{
      .url = redacted_url(request.source.url),
      .validator = source.validator,
      .compression = std::string(compression_name(request.source.compression)),
      .source_bytes = source.size_bytes,
      .source_hash = source.hash,
      .size_bytes = sink.size_bytes(),
      .hash = sink.hash(),
      .checked_as = request.admission.checked_as,
      .quick_check = detail::CacheDirectory::quick_check_of(file->file())};
  cache->room.with_disk_space(wanted(kRecordBytes), [&] {
    SHARDWISE_FAULT_POINT("shard_cache.record");
    directory.write_record(name, record);
  });
  if (request.admission.make_note)
    cache->write_note(name, sink.hash(), request.admission.make_note());
  SHARDWISE_FAULT_POINT("shard_cache.before_sync");
  directory.publish(file->file());
  file->file().sync();
  SHARDWISE_FAULT_POINT("shard_cache.before_rename");
  {
    // Hold the room byte, so that a process that counts files finds the shard under exactly one
    // name.
    const auto room = cache->locks.lock_room(request.cancel);
    cache->room.ledger.change([&] {
      file->keep_as(pinned.path());
      return 0;
    });
    static_cast<void>(uncounted.release());
    new_record.stays = true;
  }
  if (coming) coming->end(true);
  SHARDWISE_FAULT_POINT("shard_cache.named");
  sync_directory_of(pinned.path());
  file.reset();
  detail::touch(pinned.path());
  return std::move(pinned);
}

}  // namespace shardwise
