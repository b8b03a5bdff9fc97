#include "index/catalogue.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "base/assert.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "base/text.h"
#include "index/remedies.h"
#include "index/rows.h"
#include "index/url_base.h"
#include "index/word_list.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/index/query.h"

namespace shardwise {
namespace {

constexpr const char* kMetaSql =
    "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID";

/// The statements that create the tables, sorted by the tables' names.
std::vector<std::string> schema() {
  return {create_table_sql<Index::Summary::Field>(), kMetaSql, create_table_sql<Index::Shard>(),
          create_table_sql<Index::SkippedMember>()};
}

[[noreturn]] void damaged(const std::string& path, std::string_view why) {
  throw CorruptIndex("the index is damaged", in_quotes(path) + " (" + std::string(why) + ")",
                     rebuild_remedy(path));
}

/// Returns e.g. "SELECT shard, url, ..., checksum FROM shards".
template <class Row>
std::string select_sql() {
  std::string sql = "SELECT " + std::string(TableOf<Row>::kNumber);
  for (const std::string& name : columns_of<Row>()) sql += ", " + name;
  return sql + ", checksum FROM " + std::string(TableOf<Row>::kName);
}

/// Reads and verifies the current row of a statement of select_sql().
template <class Row>
Row read_row(const sqlite::Statement& select, std::uint64_t number, const std::string& path) {
  const auto row = [&] {
    return "row " + std::to_string(number) + " of the table " + std::string(TableOf<Row>::kName);
  };
  static const std::vector<Cell> empty = to_cells(Row{});
  std::vector<Cell> cells = empty;
  int column = 1;
  for (Cell& cell : cells) {
    const MetadataValue value = select.value(column++);
    const bool is_integer = value.type == ValueType::kInteger;
    if (is_integer != cell.is_integer || value.type == ValueType::kNull ||
        value.type == ValueType::kReal) {
      damaged(path, row() + " is wrong");
    }
    cell.integer = value.integer;
    cell.bytes = value.bytes;
  }
  if (select.integer(0) != static_cast<std::int64_t>(number) ||
      select.integer(column) != row_checksum(number, cells)) {
    damaged(path, row() + " has a wrong checksum");
  }
  try {
    return from_cells<Row>(cells);
  } catch (const InvalidArgument&) {
    damaged(path, row() + " is wrong");
  }
}

using MetaRows = std::map<std::string, std::string>;

std::string columns_text(const std::vector<Index::Column>& columns) {
  std::string text;  // one a line
  for (const Index::Column& column : columns) text += to_string(column) + "\n";
  return text;
}

std::vector<Index::Column> parse_columns(std::string_view text) {
  std::vector<Index::Column> columns;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    columns.push_back(parse_column(text.substr(0, end)));
    text.remove_prefix(std::min(text.size(), end == text.npos ? end : end + 1));
  }
  return columns;
}

/// Calls visit(name, value) with each value of the table `meta`.
template <RowOf<CatalogueMeta> Meta, class Visit>
void for_each_field(Meta& meta, const Visit& visit) {
  auto& summary = meta.summary;
  visit("table_file", meta.table_file);
  visit("table_checksum", HashField{meta.table_checksum});
  visit("fingerprint", summary.fingerprint);
  visit("built_with", summary.built_with);
  visit("built_at", summary.built_at);
  visit("on_bad", summary.content.policies);
  visit("columns", summary.content.columns);
  visit("has_hashes", summary.content.hashes);
  visit("keys_are_unique", summary.content.unique_keys);
  visit("part", summary.part);
  visit("url_base", summary.url_base);
  visit("sources", meta.sources);
  visit("num_shards", summary.num_shards);
  visit("num_samples", summary.num_samples);
  visit("num_members", summary.num_members);
  visit("shard_bytes", summary.shard_bytes);
  visit("content_bytes", summary.content_bytes);
  visit("num_fields", meta.num_fields);
  visit("num_skipped", summary.num_skipped);
}

/// Writes values of the table `meta` as text: numbers in decimal, all other values as in rows of
/// other tables.
struct MetaWriter {
  MetaRows& rows;

