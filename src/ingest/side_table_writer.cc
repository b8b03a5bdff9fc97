#include "ingest/side_table_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "base/ascii.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/private_file.h"
#include "base/spelling.h"
#include "base/text.h"
#include "index/segment_of.h"
#include "index/side_tables.h"
#include "index/sqlite.h"
#include "shardwise/ingest/attach.h"

namespace shardwise::detail {
namespace {

constexpr std::uint32_t kRowsPerSegment = 65'536;
constexpr std::uint64_t kSegmentBytes = std::uint64_t{16} << 20;
constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxColumns = 900;  // SQLITE_LIMIT_COLUMN is 1,000 for queries
constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

std::string side_path(const std::string& index_path) {
  return index_path + std::string(kSideSuffix);
}

/// Locks the catalogue of the index against other writers of its side tables. The lock ends with
/// the returned file. On a file system without locks, the last writer wins.
File lock_catalogue(const std::string& path, const CancelToken& cancel) {
  constexpr std::chrono::milliseconds kPause{10};
  for (;; std::this_thread::sleep_for(kPause)) {
    cancel.throw_if_cancelled();
    File file = File::open_to_lock(path);
    const FileLock lock = file.try_lock();
    if (lock == FileLock::kUnsupported) return file;
    if (lock == FileLock::kTaken && file.has_name()) return file;
  }
}

/// A table to write: its bytes are in memory or in a file.
struct Stored {
  SideTable table;
  std::string_view bytes = {};
  const File* file = nullptr;
  std::uint64_t size = 0;
};

/// Writes the file of side tables. REQUIRES: `catalogue` is locked.
void write_side_file(const std::string& index_path, const File& catalogue,
                     const std::vector<Stored>& tables) {
  AtomicFile out(side_path(index_path));
  set_mode_as(catalogue, out.file());
  std::vector<SideTable> infos;
  std::vector<std::uint64_t> sizes;
  std::uint64_t offset = sizeof(SideHeader);
  std::string buffer;
  for (const Stored& stored : tables) {
    for (std::uint64_t at = 0; at < stored.size; at += kCopyBytes) {
      const std::size_t size = std::min<std::uint64_t>(kCopyBytes, stored.size - at);
      std::string_view piece = stored.bytes.substr(std::min(at, stored.bytes.size()), size);
      if (stored.file != nullptr) {
        buffer.resize(size);
        if (stored.file->read_at(at, buffer.data(), size) != size) {
          throw Error(ErrorCode::kIo, "the temporary file of a side table was truncated",
                      in_quotes(stored.file->path()), "attach the table again");
        }
        piece = buffer;
      }
      out.file().write_at(offset + at, piece);
    }
    offset += stored.size;
    infos.push_back(stored.table);
    sizes.push_back(stored.size);
  }
  const std::string list = side_list(infos, sizes);
  out.file().write_at(offset, list);
  SideHeader header{};
  std::memcpy(header.magic, kSideMagic, sizeof header.magic);
  header.version = kSideVersion;
  header.file_bytes = offset + list.size();
  header.list_offset = offset;
  header.list_bytes = list.size();
  header.list_checksum = hash64(list);
  header.header_checksum = side_header_checksum(header);
  out.file().write_at(0, {reinterpret_cast<const char*>(&header), sizeof header});
  SHARDWISE_FAULT_POINT("side.written");
  out.commit();
  SHARDWISE_FAULT_POINT("side.committed");
}

std::vector<Stored> stored_tables(const SideTables& tables) {
  std::vector<Stored> stored;
  for (const auto& table : tables.all()) {
    stored.push_back({table->info(), table->bytes(), nullptr, table->bytes().size()});
  }
  return stored;
}

[[noreturn]] void no_such_table(const std::string& name, const SideTables& tables,
                                const std::string& index_path) {
  std::string names;
  for (const auto& table : tables.all()) {
    names += (names.empty() ? "" : ", ") + in_quotes(table->info().name);
  }
  throw NotFound("the index has no side table " + in_quotes(name), in_quotes(index_path),
                 names.empty() ? "the index has no side tables" : "its side tables are " + names);
}

std::string_view bytes_of(const MetadataValue& value) {
  const bool has_bytes = value.type == ValueType::kText || value.type == ValueType::kBlob;
  return has_bytes ? value.bytes : std::string_view();
}

}  // namespace

MatchCounter::MatchCounter(const Index& index) : index_(index), has_row_(index.size()) {}

void MatchCounter::add(std::string_view key) {
  ++match_.num_rows;
  const std::vector<std::uint64_t> samples = index_.find_all(key);
  for (const std::uint64_t sample : samples) has_row_[sample] = true;
  if (samples.empty() && match_.num_rows_without_sample++ == 0) {
    match_.first_row_without_sample = key;
  }
}

SideTable::Match MatchCounter::finish() {
  match_.num_samples = index_.size();
  match_.num_samples_without_row =
      static_cast<std::uint64_t>(std::count(has_row_.begin(), has_row_.end(), false));
  if (match_.num_samples_without_row > 0) {
    const auto first = std::find(has_row_.begin(), has_row_.end(), false);
    const auto sample = static_cast<std::uint64_t>(first - has_row_.begin());
    match_.first_sample_without_row = key_of_sample(index_, sample);
  }
  return match_;
}

SideTableWriter::SideTableWriter(const std::string& index_path,
                                 const std::vector<std::string>& available, std::string source,
                                 const SideTable::Options& options)
    : path_(behind_links(index_path)),
      index_(Index::open(path_)),
      replace_(options.replace),
      writer_(side_path(path_)),
      counter_(*index_) {
  table_.name = options.name;
  table_.source = std::move(source);
  if (!is_utf8(table_.source)) table_.source = escaped(table_.source);
  table_.key = options.key;
  const bool is_plain = is_utf8(table_.name) && !table_.name.empty() && table_.name.size() <= 255 &&
                        escaped(table_.name) == table_.name;
  if (!is_plain) {
    throw InvalidArgument("a side table cannot have the name " + in_quotes(table_.name),
                          in_quotes(path_), "give it a name of printable characters");
  }
  choose(available, options);
  require_names(*index_);
  begin_segment();
}

void SideTableWriter::choose(const std::vector<std::string>& available,
                             const SideTable::Options& options) {
  const std::string where = in_quotes(table_.source);
  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::find(available, name);
    if (found == available.end()) {
      std::string names;
      for (const std::string& each : available)
        names += (names.empty() ? "" : ", ") + in_quotes(each);
      throw InvalidArgument("the table has no column " + in_quotes(name), where,
                            "its columns are " + names);
    }
    if (std::find(found + 1, available.end(), name) != available.end()) {
      throw InvalidArgument("the table has two columns " + in_quotes(name), where,
                            "rename one of them");
    }
    return static_cast<std::size_t>(found - available.begin());
  };
  const auto choose_one = [&](const std::string& name, std::string_view column) {
    require_column_name(name, where);
    if (std::ranges::find(table_.columns, name) != table_.columns.end()) {
      throw InvalidArgument("two columns have the name " + in_quotes(name), where,
                            "give one of them another name: NAME=COLUMN");
    }
    places_.push_back(find(column));
    table_.columns.push_back(name);
  };
  key_place_ = find(options.key);
  if (options.columns.empty()) {
    for (const std::string& column : available) {
      if (column != options.key && !column.empty()) choose_one(to_lower(column), column);
    }
  }
  for (const std::string& text : options.columns) {
    const std::size_t equals = text.find('=');
    const bool is_whole = std::ranges::find(available, text) != available.end();
    if (is_whole || equals == std::string::npos) {
      choose_one(to_lower(text), text);
    } else {
      choose_one(to_lower(text.substr(0, equals)), std::string_view(text).substr(equals + 1));
    }
  }
  if (table_.columns.empty()) {
    throw InvalidArgument(
        "the table has no columns to attach", where,
        "add a column to the table, in addition to the key " + in_quotes(options.key));
  }
}

