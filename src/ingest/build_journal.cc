#include "ingest/build_journal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>
#include <variant>

#include "base/bytes.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/own_directory.h"
#include "base/private_file.h"
#include "index/offset_table.h"
#include "index/rows.h"
#include "ingest/glance.h"
#include "shardwise/base/hash.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

// This holds at every moment at which the build may be killed (the header draws both files):
//
//   table    | header room | segment | segment | segment | ...
//                                              ^ recorded_end_: records in the file say what lies
//                                                before it; the destructor cuts what lies behind
//   journal  | header | record | record | pending_ is not written yet
//                                       ^ end_
//
// A segment is written before its record (Assembly::append(), then add()), and a record names the
// hash of its payload, whose row holds the segment's checksum. So a record that passes its hash
// tells of bytes that were written. Nothing is synced: after a power cut hashes tell what is gone,
// and those shards are scanned again. Only the finished table is synced, by its commit().
//
// Order in flush(): the journal is made, locked and given its header; only then is the table given
// its lasting name (keep_as()), since a table without a journal would be of no use; then come the
// records. add_end() notes the table's final name before it is renamed: a build that is killed
// between the renames of table and catalogue leaves a table which nothing but the journal names.
//
// The lock on the journal's file lasts as long as this object. A build that does not get it has
// enabled_ = false: it reads nothing, writes nothing, and is otherwise whole. The lock on the table
// keeps sweeps from taking it for a stray temporary file.
//
// Threads: find() runs on the scanning threads while add() goes on. It reads records_ and by_url_,
// which change in the constructor and in begin_table() only. The segment that it reads may be
// overwritten meanwhile, where a shard before it was scanned anew: then the checksum fails.
//
// A journal is dropped whole if its magic or options_hash_ differs, and when the index is complete
// (remove()); one record is passed over if its shard changed or does not begin alike.

namespace {

constexpr std::string_view kMagic("SDWJRN4\n", 8);
constexpr std::string_view kMagicOfAll = kMagic.substr(0, 6);  // of every version
constexpr std::string_view kTableMagicOfAll(kTableMagic, sizeof kTableMagic);
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kRecordHeaderBytes = 16;

constexpr std::uint64_t kInTable = 0;
constexpr std::uint64_t kCarried = 1;
constexpr std::uint64_t kTableDone = 2;

void put(std::string& out, std::uint64_t value) {
  char bytes[8];
  store_le64(bytes, value);
  out.append(bytes, sizeof bytes);
}

// Payloads passed their hash. They are parsed with every check all the same: a hash is no proof
// against somebody who wrote the file.
[[noreturn]] void cut_short() { throw CorruptIndex("a journal record is too short"); }

std::uint64_t take_u64(std::string_view& payload) {
  if (payload.size() < 8) cut_short();
  const std::uint64_t value = load_le64(payload.data());
  payload.remove_prefix(8);
  return value;
}

template <class Row>
Row take_row(std::string_view& payload) {
  const auto cells = unpack(to_cells(Row{}), payload);
  if (!cells) cut_short();
  return from_cells<Row>(*cells);
}

std::string to_payload(const ShardPart& part, std::uint64_t kind, std::uint64_t table_offset) {
  std::string out;
  put(out, kind);
  put(out, table_offset);
  put(out, std::uint64_t{part.segment.size()});
  pack(to_cells(part.row), out);
  put(out, std::uint64_t{part.skipped.size()});
  for (const Index::SkippedMember& member : part.skipped) pack(to_cells(member), out);
  return out;
}

/// Reads all of it, or throws.
std::string read_bytes(const File& file, std::uint64_t offset, std::uint64_t size) {
  if (!range_fits(offset, size, file_identity(file.fd(), file.path()).size_bytes)) cut_short();
  std::string bytes(size, '\0');
  if (file.read_at(offset, bytes.data(), size) != size) cut_short();
  return bytes;
}

/// The row without what depends on the shard's place and name.
Index::Shard without_place(Index::Shard row) {
  row.number = 0;
  row.path.clear();
  row.first_sample = 0;
  return row;
}

/// True if the row is what the source's would be.
bool is_of(const Index::Shard& row, const Source& source) {
  if (const auto* const reuse = std::get_if<Reuse>(&source)) {
    return without_place(row) == without_place(reuse->row);
  }
  const auto& rescan = std::get<Rescan>(source);
  return row.url == rescan.url && is_same(row, rescan);
}

/// True if a build may have left the file: if it is empty, or begins with `magic` or with zeros, as
/// an unfinished table does, and what power loss cut.
bool looks_left(const std::string& path, std::string_view magic) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ignored))) {
    return false;
  }
  const File file = File::open_read(path);
  std::string begin(magic.size(), '\0');
  begin.resize(file.read_at(0, begin.data(), begin.size()));
  return begin == magic || begin.find_first_not_of('\0') == std::string::npos;
}

