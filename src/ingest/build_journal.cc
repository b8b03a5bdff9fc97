#include "ingest/build_journal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/own_directory.h"
#include "base/private_file.h"
#include "index/rows.h"
#include "ingest/quick_check.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

// The journal's content on disk, at whatever time the build is killed:
//
//   journal | header | record | record | perhaps a part of the next
//                                      ^ end_
//
// The file is never synced. After a power cut, reading stops at the first record whose hash does
// not match. A segment whose checksum does not match is ignored. The shards of such records are
// scanned again.
//
// find() runs on the scanning threads, concurrently with add(). It reads only records before the
// value that end_ had after construction, and add() writes only after that position.

namespace {

constexpr std::string_view kMagic("SDWJRN5\n", 8);
constexpr std::string_view kMagicOfAll = kMagic.substr(0, 6);  // common to all versions
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kRecordHeaderBytes = 24;

void put(std::string& out, std::uint64_t value) {
  char bytes[8];
  store_le64(bytes, value);
  out.append(bytes, sizeof bytes);
}

// Parse rows with all checks although their hashes match, because an attacker who writes the file
// can also write matching hashes.
[[noreturn]] void throw_truncated() { throw CorruptIndex("a journal record is truncated"); }

std::uint64_t take_u64(std::string_view& bytes) {
  if (bytes.size() < 8) throw_truncated();
  const std::uint64_t value = load_le64(bytes.data());
  bytes.remove_prefix(8);
  return value;
}

template <class Row>
Row take_row(std::string_view& bytes) {
  const auto cells = unpack(to_cells(Row{}), bytes);
  if (!cells) throw_truncated();
  return from_cells<Row>(*cells);
}

/// Errors: CorruptIndex if the file ends before `offset + size`.
std::string read_bytes(const File& file, std::uint64_t offset, std::uint64_t size) {
  if (!range_fits(offset, size, file_identity(file.fd(), file.path()).size_bytes)) {
    throw_truncated();
  }
  std::string bytes(size, '\0');
  if (file.read_at(offset, bytes.data(), size) != size) throw_truncated();
  return bytes;
}

/// @param sizes  the record's first two numbers, in stored form.
std::uint64_t record_hash(std::string_view row, std::string_view sizes, std::uint64_t offset) {
  return hash64(row, hash64(sizes, offset));
}

/// True if the file may be a build's journal. It then begins with `magic`, or ends inside `magic`,
/// or begins with zeros, as after a power cut.
bool is_journal(const std::string& path, std::string_view magic) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ignored))) {
    return false;
  }
  const File file = File::open_read(path);
  std::string begin(magic.size(), '\0');
  begin.resize(file.read_at(0, begin.data(), begin.size()));
  return magic.starts_with(begin) || begin.find_first_not_of('\0') == std::string::npos;
}

/// True if the file belongs to another user. Such a file is not read, because its owner could
/// determine the index's content. It is not replaced either.
bool is_of_another(const std::string& path) {
  struct stat status {};
  return ::lstat(c_path(path), &status) == 0 && status.st_uid != ::geteuid();
}

std::string journal_path(const std::string& index_path) { return index_path + ".journal"; }

/// True if the shard is remote, or if its first 512 bytes match the row. Equal times prove nothing,
/// because many tools set file times.
bool begins_alike(const Index::Shard& row, const Rescan& now) {
  if (now.place.remote != nullptr) return true;
  const File file = File::open_read(now.place.path);
  return !difference_at_start(row, reader_of(file));
}

}  // namespace

bool has_journal(const std::string& path) try {
  const std::string journal = journal_path(behind_links(path));
  if (is_of_another(journal) || !is_journal(journal, kMagic)) return false;
  // A file without records, e.g. after a full disk, is useless.
  return read_bytes(File::open_read(journal), 0, kHeaderBytes + kRecordHeaderBytes)
      .starts_with(kMagic);
} catch (const Error&) {
  return false;  // an unreadable journal cannot be continued
}

BuildJournal::BuildJournal(const std::string& index_path, std::uint64_t options_hash, Pace pace)
    : path_(journal_path(index_path)), options_hash_(options_hash), pace_(pace) {
  try {
    open_existing();
  } catch (const Error&) {
    found_.clear();
    if (!file_) is_enabled_ = false;  // a file that cannot be opened is not written either
  }
}

void BuildJournal::open_existing() {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path_, ignored))) return;
  if (is_of_another(path_) || !is_journal(path_, kMagicOfAll)) {
    is_enabled_ = false;
    return;
  }
  File file = pace_.is_read_only ? File::open_read(path_) : File::open_or_create(path_, 0600);
  if (!pace_.is_read_only) {
    if (file.try_lock() != FileLock::kTaken) {
      is_enabled_ = false;
      return;
    }
    if (!file.has_name()) return;  // the build that held the lock removed the file
  }
  file_ = std::move(file);
  // If other users may have written the file, ignore its records; flush() then starts the file
  // anew.
  if (!may_be_written_by_others(*file_)) read_records();
}