void SideTableWriter::require_names(const Index& index) const {
  const std::string where = in_quotes(table_.name) + " of " + in_quotes(path_);
  std::vector<std::string> taken;
  for (const Index::Column& column : index.content().columns) taken.push_back(column.name);
  for (const SideTable& other : index.side_tables()) {
    if (other.name != table_.name) {
      taken.insert(taken.end(), other.columns.begin(), other.columns.end());
    } else if (!replace_) {
      throw InvalidArgument("the index already has a side table of this name", where,
                            "replace it (" + spelled("SideTable::Options::replace") +
                                "), or choose another name (" +
                                spelled("SideTable::Options::name") + ")");
    }
  }
  for (const std::string& name : table_.columns) {
    if (std::ranges::find(taken, name) == taken.end()) continue;
    throw InvalidArgument(
        "the index already has a column " + in_quotes(name), where,
        "leave this column of the table out, or give it another name: NAME=COLUMN (" +
            spelled("SideTable::Options::columns") + ")");
  }
  if (taken.size() + table_.columns.size() > kMaxColumns) {
    throw InvalidArgument(
        "the index would have too many columns", where,
        "choose columns; all tables together have at most " + std::to_string(kMaxColumns));
  }
}

void SideTableWriter::refuse_row(const std::string& what, const std::string& remedy) const {
  throw InvalidArgument(
      what, "row " + std::to_string(table_.num_rows + 1) + " of " + in_quotes(table_.source),
      remedy);
}

void SideTableWriter::begin_segment() {
  segment_.emplace(table_.name, static_cast<std::uint32_t>(table_.columns.size()));
  key_hashes_.clear();
  segment_bytes_ = 0;
}

void SideTableWriter::flush() {
  writer_.append(segment_->finish(), key_hashes_);
  begin_segment();
}

