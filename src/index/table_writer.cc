#include "index/table_writer.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "index/rows.h"
#include "index/shard_hints.h"

namespace shardwise {
namespace {

// The sections of a table (docs/formats/index.md draws them) are written from front to back, each
// at offset_. The header is written last, although it comes first in the file:
//
//   constructor   | zeros     |
//   append()      | zeros     | segment 0 | segment 1 | ...
//   finish()      | zeros     | segments ...          | directory | hints | keys |
//                 | header    |
//   commit()      the same, synced, then renamed to <index>.<header checksum>.table
//
// Until the end of finish(), the header is zeros, so no reader accepts an unfinished file. The
// header has the checksums of all sections, and the file's name has the header's checksum. Tables
// of different content therefore have different names, so a new table never replaces another
// table in use. It may replace an old table of the same content that a concurrent build is about to
// remove; see replace_lock().
//
// Memory: 24 bytes per shard for the directory, and the bounded memory of KeySorter for the keys.

/// Number of steps of sorting between two checks of the cancel token. They take a few ms.
constexpr std::uint64_t kStepsBetweenLooks = 65'536;

/// Attempts to lock a table, about 1 ms apart. Other builds hold the lock for a few ms, unless they
/// are suspended.
constexpr int kLockTries = 5000;

constexpr std::uint64_t kWriteBackBytes = std::uint64_t{32} << 20;

template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

/// Finds repeated keys among pairs of a sample and its key's hash, in order of hash. The hashes may
/// be prefixes of the complete hashes. If several keys have the same hash, it reads these keys from
/// the segments and compares them.
class RepeatedKeys {
 public:
  RepeatedKeys(const std::string& path, const std::vector<ShardEntry>& directory,
               const UniqueKeys& unique, const CancelToken& cancel)
      : path_(path), directory_(directory), unique_(unique), cancel_(cancel) {}

  void see(std::uint64_t hash, std::uint64_t sample) {
    if (hash != hash_) {
      check_run();
      run_.clear();
    }
    hash_ = hash;
    run_.push_back(sample);
  }

  /// Throws if a key is repeated.
  void finish() {
    check_run();
    if (repeated_.num_repeated == 0) return;
    repeated_.first_segment = shard_of(repeated_.first);
    repeated_.second_segment = shard_of(repeated_.second);
    unique_.refuse(repeated_);
  }

 private:
  std::uint64_t shard_of(std::uint64_t sample) const {
    const auto behind = std::upper_bound(
        directory_.begin(), directory_.end(), sample,
        [](std::uint64_t s, const ShardEntry& entry) { return s < entry.first_sample; });
    return static_cast<std::uint64_t>(behind - directory_.begin()) - 1;
  }

  std::string_view key_of(std::uint64_t sample) {
    if (!table_) table_.emplace(MappedFile::open(path_));
    const ShardEntry* entry = &directory_[shard_of(sample)];
    const auto key = SegmentView::find_key(
        table_->bytes().substr(entry->segment_offset,
                               entry[1].segment_offset - entry->segment_offset),
        sample - entry->first_sample);
    if (!key)
      throw CorruptIndex("the table that is being written is damaged", in_quotes(path_),
                         "check the disk, then run again");
    return *key;
  }

  /// Counts the repeated keys of one hash. An attacker may choose many different keys with the same
  /// hash, so the keys are sorted instead of compared in pairs.
  void check_run() {
    if (run_.size() < 2) return;
    std::sort(run_.begin(), run_.end(), [this](std::uint64_t a, std::uint64_t b) {
      if (++num_compared_ % kStepsBetweenLooks == 0) cancel_.throw_if_cancelled();
      const int keys = key_of(a).compare(key_of(b));
      return keys != 0 ? keys < 0 : a < b;
    });
    std::uint64_t first = run_[0];
    for (const std::uint64_t sample : run_) {
      if (key_of(sample) != key_of(first)) {
        first = sample;
      } else if (sample != first && (unique_.in_segment || shard_of(sample) != shard_of(first)) &&
                 repeated_.num_repeated++ == 0) {
        repeated_.key = key_of(sample);
        repeated_.first = first;
        repeated_.second = sample;
      }
    }
  }

