#include "index/query_tables.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "base/url.h"
#include "index/rows.h"
#include "index/segment_of.h"
#include "index/side_tables.h"
#include "index/sqlite.h"
#include "index/virtual_table.h"
#include "shardwise/index/query.h"

namespace shardwise {
namespace {

void give_number(sqlite3_context* to, std::uint64_t value) {
  sqlite3_result_int64(to, static_cast<sqlite3_int64>(value));
}

/// @param keep  SQLITE_STATIC if `bytes` outlive the query.
void give_blob(sqlite3_context* to, std::string_view bytes, sqlite3_destructor_type keep) {
  sqlite3_result_blob64(to, bytes.empty() ? "" : bytes.data(), bytes.size(), keep);
}

void give_text(sqlite3_context* to, std::string_view text, sqlite3_destructor_type keep) {
  sqlite3_result_text64(to, text.empty() ? "" : text.data(), text.size(), keep, SQLITE_UTF8);
}

/// Sets SQLite's result to a name: a text if it is UTF-8 without NUL, otherwise a blob.
void give_name(sqlite3_context* to, std::string_view name,
               sqlite3_destructor_type keep = SQLITE_STATIC) {
  (sqlite::is_text(name) ? give_text : give_blob)(to, name, keep);
}

void give_value(sqlite3_context* to, const MetadataValue& value) {
  switch (value.type) {
    case ValueType::kNull:
      sqlite3_result_null(to);
      break;
    case ValueType::kInteger:
      sqlite3_result_int64(to, value.integer);
      break;
    case ValueType::kReal:
      sqlite3_result_double(to, value.real);
      break;
    case ValueType::kText:
      give_text(to, value.bytes, SQLITE_STATIC);
      break;
    case ValueType::kBlob:
      give_blob(to, value.bytes, SQLITE_STATIC);
      break;
  }
}

/// The current sample of a table that is ordered by samples.
struct SampleAt {
  explicit SampleAt(QueryTables& all) : tables(all) {}

  static std::uint64_t num_places(QueryTables& tables) { return tables.index().size(); }

  void go_to(std::uint64_t number) {
    const Index& index = tables.index();
    sample = number;
    if (sample < shard_first || sample >= shard_end) {
      shard = index.shard_of(sample);
      segment = tables.segment(shard);
      shard_first = index.first_sample(shard);
      shard_end = index.first_sample(shard + 1);
    }
    in_shard = static_cast<std::uint32_t>(sample - shard_first);
    members = segment.members(in_shard);
  }

  QueryTables& tables;
  std::uint64_t sample = 0;
  std::uint64_t shard = 0;
  std::uint64_t shard_first = 0;
  std::uint64_t shard_end = 0;
  SegmentView segment;
  std::uint32_t in_shard = 0;
  std::span<const MemberRecord> members;
};

struct SampleRow : SampleAt {
  static constexpr const char* kName = "samples";
  static constexpr bool kOneAPlace = true;
  explicit SampleRow(QueryTables& all)
      : SampleAt(all), num_own(all.index().content().columns.size()) {
    for (const auto& table : detail::side_tables_of(all.index()).all()) {
      for (std::uint32_t i = 0; i < table->info().columns.size(); ++i) {
        side_columns.emplace_back(side_rows.size(), i);
      }
      side_rows.emplace_back(*table);
    }
  }

  static std::span<const TableColumn<SampleRow>> columns() {
    using R = const SampleRow&;
    using To = sqlite3_context*;
    static constexpr auto kColumns = std::to_array<TableColumn<SampleRow>>({
        {"sample", "INTEGER", Lookup::kPlace, [](R r, To to) { give_number(to, r.sample); }},
        {"key", "", Lookup::kKey, [](R r, To to) { give_name(to, r.segment.key(r.in_shard)); }},
        {"shard", "INTEGER", Lookup::kShard, [](R r, To to) { give_number(to, r.shard); }},
        {"members", "INTEGER", Lookup::kNone,
         [](R r, To to) { give_number(to, r.members.size()); }},
        {"bytes", "INTEGER", Lookup::kNone, [](R r, To to) { give_number(to, r.bytes()); }},
    });
    return kColumns;
  }
  static std::vector<std::string> more_columns(const Index& index) {
    std::vector<std::string> names = detail::metadata_columns(index);
    for (std::string& name : names) name = '"' + name + '"';
    return names;
  }
  static double rows_a_place(const Index&) { return 1; }