/// True if another user made the file. It is neither read, since its writer chose what the index
/// would say, nor replaced.
bool is_of_another(const std::string& path) {
  struct stat status {};
  return ::lstat(c_path(path), &status) == 0 && status.st_uid != ::geteuid();
}

std::string journal_path(const std::string& index_path) { return index_path + ".journal"; }

/// True if a local shard begins as it did when it had this row. There are many tools that set
/// times.
bool begins_alike(const Index::Shard& row, const Rescan& now) {
  if (now.place.remote != nullptr) return true;
  const File file = File::open_read(now.place.path);
  return !difference_at_start(row, reader_of(file));
}

}  // namespace

bool has_journal(const std::string& path) try {
  const std::string journal = journal_path(behind_links(path));
  return !is_of_another(journal) && looks_left(journal, kMagicOfAll);
} catch (const Error&) {
  return false;  // what cannot be read is not gone on with
}

BuildJournal::BuildJournal(const std::string& index_path, std::uint64_t options_hash, Pace pace)
    : index_path_(index_path),
      path_(journal_path(index_path)),
      table_path_(path_ + ".table"),
      options_hash_(options_hash),
      pace_(pace) {
  try {
    open_existing();
  } catch (const Error&) {
    cut(0);  // it cannot be read, so nothing of it is used
    by_url_.clear();
    if (!file_) enabled_ = false;  // it cannot be opened, so it is not written either
  }
}

BuildJournal::~BuildJournal() {
  if (!table_is_kept_ || table_->file().path() != table_path_) return;
  try {
    table_->file().resize(recorded_end_);
  } catch (const Error&) {
    // The next build cuts it. In a forked child the file is closed, and resizing it fails.
  }
}

void BuildJournal::open_existing() {
  const auto is_there = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
  };
  const bool has_journal = is_there(path_);
  if (!has_journal && !is_there(table_path_)) return;
  // One of them may be damaged, and is known by the other.
  if (is_of_another(path_) || is_of_another(table_path_) ||
      (!looks_left(path_, kMagicOfAll) && !looks_left(table_path_, kTableMagicOfAll))) {
    enabled_ = false;
    return;
  }
  if (!has_journal) return;
  if (pace_.only_looks) {
    file_ = File::open_read(path_);
    if (may_be_written_by_others(*file_)) return;
    return read_records();
  }
  File file = File::open_or_create(path_, 0600);
  if (file.try_lock() != FileLock::kTaken) {
    enabled_ = false;
    return;
  }
  if (!file.has_name()) return;  // the build that held the lock removed it: there is none now
  file_ = std::move(file);
  // Earlier versions left it so: nothing of it is used, and flush() begins it anew.
  if (may_be_written_by_others(*file_)) return;
  read_records();
}

void BuildJournal::read_records() {
  const std::uint64_t file_bytes = file_identity(file_->fd(), path_).size_bytes;
  if (file_bytes < kHeaderBytes) return;
  const std::string header = read_bytes(*file_, 0, kHeaderBytes);
  if (!header.starts_with(kMagic) || load_le64(header.data() + kMagic.size()) != options_hash_) {
    return;
  }
  end_ = kHeaderBytes;
  std::string table_name;
  while (read_record(file_bytes, table_name)) {
  }
  try {
    open_table(table_name);
  } catch (const NotFound&) {
    // Only what was carried is left.
  }
  if (!found_table_) cut(0);
}

/// Reads the record at end_, if there is a whole one. @param table_name  set by one of kTableDone.
bool BuildJournal::read_record(std::uint64_t file_bytes, std::string& table_name) {
  if (!range_fits(end_, kRecordHeaderBytes, file_bytes)) return false;
  const std::string header = read_bytes(*file_, end_, kRecordHeaderBytes);
  const std::uint64_t size = load_le64(header.data());
  std::uint64_t behind = end_ + kRecordHeaderBytes;
  if (!range_fits(behind, size, file_bytes)) return false;
  const std::string bytes = read_bytes(*file_, behind, size);
  if (hash64(bytes, end_) != load_le64(header.data() + 8)) return false;
  std::string_view payload = bytes;
  const std::uint64_t kind = take_u64(payload);
  table_name.clear();
  if (kind == kTableDone) {
    table_name = payload;
    end_ = behind + size;
    return true;
  }
  Record record;
  record.payload_offset = behind;
  record.payload_bytes = size;
  record.in_table = kind == kInTable;
  record.segment_offset = take_u64(payload);
  record.segment_bytes = take_u64(payload);
  record.row = take_row<Index::Shard>(payload);
  behind += size;
  if (!record.in_table) {
    if (!range_fits(behind, record.segment_bytes, file_bytes)) return false;
    record.segment_offset = std::exchange(behind, behind + record.segment_bytes);
  }
  end_ = behind;
  keep(std::move(record));
  return true;
}