  void operator()(const char* name, const DefectPolicies& policies) const {
    rows[name] = to_string(policies);
  }
  void operator()(const char* name, const std::vector<Index::Column>& columns) const {
    rows[name] = columns_text(columns);
  }
  void operator()(const char* name, const std::vector<std::string>& words) const {
    rows[name] = words_to_json(words);
  }
  void operator()(const char* name, const std::optional<Index::Part>& part) const {
    if (part) rows[name] = to_string(*part) + " " + to_string(part->list_hash);
  }
  void operator()(const char* name, const auto& value) const {
    const Cell cell = to_cell(value);
    rows[name] = cell.is_integer ? std::to_string(cell.integer) : cell.bytes;
  }
};

/// Errors: InvalidArgument.
struct MetaReader {
  const MetaRows& rows;

  std::string text(const char* name) const {
    const auto it = rows.find(name);
    if (it == rows.end()) throw InvalidArgument("a value is missing", name, "");
    return it->second;
  }
  void operator()(const char* name, DefectPolicies& policies) const {
    policies = parse_defect_policies(text(name));
  }
  void operator()(const char* name, std::vector<Index::Column>& columns) const {
    columns = parse_columns(text(name));
  }
  void operator()(const char* name, std::vector<std::string>& words) const {
    words = words_from_json(text(name));
  }
  void operator()(const char* name, std::optional<Index::Part>& part) const {
    if (rows.contains(name)) part = parse_part(text(name));
  }
  void operator()(const char* name, auto&& value) const {
    Cell cell{.bytes = text(name)};
    if (to_cell(value).is_integer) {
      const auto number = parse_int64(cell.bytes);
      if (!number) throw InvalidArgument("a number is malformed", name, "");
      cell = to_cell(*number);
    }
    from_cell(cell, value);
  }

  /// Parses the number, count, shards and hash of a part, e.g. "2/8 of 100 shards <hash>".
  static Index::Part parse_part(const std::string& text) {
    Index::Part part;
    unsigned long long number = 0, count = 0, num_shards = 0;
    char hash[33] = {};
    if (std::sscanf(text.c_str(), "%19llu/%19llu of %19llu shards %32s", &number, &count,
                    &num_shards, hash) != 4 ||
        number < 1 || number > count) {
      throw InvalidArgument("not a part of an index", in_quotes(text), "");
    }
    part = {number, count, num_shards, {}};
    from_cell({.bytes = hash}, part.list_hash);
    return part;
  }
};

std::string meta_checksum(const MetaRows& rows) {
  std::vector<Cell> cells;
  for (const auto& [name, value] : rows) {
    if (name == "checksum") continue;
    cells.push_back({.bytes = name});
    cells.push_back({.bytes = value});
  }
  std::string bytes;
  pack(cells, bytes);
  return to_string(hash128(bytes));
}

std::int64_t first_integer(const sqlite::Database& db, const char* sql) {
  sqlite::Statement statement = db.prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

}  // namespace

bool Catalogue::looks_like_one(const std::string& path) {
  constexpr std::size_t kApplicationIdOffset = 68;
  char header[100] = {};
  const File file = File::open_read(path);
  if (file.read_at(0, header, sizeof header) != sizeof header) return false;
  const std::string_view bytes(header, sizeof header);
  return bytes.starts_with(sqlite::kMagic) && bytes.substr(kApplicationIdOffset, 4) == "SDW1";
}

Catalogue::Catalogue(const std::string& path)
    : path_(path),
      file_(MappedFile::open(path)),
      db_(sqlite::Database::over_bytes(file_.bytes(), path)) {
  require_version_and_schema();
  read_meta();
  select_shard_ = std::make_unique<sqlite::Statement>(
      db_.prepare(select_sql<Index::Shard>() + " WHERE shard = ?"));
}

void Catalogue::require_version_and_schema() {
  if (!file_.bytes().starts_with(sqlite::kMagic)) {
    throw CorruptIndex("the file is not a Shardwise index", in_quotes(path_),
                       "give the path of an index that " + spelled("`shardwise index`") + " wrote");
  }
  // Refuse truncated files here, because SQLite reads such a file without an error until it needs a
  // missing page.
  const auto big_endian = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<unsigned char>(file_.bytes()[at + i]);
    return value;
  };
  constexpr std::size_t kHeaderBytes = 100;
  if (file_.bytes().size() < kHeaderBytes ||
      big_endian(16, 2) * big_endian(28, 4) != file_.bytes().size()) {
    damaged(path_, "the file's length differs from the length in the header");
  }
  if (first_integer(db_, "PRAGMA application_id") != kApplicationId) {
    throw CorruptIndex("the file is a SQLite database, but not a Shardwise index", in_quotes(path_),
                       "give the path of an index that " + spelled("`shardwise index`") + " wrote");
  }
  if (const auto version = first_integer(db_, "PRAGMA user_version"); version != kIndexVersion) {
    throw VersionMismatch("the index has format version " + std::to_string(version) +
                              ", but this library reads version " + std::to_string(kIndexVersion),
                          in_quotes(path_), rebuild_from_sources_remedy());
  }
  sqlite::Statement found = db_.prepare("SELECT sql FROM sqlite_schema ORDER BY name");
  for (const std::string& expected : schema()) {
    if (!found.step() || found.bytes(0) != expected) damaged(path_, "the schema is wrong");
  }
  if (found.step()) damaged(path_, "the schema is wrong");
}