  bool move_to(std::uint64_t place) {
    go_to(place);
    return true;
  }
  bool move_on() { return false; }
  std::int64_t row_id() const { return static_cast<std::int64_t>(sample); }
  void give_more(std::size_t column, sqlite3_context* to) const {
    if (column < num_own) {
      return give_value(to, segment.value(static_cast<std::uint32_t>(column), in_shard));
    }
    const auto& [table, place] = side_columns[column - num_own];
    give_value(to, side_rows[table].value(segment.key(in_shard), place));
  }

  std::uint64_t bytes() const {
    std::uint64_t bytes = 0;
    for (const MemberRecord& member : members) bytes += member.size_bytes;
    return bytes;
  }

  const std::size_t num_own;  // metadata columns of the index itself
  mutable std::vector<detail::SideRows> side_rows;
  // The metadata columns of side tables: the table's number in side_rows, and the column's place in
  // the table.
  std::vector<std::pair<std::size_t, std::uint32_t>> side_columns;
};

struct MemberRow : SampleAt {
  static constexpr const char* kName = "members";
  static constexpr bool kOneAPlace = false;
  using SampleAt::SampleAt;

  static std::uint64_t num_groups(QueryTables& tables) { return tables.field_names().size(); }
  void show_group(std::uint64_t group) {
    only_field = &tables.field_names()[group];
    number_in = std::numeric_limits<std::uint64_t>::max();
  }

  static std::span<const TableColumn<MemberRow>> columns() {
    using R = const MemberRow&;
    using To = sqlite3_context*;
    static constexpr auto kColumns = std::to_array<TableColumn<MemberRow>>({
        {"sample", "INTEGER", Lookup::kPlace, [](R r, To to) { give_number(to, r.sample); }},
        {"member", "INTEGER", Lookup::kNone, [](R r, To to) { give_number(to, r.member); }},
        {"key", "", Lookup::kKey, [](R r, To to) { give_name(to, r.segment.key(r.in_shard)); }},
        {"field", "", Lookup::kGroup,
         [](R r, To to) { give_name(to, r.segment.field_name(r.here().field())); }},
        {"shard", "INTEGER", Lookup::kShard, [](R r, To to) { give_number(to, r.shard); }},
        {"offset", "INTEGER", Lookup::kNone,
         [](R r, To to) { give_number(to, r.here().data_offset()); }},
        {"size", "INTEGER", Lookup::kNone,
         [](R r, To to) { give_number(to, r.here().size_bytes); }},
    });
    return kColumns;
  }
  static std::vector<std::string> more_columns(const Index&) { return {}; }
  static double rows_a_place(const Index& index) {
    return static_cast<double>(index.num_members()) /
           std::max(1.0, static_cast<double>(index.size()));
  }

  bool move_to(std::uint64_t place) {
    go_to(place);
    member = 0;
    return is_shown() || move_on();
  }
  bool move_on() {
    while (++member < members.size()) {
      if (is_shown()) return true;
    }
    return false;
  }
  /// The shard's number in the upper 32 bits, and the member's number within the shard in the
  /// lower.
  std::int64_t row_id() const {
    return static_cast<std::int64_t>(shard) << 32 | (&here() - segment.members().data());
  }
  void give_more(std::size_t, sqlite3_context*) const {}

  const MemberRecord& here() const { return members[member]; }

  std::uint32_t member = 0;

 private:
  /// True if there is a member at this place, and it belongs to the group that is shown.
  bool is_shown() {
    if (member >= members.size()) return false;
    if (only_field == nullptr) return true;
    if (number_in != shard) {
      number_in = shard;
      field_number = 0;
      while (field_number < segment.num_fields() &&
             segment.field_name(field_number) != *only_field) {
        ++field_number;
      }
    }
    return here().field() == field_number;
  }