/// Opens the earlier build's table: under the name that it gave it at the end, if it came so far.
void BuildJournal::open_table(const std::string& table_name) {
  goes_on_ = ::access(table_path_.c_str(), F_OK) == 0;
  if (!goes_on_ && table_name.empty()) return;
  if (pace_.only_looks) {
    found_table_ = File::open_read(goes_on_ ? table_path_ : directory_of(path_) + "/" + table_name);
    return;
  }
  // The first is written on, so it must be no link: open_or_create() follows none. The second is
  // only read.
  File file = goes_on_ ? File::open_or_create(table_path_)
                       : File::open_to_lock(directory_of(path_) + "/" + table_name);
  if (file.try_lock() != FileLock::kTaken || !file.has_name()) return;
  found_table_ = std::move(file);
}

/// From now on this record counts for its shard.
void BuildJournal::keep(Record record) {
  if (record.in_table) {
    std::size_t before = in_table_.size();
    while (before > 0 && records_[in_table_[before - 1]].segment_offset >= record.segment_offset) {
      --before;
    }
    cut(before);
    in_table_.push_back(records_.size());
  }
  by_url_[record.row.url] = records_.size();
  records_.push_back(std::move(record));
}

/// Keeps the first `num_records` of the records of segments in the table; the others no longer
/// count.
void BuildJournal::cut(std::size_t num_records) {
  for (std::size_t i = num_records; i < in_table_.size(); ++i) {
    const auto it = by_url_.find(records_[in_table_[i]].row.url);
    if (it != by_url_.end() && it->second == in_table_[i]) by_url_.erase(it);
  }
  in_table_.resize(num_records);
}