void SideTableWriter::add(const MetadataValue& key, std::span<const MetadataValue> values) {
  std::string digits;
  std::string_view bytes = bytes_of(key);
  if (key.type == ValueType::kInteger) bytes = digits = std::to_string(key.integer);
  if (key.type == ValueType::kReal) {
    refuse_row("a key is not a text but a number with a fraction",
               "choose the column that contains the keys of samples");
  }
  if (bytes.empty()) refuse_row("a row has no key", "give it a key, or leave the row out");
  if (bytes.size() > kMaxValueBytes) refuse_row("a key has more than 1 MiB", "leave the row out");
  counter_.add(bytes);
  key_hashes_.push_back(hash64(bytes));
  segment_->begin_sample(bytes);
  segment_bytes_ += bytes.size();
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    MetadataValue value = values[i];
    const std::string_view content = bytes_of(value);
    if (content.size() > kMaxValueBytes) {
      refuse_row("a value of column " + in_quotes(table_.columns[i]) + " has more than 1 MiB",
                 "choose other columns");
    }
    if (value.type == ValueType::kReal && std::isnan(value.real)) value = {};
    if (value.type == ValueType::kText && !sqlite::is_text(content)) value.type = ValueType::kBlob;
    segment_->set_value(i, value);
    segment_bytes_ += content.size();
  }
  ++table_.num_rows;
  if (segment_->num_samples() == kRowsPerSegment || segment_bytes_ >= kSegmentBytes) flush();
}

SideTable::Match SideTableWriter::finish(const CancelToken& cancel) {
  if (segment_->num_samples() > 0 || table_.num_rows == 0) flush();
  writer_.finish(
      {.refuse =
           [&](const RepeatedKey& repeated) {
             const std::string more =
                 repeated.num_repeated == 1
                     ? std::string()
                     : " (and " + human_count(repeated.num_repeated - 1) + " more such rows)";
             throw InvalidArgument("two rows have the key " + in_quotes(repeated.key) + more,
                                   "rows " + std::to_string(repeated.first + 1) + " and " +
                                       std::to_string(repeated.second + 1) + " of " +
                                       in_quotes(table_.source),
                                   "keep one row for each key");
           },
       .in_segment = true},
      cancel);
  SideTable::Match match = counter_.finish();
  match.name = table_.name;
  if (match.num_rows == match.num_rows_without_sample && match.num_samples > 0 &&
      match.num_rows > 0) {
    throw Mismatch("no row has the key of a sample", in_quotes(table_.source),
                   "the first key of the table is " + in_quotes(match.first_row_without_sample) +
                       ", the first key of the index is " +
                       in_quotes(match.first_sample_without_row));
  }
  table_.checksum = writer_.header().header_checksum;
  table_.attached_at = utc_text(std::time(nullptr));
  const File catalogue = lock_catalogue(path_, cancel);
  sweep_temporaries(side_path(path_));
  const std::shared_ptr<const Index> now = Index::open(path_);  // it may have changed meanwhile
  require_names(*now);
  std::vector<Stored> tables = stored_tables(side_tables_of(*now));
  const Stored added{table_, {}, &writer_.file(), writer_.header().file_bytes};
  const auto old = std::ranges::find_if(
      tables, [&](const Stored& stored) { return stored.table.name == table_.name; });
  if (old == tables.end()) {
    tables.push_back(added);
  } else {
    *old = added;
  }
  write_side_file(path_, catalogue, tables);
  return match;
}

}  // namespace shardwise::detail

namespace shardwise {

void detach_table(const std::string& index, const std::string& name, const CancelToken& cancel) {
  using namespace detail;
  const std::string path = behind_links(index);
  const File catalogue = lock_catalogue(path, cancel);
  sweep_temporaries(side_path(path));
  const SideTables present(path, {});
  std::vector<Stored> tables = stored_tables(present);
  if (std::erase_if(tables, [&](const Stored& stored) { return stored.table.name == name; }) == 0) {
    no_such_table(name, present, path);
  }
  if (!tables.empty()) return write_side_file(path, catalogue, tables);
  if (::unlink(side_path(path).c_str()) != 0) throw_errno(errno, "cannot remove", side_path(path));
  sync_directory_of(path);
}

SideTable::Match match_side_table(const Index& index, const std::string& name,
                                  const CancelToken& cancel) {
  const detail::SideTables& tables = detail::side_tables_of(index);
  const auto found = std::ranges::find_if(
      tables.all(), [&](const auto& table) { return table->info().name == name; });
  if (found == tables.all().end()) detail::no_such_table(name, tables, index.path());
  detail::MatchCounter counter(index);
  for (std::uint64_t row = 0; row < (*found)->info().num_rows; ++row) {
    if (row % 65'536 == 0) cancel.throw_if_cancelled();
    counter.add((*found)->key(row));
  }
  SideTable::Match match = counter.finish();
  match.name = name;
  return match;
}

}  // namespace shardwise