  const std::string path_;
  const std::vector<ShardEntry>& directory_;
  const UniqueKeys& unique_;
  const CancelToken& cancel_;
  std::uint64_t num_compared_ = 0;
  std::optional<MappedFile> table_;
  std::uint64_t hash_ = 0;
  std::vector<std::uint64_t> run_;  // samples whose key has this hash
  RepeatedKey repeated_;
};

std::uint64_t table_header_checksum(const TableHeader& header) noexcept {
  return hash64({reinterpret_cast<const char*>(&header), offsetof(TableHeader, header_checksum)});
}

TableWriter::TableWriter(const std::string& index_path)
    : index_path_(index_path), file_(index_path), keys_(index_path) {
  write_header();
}

void TableWriter::write_header() {
  file_.file().write_at(0, {reinterpret_cast<const char*>(&header_), sizeof header_});
}

/// Appends at offset_.
void TableWriter::write(std::string_view bytes) {
  file_.file().write_at(offset_, bytes);
  offset_ += bytes.size();
}

void TableWriter::append(std::string_view segment, const std::vector<std::uint64_t>& key_hashes) {
  for (std::size_t i = 0; i < key_hashes.size(); ++i)
    keys_.add(key_hashes[i], header_.num_samples + i);
  write_segment(segment);
}

void TableWriter::keep_keys(const TableView& old) {
  old_ = &old;
  kept_first_.assign(old.header().num_shards, KeptKeys::kGone);
}

void TableWriter::append_kept(std::uint64_t old_shard) {
  SHARDWISE_ASSERT(kept_first_[old_shard] == KeptKeys::kGone);
  kept_first_[old_shard] = header_.num_samples;
  const std::uint64_t before = header_.num_samples;
  write_segment(old_->segment_bytes(old_shard));
  num_kept_ += header_.num_samples - before;
}

std::uint64_t TableWriter::new_number(std::uint64_t old_sample) const noexcept {
  const std::uint64_t shard = old_->shard_of(old_sample);
  const std::uint64_t first = kept_first_[shard];
  return first == KeptKeys::kGone ? first
                                  : first + (old_sample - old_->directory()[shard].first_sample);
}

/// Adds the keys of all kept segments to keys_. Needed if the number of buckets changed, because an
/// entry then lacks bits of the key's hash.
void TableWriter::hash_kept(const CancelToken& cancel) {
  for (std::uint64_t shard = 0; shard < kept_first_.size(); ++shard) {
    if (kept_first_[shard] == KeptKeys::kGone) continue;
    cancel.throw_if_cancelled();
    const SegmentView segment = old_->segment(shard);
    for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
      keys_.add(hash64(segment.key(i)), kept_first_[shard] + i);
    }
  }
  num_kept_ = 0;
}

void TableWriter::write_segment(std::string_view segment) {
  SegmentHeader counts;
  std::memcpy(&counts, segment.data(), sizeof counts);
  directory_.push_back({offset_, header_.num_samples, header_.num_members});
  header_.num_samples += counts.num_samples;
  header_.num_members += counts.num_members;
  segments_hash_.update_u64(counts.checksum);
  write(segment);
  SHARDWISE_FAULT_POINT("table.segment_written");
}

void TableWriter::write_directory() {
  header_.num_shards = directory_.size();
  directory_.push_back({offset_, header_.num_samples, header_.num_members});
  header_.directory_offset = offset_;
  const std::string_view directory = bytes_of(directory_);
  write(directory);

  header_.hint_shift = hint_shift_for(header_.num_samples, header_.num_shards);
  header_.hint_offset = offset_;
  std::vector<std::uint32_t> hints = make_hints(directory_, header_.hint_shift);
  // Pads the hints, because the next section must be 8-byte aligned.
  if (hints.size() % 2 != 0) hints.push_back(hints.back());
  write(bytes_of(hints));
  header_.directory_checksum = hash64(bytes_of(hints), hash64(directory));
}

void TableWriter::finish(const UniqueKeys& unique, const CancelToken& cancel) {
  write_directory();
  if (num_kept_ > 0 && old_->keys().bucket_bits() != KeyHash::bucket_bits(header_.num_samples)) {
    hash_kept(cancel);
  }
  std::optional<KeptKeys> kept;
  if (num_kept_ > 0) {
    kept = {old_->keys(), num_kept_, [this](std::uint64_t sample) { return new_number(sample); }};
  }
  RepeatedKeys repeated(file_.temporary_path(), directory_, unique, cancel);
  std::uint64_t num_seen = 0;
  header_.keys_offset = offset_;
  const WrittenKeys written = write_keys(file_.file(), offset_, keys_, kept ? &*kept : nullptr,
                                         [&](std::uint64_t prefix, std::uint64_t sample) {
                                           if (++num_seen % kStepsBetweenLooks == 0)
                                             cancel.throw_if_cancelled();
                                           if (unique.refuse) repeated.see(prefix, sample);
                                         });
  if (unique.refuse) repeated.finish();
  header_.key_bucket_bits = written.bucket_bits;
  header_.keys_checksum = written.checksum;
  offset_ = written.end;
  std::memcpy(header_.magic, kTableMagic, sizeof header_.magic);
  header_.version = kIndexVersion;
  header_.file_bytes = offset_;
  header_.segments_checksum = segments_hash_.digest().low;
  header_.header_checksum = table_header_checksum(header_);
  write_header();
  path_ = table_of(index_path_, header_.header_checksum);
  // Written back here, in parts between which the build can be cancelled, because commit() cannot
  // be cancelled.
  for (std::uint64_t at = 0; at < offset_; at += kWriteBackBytes) {
    cancel.throw_if_cancelled();
    file_.file().write_back(at, kWriteBackBytes);
  }
}

std::string table_of(std::string_view index_path, std::uint64_t checksum) {
  return std::string(index_path) + "." + hash_cell(checksum).bytes + std::string(kTableSuffix);
}

namespace {

/// Locks the file at `path`, if it exists, so that no other build unlinks this path: sweep_tables()
/// unlinks a path only while it holds the file's lock. Returns nullopt if there is nothing to lock,
/// or if another process holds the lock for seconds.
std::optional<File> replace_lock(const std::string& path) {
  for (int i = 0; i < kLockTries; ++i) {
    try {
      File file = File::open_to_lock(path);
      const FileLock lock = file.try_lock();
      if (lock == FileLock::kUnsupported) return std::nullopt;
      if (lock == FileLock::kTaken && file.has_path()) return file;
    } catch (const Error&) {
      return std::nullopt;  // there is no such file, or it belongs to another user
    }
    SHARDWISE_FAULT_POINT("table.waits");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;  // the other process is suspended
}

}  // namespace

void TableWriter::commit() {
  file_.set_path(path_);
  {
    const std::optional<File> replaced = replace_lock(path_);
    file_.commit();
  }
  SHARDWISE_FAULT_POINT("table.committed");
}

}  // namespace shardwise