std::optional<ShardPart> BuildJournal::find(const Source& source) const {
  const auto it = by_url_.find(url_of(source));
  if (it == by_url_.end()) return std::nullopt;
  const Record& record = records_[it->second];
  const bool is_read = std::holds_alternative<Rescan>(source);
  // A shard that another index has is taken from there, unless it lies in this table already.
  if (!is_of(record.row, source) || (!is_read && !record.in_table)) return std::nullopt;
  try {
    if (is_read && !begins_alike(record.row, std::get<Rescan>(source))) return std::nullopt;
    ShardPart part = read(record);
    part.reused = true;
    part.resumed = is_read;
    return part;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Errors: CorruptIndex if it is damaged.
ShardPart BuildJournal::read(const Record& record) const {
  const std::string bytes = read_bytes(*file_, record.payload_offset, record.payload_bytes);
  std::string_view payload = bytes;
  for (int i = 0; i < 3; ++i) take_u64(payload);
  ShardPart part;
  part.row = take_row<Index::Shard>(payload);
  for (std::uint64_t left = take_u64(payload); left > 0; --left) {
    part.skipped.push_back(take_row<Index::SkippedMember>(payload));
  }
  part.segment =
      read_bytes(record.in_table ? table() : *file_, record.segment_offset, record.segment_bytes);
  if (record.in_table) part.table_offset = record.segment_offset;
  std::string why;
  const auto view = SegmentView::check(part.segment, &why);
  if (!view) throw CorruptIndex(why);
  SegmentHeader header;
  std::memcpy(&header, part.segment.data(), sizeof header);
  if (header.checksum != part.row.segment_checksum) {
    throw CorruptIndex("the segment of another shard");
  }
  part.key_hashes = hash_keys(*view);
  part.fields = count_fields(*view);
  return part;
}

AtomicFile& BuildJournal::begin_table(const std::vector<Source>& sources) {
  std::size_t same = 0;
  while (goes_on_ && same < in_table_.size() && same < sources.size() &&
         is_of(records_[in_table_[same]].row, sources[same])) {
    ++same;
  }
  recorded_end_ = sizeof(TableHeader);
  if (same > 0) {
    const Record& last = records_[in_table_[same - 1]];
    recorded_end_ = last.segment_offset + last.segment_bytes;
  }
  if (same < in_table_.size()) carry(sources, same);
  cut(same);
  if (found_table_ && goes_on_) {
    found_table_->resize(recorded_end_);
    table_ = std::make_unique<AtomicFile>(index_path_, *std::exchange(found_table_, std::nullopt));
    table_is_kept_ = true;
  } else {
    found_table_.reset();
    table_ = std::make_unique<AtomicFile>(index_path_);
  }
  pending_table_end_ = recorded_end_;
  return *table_;
}

/// Copies what the table holds of `sources` from `first` on behind the records: it will be cut. If
/// there is no room for all, the rest is scanned again.
void BuildJournal::carry(const std::vector<Source>& sources, std::size_t first) {
  try {
    for (std::size_t i = first; i < sources.size(); ++i) {
      if (!std::holds_alternative<Rescan>(sources[i])) continue;
      const auto part = find(sources[i]);
      if (!part || !part->table_offset) continue;
      const std::string payload = to_payload(*part, kCarried, 0);
      Record record;
      record.row = part->row;
      record.payload_offset = end_ + kRecordHeaderBytes;
      record.payload_bytes = payload.size();
      record.segment_offset = record.payload_offset + payload.size();
      record.segment_bytes = part->segment.size();
      put_record(payload);
      pending_ += part->segment;
      write_pending();
      keep(std::move(record));
    }
  } catch (const Error&) {
    pending_.clear();
  }
}

void BuildJournal::put_record(const std::string& payload) {
  const std::uint64_t offset = (end_ == 0 ? kHeaderBytes : end_) + pending_.size();
  put(pending_, std::uint64_t{payload.size()});
  put(pending_, hash64(payload, offset));
  pending_ += payload;
}

void BuildJournal::add(const ShardPart& part, std::uint64_t offset) {
  if (!enabled_) return;
  const std::uint64_t end = offset + part.segment.size();
  // The record of a segment that was found in its place still holds, unless something before it
  // was written anew: such a record has cut off those of all that lay behind it.
  if (part.table_offset == offset && end <= recorded_end_) return;
  // From the first segment that is written anew on, earlier records no longer count.
  recorded_end_ = std::min(recorded_end_, offset);
  put_record(to_payload(part, kInTable, offset));
  pending_table_end_ = end;
  if (pending_table_end_ - recorded_end_ + pending_.size() >= pace_.bytes ||
      std::chrono::steady_clock::now() - last_flush_ >= pace_.age) {
    flush();
  }
}

void BuildJournal::add_end(const std::string& path) {
  if (!table_is_kept_) return;
  std::string payload;
  put(payload, kTableDone);
  payload += path.substr(path.rfind('/') + 1);
  put_record(payload);
  flush();
}

void BuildJournal::flush() {
  if (!file_) {
    File file = File::open_or_create(path_, 0600);
    if (file.try_lock() != FileLock::kTaken || !file.has_name()) {
      enabled_ = false;
      pending_.clear();
      return;
    }
    file_ = std::move(file);
  }
  if (end_ == 0) {
    std::string header(kMagic);
    put(header, options_hash_);
    make_private(*file_);
    file_->resize(0);  // before the table's name goes to another, of which it says nothing
    file_->write_at(0, header);
    end_ = kHeaderBytes;
  }
  if (!table_is_kept_) {
    table_->keep_as(table_path_);
    table_is_kept_ = true;
    SHARDWISE_FAULT_POINT("journal.table_kept");
  }
  write_pending();
  recorded_end_ = pending_table_end_;
  last_flush_ = std::chrono::steady_clock::now();
  SHARDWISE_FAULT_POINT("journal.flushed");
}

void BuildJournal::write_pending() {
  file_->resize(end_);  // drops the partial record that a killed build may have left
  file_->write_at(end_, pending_);
  end_ += pending_.size();
  pending_.clear();
}

void BuildJournal::remove() noexcept {
  found_table_.reset();  // nobody sweeps what is locked
  try {
    // Power loss may have left the table alone.
    if (!file_ && enabled_ && ::access(table_path_.c_str(), F_OK) == 0) {
      File file = File::open_or_create(path_, 0600);
      if (file.try_lock() == FileLock::kTaken && file.has_name()) file_ = std::move(file);
    }
  } catch (const Error&) {
    // See above.
  }
  if (!file_) return;
  // The table first: the journal's name and lock outlast it, so no other build finds it alone.
  ::unlink(table_path_.c_str());
  ::unlink(path_.c_str());
  file_.reset();
}

}  // namespace shardwise