void BuildJournal::read_records() {
  const std::uint64_t file_bytes = file_identity(file_->fd(), path_).size_bytes;
  if (file_bytes < kHeaderBytes) return;
  const std::string header = read_bytes(*file_, 0, kHeaderBytes);
  if (!header.starts_with(kMagic)) {
    // Versions before 5 of the journal kept their table in a second file. Remove that file.
    const bool is_earlier = header.starts_with(kMagicOfAll) && !pace_.is_read_only;
    if (is_earlier) ::unlink((path_ + ".table").c_str());
    return;
  }
  if (load_le64(header.data() + kMagic.size()) != options_hash_) return;
  end_ = kHeaderBytes;
  while (read_record(file_bytes)) {
  }
}

/// Reads the record at `end_`. Returns false at the end of the file, or if the record is damaged.
bool BuildJournal::read_record(std::uint64_t file_bytes) {
  if (!range_fits(end_, kRecordHeaderBytes, file_bytes)) return false;
  const std::string header = read_bytes(*file_, end_, kRecordHeaderBytes);
  Record record{.row = {},
                .offset = end_ + kRecordHeaderBytes,
                .row_bytes = load_le64(header.data()),
                .segment_bytes = load_le64(header.data() + 8)};
  if (!range_fits(record.offset, record.row_bytes, file_bytes)) return false;
  const std::uint64_t behind_row = record.offset + record.row_bytes;
  if (!range_fits(behind_row, record.segment_bytes, file_bytes)) return false;
  const std::string row = read_bytes(*file_, record.offset, record.row_bytes);
  if (record_hash(row, std::string_view(header).substr(0, 16), end_) !=
      load_le64(header.data() + 16)) {
    return false;
  }
  std::string_view rest = row;
  record.row = take_row<Index::Shard>(rest);
  end_ = behind_row + record.segment_bytes;
  std::string url = record.row.url;
  found_.insert_or_assign(std::move(url), std::move(record));
  return true;
}

std::optional<ShardPart> BuildJournal::find(const Rescan& shard) const {
  const auto it = found_.find(shard.url);
  if (it == found_.end() || !same_state(it->second.row, shard)) return std::nullopt;
  try {
    if (!begins_alike(it->second.row, shard)) return std::nullopt;
    return read(it->second);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Errors: CorruptIndex if the record is damaged.
ShardPart BuildJournal::read(const Record& record) const {
  const std::string row = read_bytes(*file_, record.offset, record.row_bytes);
  std::string_view rest = row;
  ShardPart part;
  part.row = take_row<Index::Shard>(rest);
  for (std::uint64_t left = take_u64(rest); left > 0; --left) {
    part.skipped.push_back(take_row<Index::SkippedMember>(rest));
  }
  part.segment = read_bytes(*file_, record.offset + record.row_bytes, record.segment_bytes);
  std::string why;
  const auto view = SegmentView::check(part.segment, &why);
  if (!view) throw CorruptIndex(why);
  SegmentHeader header;
  std::memcpy(&header, part.segment.data(), sizeof header);
  if (header.checksum != part.row.segment_checksum) {
    throw CorruptIndex("the journal has the segment of another shard");
  }
  part.key_hashes = hash_keys(*view);
  part.fields = count_fields(*view);
  part.reused = part.resumed = true;
  return part;
}

void BuildJournal::add(const ShardPart& part) {
  if (!is_enabled_) return;
  std::string row;
  pack(to_cells(part.row), row);
  put(row, std::uint64_t{part.skipped.size()});
  for (const Index::SkippedMember& member : part.skipped) pack(to_cells(member), row);
  std::string sizes;
  put(sizes, std::uint64_t{row.size()});
  put(sizes, std::uint64_t{part.segment.size()});
  const std::uint64_t offset = (end_ == 0 ? kHeaderBytes : end_) + pending_.size();
  pending_ += sizes;
  put(pending_, record_hash(row, sizes, offset));
  pending_ += row;
  pending_ += part.segment;
  const bool is_due = std::chrono::steady_clock::now() - last_flush_ >= pace_.age;
  if (pending_.size() < pace_.bytes && !is_due) return;
  try {
    flush();
  } catch (const Error&) {
    is_enabled_ = false;
    pending_ = {};
  }
}

void BuildJournal::flush() {
  SHARDWISE_FAULT_POINT("journal.flush");
  if (!file_) {
    File file = File::open_or_create(path_, 0600);
    if (file.try_lock() != FileLock::kTaken || !file.has_name()) {
      is_enabled_ = false;
      pending_ = {};
      return;
    }
    file_ = std::move(file);
  }
  if (end_ == 0) {
    std::string header(kMagic);
    put(header, options_hash_);
    make_private(*file_);
    file_->resize(0);
    file_->write_at(0, header);
    end_ = kHeaderBytes;
  }
  file_->resize(end_);  // removes an incomplete record that a killed build left
  file_->write_at(end_, pending_);
  end_ += pending_.size();
  pending_.clear();
  last_flush_ = std::chrono::steady_clock::now();
  SHARDWISE_FAULT_POINT("journal.flushed");
}

void BuildJournal::remove() noexcept {
  if (file_) ::unlink(path_.c_str());
  file_.reset();
}

}  // namespace shardwise