void Catalogue::read_meta() {
  MetaRows rows;
  sqlite::Statement select = db_.prepare("SELECT name, value FROM meta");
  while (select.step()) rows[select.bytes(0)] = select.bytes(1);
  if (rows["checksum"] != meta_checksum(rows)) damaged(path_, "the summary's checksum is wrong");
  try {
    for_each_field(meta_, MetaReader{rows});
  } catch (const InvalidArgument&) {
    damaged(path_, "the summary is wrong");
  }
  if (meta_.table_file.empty() || meta_.table_file.find('/') != std::string::npos) {
    damaged(path_, "the offset table's name is wrong");
  }
  if (!meta_.summary.url_base.empty() && !is_url_base(meta_.summary.url_base)) {
    damaged(path_, "the base of the URLs is wrong");
  }
}

Index::Shard Catalogue::shard(std::uint64_t shard) const {
  SHARDWISE_ASSERT(shard < meta_.summary.num_shards);
  const Lock lock(mutex_);
  sqlite::Statement& select = *select_shard_;
  select.reset();
  select.bind(1, static_cast<std::int64_t>(shard));
  if (!select.step()) damaged(path_, "shard " + std::to_string(shard) + " is missing");
  auto info = read_row<Index::Shard>(select, shard, path_);
  select.reset();
  info.number = shard;
  complete(info);
  info.path = info.url;
  return info;
}

void Catalogue::complete(Index::Shard& row) const {
  auto whole = from_base(row.url, meta_.summary.url_base);
  if (!whole) damaged(path_, "a shard's URL is relative, but the index has no base");
  row.url = *std::move(whole);
}

template <class Row, class Use>
void Catalogue::for_first_rows(const sqlite::Database& db, std::uint64_t count,
                               const Use& use) const {
  sqlite::Statement select =
      db.prepare(select_sql<Row>() + " ORDER BY " + std::string(TableOf<Row>::kNumber));
  std::uint64_t number = 0;
  for (; number < count && select.step(); ++number) use(read_row<Row>(select, number, path_));
  if (number < count) {
    damaged(path_, "rows of the table " + std::string(TableOf<Row>::kName) + " are missing");
  }
}

std::vector<Index::Summary::Field> Catalogue::fields() const {
  std::vector<Index::Summary::Field> fields;
  const Lock lock(mutex_);
  for_first_rows<Index::Summary::Field>(db_, meta_.num_fields, [&](Index::Summary::Field&& row) {
    fields.push_back(std::move(row));
  });
  return fields;
}

// skipped() uses a separate connection. Reading many rows under the lock would delay fork() until
// the last row. With a separate connection, fork() waits for at most one step.