  const std::string* only_field = nullptr;  // null if all are shown
  std::uint64_t number_in = 0;              // shard in which `field_number` has this name
  std::uint32_t field_number = 0;
};

/// A row of a catalogue's table. Its columns are the fields of for_each_field().
template <class Info>
struct CatalogueRow {
  static constexpr const char* kName = TableOf<Info>::kName.data();
  static constexpr bool kOneAPlace = true;
  explicit CatalogueRow(QueryTables& all) : tables(all) {}

  /// Only the table of shards has a column with the row's number, because other tables refer to it.
  static std::span<const TableColumn<CatalogueRow>> columns() {
    static constexpr TableColumn<CatalogueRow> kNumber = {
        TableOf<Info>::kNumber.data(), "INTEGER", Lookup::kPlace,
        [](const CatalogueRow& row, sqlite3_context* to) { give_number(to, row.place); }};
    return {&kNumber, std::is_same_v<Info, Index::Shard> ? 1U : 0U};
  }
  static std::vector<std::string> more_columns(const Index&) {
    std::vector<std::string> columns;
    const Info row{};
    for_each_field(row, [&](const char* name, const auto& value) {
      columns.push_back(std::string(name) + (to_cell(value).is_integer ? " INTEGER" : ""));
    });
    return columns;
  }
  static std::uint64_t num_places(QueryTables& tables) { return tables.num_rows(Info{}); }
  static double rows_a_place(const Index&) { return 1; }

  bool move_to(std::uint64_t to) {
    // Keep the cells, because a join reads the same row repeatedly.
    if (cells.empty() || place != to) cells = to_cells(tables.row(to, Info{}));
    place = to;
    return true;
  }
  bool move_on() { return false; }
  std::int64_t row_id() const { return static_cast<std::int64_t>(place); }
  void give_more(std::size_t column, sqlite3_context* to) const {
    const Cell& cell = cells[column];
    if (cell.is_integer) {
      sqlite3_result_int64(to, cell.integer);
    } else {
      give_name(to, cell.bytes, SQLITE_TRANSIENT);
    }
  }

  QueryTables& tables;
  std::uint64_t place = 0;
  std::vector<Cell> cells;
};

}  // namespace

QueryTables::QueryTables(const Index& index) : index_(index), segments_(index.num_shards()) {}

void QueryTables::add_to(sqlite3* db) {
  VirtualTable<SampleRow>::add_to(db, *this);
  VirtualTable<MemberRow>::add_to(db, *this);
  VirtualTable<CatalogueRow<Index::Shard>>::add_to(db, *this);
  VirtualTable<CatalogueRow<Index::Summary::Field>>::add_to(db, *this);
  VirtualTable<CatalogueRow<Index::SkippedMember>>::add_to(db, *this);
}

const SegmentView& QueryTables::segment(std::uint64_t shard) {
  if (!segments_[shard]) segments_[shard] = segment_of(index_, shard);
  return *segments_[shard];
}

Index::Shard QueryTables::row(std::uint64_t place, const Index::Shard&) const {
  Index::Shard shard = index_.shard(place);
  shard.url = without_secrets(shard.path);
  return shard;
}

const std::vector<Index::Summary::Field>& QueryTables::fields() {
  if (!fields_) fields_ = index_.summary().fields;
  return *fields_;
}

const std::vector<std::string>& QueryTables::field_names() {
  if (field_names_) return *field_names_;
  std::vector<std::string> names;
  std::uint64_t num_members = 0;
  for (const Index::Summary::Field& field : fields()) {
    names.push_back(field.name);
    num_members += field.num_members;
  }
  if (num_members != index_.num_members()) names.clear();
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return sqlite::is_text(a) != sqlite::is_text(b) ? sqlite::is_text(a) : a < b;
  });
  return field_names_.emplace(std::move(names));
}

const std::vector<Index::SkippedMember>& QueryTables::skipped() {
  if (!skipped_) skipped_ = index_.skipped(UINT64_MAX);
  return *skipped_;
}

}  // namespace shardwise