std::vector<Index::SkippedMember> Catalogue::skipped(std::uint64_t limit) const {
  std::vector<Index::SkippedMember> members;
  const std::uint64_t count = std::min(limit, meta_.summary.num_skipped);
  if (count == 0) return members;
  for_first_rows<Index::SkippedMember>(sqlite::Database::over_bytes(bytes(), path_), count,
                                       [&](Index::SkippedMember&& row) {
                                         members.push_back(std::move(row));
                                         // give_way() has an effect only if a query calls
                                         // skipped().
                                         ForkSection::give_way();
                                       });
  return members;
}

void Catalogue::validate(const CancelToken& cancel) const {
  const sqlite::Database db = sqlite::Database::over_bytes(bytes(), path_);
  sqlite::Statement check = db.prepare("PRAGMA quick_check(1)");
  if (!check.step() || check.bytes(0) != "ok") damaged(path_, "SQLite's check of the file failed");
  for_first_rows<Index::Shard>(db, meta_.summary.num_shards, [&](auto&& row) {
    cancel.throw_if_cancelled();
    complete(row);
  });
  for_first_rows<Index::Summary::Field>(db, meta_.num_fields, [](auto&&) {});
  for_first_rows<Index::SkippedMember>(db, meta_.summary.num_skipped, [](auto&&) {});
}

template <class Row>
void CatalogueWriter::Table<Row>::open(const sqlite::Database& db) {
  std::string sql = "INSERT INTO " + std::string(TableOf<Row>::kName) + " VALUES (?, ?";
  for (std::size_t i = 0; i < columns_of<Row>().size(); ++i) sql += ", ?";
  insert = std::make_unique<sqlite::Statement>(db.prepare(sql + ")"));
}

template <class Row>
void CatalogueWriter::Table<Row>::add(const Row& row) {
  const std::vector<Cell> cells = to_cells(row);
  int parameter = 1;
  insert->bind(parameter++, static_cast<std::int64_t>(num_rows));
  for (const Cell& cell : cells) {
    if (cell.is_integer) {
      insert->bind(parameter++, cell.integer);
    } else {
      insert->bind(parameter++, std::string_view(cell.bytes));
    }
  }
  insert->bind(parameter, row_checksum(num_rows, cells));
  insert->run();
  ++num_rows;
}

CatalogueWriter::CatalogueWriter(const std::string& path, std::string url_base)
    : url_base_(std::move(url_base)),
      file_(path),
      db_(std::make_unique<sqlite::Database>(sqlite::Database::create(file_.temporary_path()))) {
  db_->execute("PRAGMA application_id = " + std::to_string(kApplicationId));
  db_->execute("PRAGMA user_version = " + std::to_string(kIndexVersion));
  db_->execute("BEGIN");
  for (const std::string& sql : schema()) db_->execute(sql);
  shards_.open(*db_);
  fields_.open(*db_);
  skipped_.open(*db_);
}

void CatalogueWriter::add_shard(Index::Shard shard) {
  shard.url = below_base(shard.url, url_base_);
  shards_.add(shard);
}
void CatalogueWriter::add_field(const Index::Summary::Field& field) { fields_.add(field); }
void CatalogueWriter::add_skipped(const Index::SkippedMember& skipped) { skipped_.add(skipped); }

void CatalogueWriter::finish(CatalogueMeta meta) {
  MetaRows rows;
  meta.summary.url_base = url_base_;
  for_each_field(std::as_const(meta), MetaWriter{rows});
  rows["checksum"] = meta_checksum(rows);
  {
    sqlite::Statement insert = db_->prepare("INSERT INTO meta VALUES (?, ?)");
    for (const auto& [name, value] : rows) {
      insert.bind(1, name).bind(2, value);
      insert.run();
    }
  }
  shards_.insert.reset();
  fields_.insert.reset();
  skipped_.insert.reset();
  db_->execute("COMMIT");
  db_.reset();
  file_.file().sync();
  SHARDWISE_FAULT_POINT("catalogue.written");
}

}  // namespace shardwise
