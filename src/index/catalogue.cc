#include "index/catalogue.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <utility>

#include "shardwise/base/bytes.h"
#include "shardwise/base/error.h"
#include "shardwise/base/fault_point.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

constexpr std::string_view kRebuild = "build the index again with `shardwise index`";

constexpr const char* kSchema[] = {
    "CREATE TABLE fields (field BLOB NOT NULL PRIMARY KEY, members INTEGER NOT NULL, "
    "bytes INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE shards (shard INTEGER PRIMARY KEY, url BLOB NOT NULL, size INTEGER NOT NULL, "
    "mtime_ns INTEGER NOT NULL, validator BLOB NOT NULL, first_sample INTEGER NOT NULL, samples "
    "INTEGER NOT NULL, "
    "members INTEGER NOT NULL, not_samples INTEGER NOT NULL, archives INTEGER NOT NULL, "
    "trailing_bytes INTEGER NOT NULL, end_marker INTEGER NOT NULL, compression TEXT NOT NULL, "
    "expanded_size INTEGER NOT NULL, content_hash TEXT NOT NULL, header_hash TEXT NOT NULL, "
    "first_header_hash TEXT NOT NULL, segment_checksum TEXT NOT NULL, checksum TEXT NOT NULL)",
    "CREATE TABLE skipped (shard INTEGER NOT NULL, offset INTEGER NOT NULL, name BLOB NOT NULL, "
    "reason TEXT NOT NULL)",
};

std::string hex64(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

[[noreturn]] void damaged(const std::string& path, std::string_view why) {
  throw CorruptIndex("the index is damaged", in_quotes(path) + " (" + std::string(why) + ")",
                     kRebuild);
}

std::uint64_t parse_hex64(std::string_view text, const std::string& path) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
    damaged(path, "a hash is no hash");
  }
  return value;
}

Hash128 parse_hash128(std::string_view text, const std::string& path) {
  if (text.size() != 32) damaged(path, "a hash is no hash");
  return {parse_hex64(text.substr(0, 16), path), parse_hex64(text.substr(16), path)};
}

std::optional<Hash128> parse_content_hash(std::string_view text, const std::string& path) {
  if (text.empty()) return std::nullopt;
  return parse_hash128(text, path);
}

Compression compression_of(std::string_view name, const std::string& path) {
  try {
    return parse_compression(name);
  } catch (const InvalidArgument&) {
    damaged(path, "an unknown compression");
  }
}

std::uint64_t unsigned_column(const sqlite::Statement& row, int column, const std::string& path) {
  const std::int64_t value = row.integer(column);
  if (value < 0) damaged(path, "a negative count");
  return static_cast<std::uint64_t>(value);
}

std::string row_checksum(std::uint64_t number, const ShardRow& row) {
  Hasher128 hasher;
  hasher.update_u64(number);
  hasher.update_u64(row.url.size());
  hasher.update(row.url);
  hasher.update_u64(row.validator.size());
  hasher.update(row.validator);
  for (const std::uint64_t value :
       {row.size_bytes, static_cast<std::uint64_t>(row.mtime_ns), row.first_sample, row.num_samples,
        row.num_members, row.num_not_samples, row.num_archives, row.trailing_bytes,
        std::uint64_t{row.end_marker}, static_cast<std::uint64_t>(row.compression),
        row.expanded_bytes, std::uint64_t{row.content_hash.has_value()},
        row.content_hash.value_or(Hash128{}).high, row.content_hash.value_or(Hash128{}).low,
        row.header_hash.high, row.header_hash.low, row.first_header_hash, row.segment_checksum}) {
    hasher.update_u64(value);
  }
  return hex64(hasher.digest().low);
}

using MetaRows = std::map<std::string, std::string>;

MetaRows to_rows(const CatalogueMeta& meta) {
  std::string columns;  // one a line
  for (const Column& column : meta.columns) columns += to_string(column) + "\n";
  return {{"table_file", meta.table_file},
          {"table_checksum", hex64(meta.table_checksum)},
          {"fingerprint", to_string(meta.fingerprint)},
          {"built_with", meta.built_with},
          {"built_at", meta.built_at},
          {"on_bad", to_string(meta.policies)},
          {"columns", columns},
          {"has_hashes", meta.has_hashes ? "1" : "0"},
          {"keys_are_unique", meta.keys_are_unique ? "1" : "0"},
          {"part", meta.part},
          {"num_shards", std::to_string(meta.num_shards)},
          {"num_samples", std::to_string(meta.num_samples)},
          {"num_members", std::to_string(meta.num_members)},
          {"shard_bytes", std::to_string(meta.shard_bytes)},
          {"content_bytes", std::to_string(meta.content_bytes)},
          {"num_skipped", std::to_string(meta.num_skipped)}};
}

std::string meta_checksum(const MetaRows& rows) {
  Hasher128 hasher;
  for (const auto& [name, value] : rows) {
    if (name == "checksum") continue;
    hasher.update_u64(name.size());
    hasher.update(name);
    hasher.update_u64(value.size());
    hasher.update(value);
  }
  return to_string(hasher.digest());
}

}  // namespace

bool Catalogue::looks_like_one(const std::string& path) {
  constexpr std::size_t kApplicationIdOffset = 68;
  char header[100] = {};
  const File file = File::open_read(path);
  if (file.read_at(0, header, sizeof header) != sizeof header) return false;
  if (std::string_view(header, 16) != std::string_view("SQLite format 3\0", 16)) return false;
  const std::string expected = {'S', 'D', 'W', '1'};
  return std::string_view(header + kApplicationIdOffset, 4) == expected;
}

Catalogue::Catalogue(const std::string& path)
    : path_(path),
      file_(MappedFile::open(path)),
      db_(sqlite::Database::over_bytes(file_.bytes(), path)) {
  require_version_and_schema();
  read_meta();
  select_shard_ = std::make_unique<sqlite::Statement>(db_.prepare(
      "SELECT url, size, mtime_ns, validator, first_sample, samples, members, not_samples, "
      "archives, "
      "trailing_bytes, end_marker, compression, expanded_size, content_hash, header_hash, "
      "first_header_hash, segment_checksum, checksum "
      "FROM shards WHERE shard = ?"));
}

void Catalogue::require_version_and_schema() {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  if (!file_.bytes().starts_with(kMagic)) {
    throw CorruptIndex("not a Shardwise index", in_quotes(path_),
                       "give the path that `shardwise index -o` was given");
  }
  // SQLite reads on where a cut takes nothing that is asked for; we do not.
  const auto big_endian = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<unsigned char>(file_.bytes()[at + i]);
    return value;
  };
  constexpr std::size_t kHeaderBytes = 100;
  if (file_.bytes().size() < kHeaderBytes ||
      big_endian(16, 2) * big_endian(28, 4) != file_.bytes().size()) {
    damaged(path_, "it has another length than it says");
  }
  const auto pragma = [&](const char* sql) {
    sqlite::Statement statement = db_.prepare(sql);
    return statement.step() ? statement.integer(0) : 0;
  };
  if (pragma("PRAGMA application_id") != kApplicationId) {
    throw CorruptIndex("a SQLite database, but not a Shardwise index", in_quotes(path_),
                       "give the path that `shardwise index -o` was given");
  }
  if (const std::int64_t version = pragma("PRAGMA user_version"); version != kCatalogueVersion) {
    throw VersionMismatch("the index has format version " + std::to_string(version) +
                              ", this library reads version " + std::to_string(kCatalogueVersion),
                          in_quotes(path_), kRebuild);
  }
  sqlite::Statement schema = db_.prepare("SELECT sql FROM sqlite_schema ORDER BY name");
  for (const char* expected : kSchema) {
    if (!schema.step() || schema.bytes(0) != expected) damaged(path_, "another schema");
  }
  if (schema.step()) damaged(path_, "another schema");
}

void Catalogue::read_meta() {
  MetaRows rows;
  sqlite::Statement select = db_.prepare("SELECT name, value FROM meta");
  while (select.step()) rows[select.bytes(0)] = select.bytes(1);
  if (rows["checksum"] != meta_checksum(rows)) damaged(path_, "its summary's checksum is wrong");
  const auto number = [&](const char* name) {
    const auto value = parse_int64(rows[name]);
    if (!value || *value < 0) damaged(path_, "a count is missing");
    return static_cast<std::uint64_t>(*value);
  };
  BadPolicies policies;
  std::vector<Column> columns;
  try {
    policies = parse_bad_policies(rows["on_bad"]);
    std::string_view text = rows["columns"];
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      columns.push_back(parse_column(text.substr(0, end)));
      text.remove_prefix(std::min(text.size(), end == text.npos ? end : end + 1));
    }
  } catch (const InvalidArgument&) {
    damaged(path_, "its options are wrong");
  }
  meta_ = {.table_file = rows["table_file"],
           .table_checksum = parse_hex64(rows["table_checksum"], path_),
           .fingerprint = parse_hash128(rows["fingerprint"], path_),
           .built_with = rows["built_with"],
           .built_at = rows["built_at"],
           .policies = policies,
           .columns = columns,
           .has_hashes = rows["has_hashes"] == "1",
           .keys_are_unique = rows["keys_are_unique"] == "1",
           .part = rows["part"],
           .num_shards = number("num_shards"),
           .num_samples = number("num_samples"),
           .num_members = number("num_members"),
           .shard_bytes = number("shard_bytes"),
           .content_bytes = number("content_bytes"),
           .num_skipped = number("num_skipped")};
  if (meta_.table_file.empty() || meta_.table_file.find('/') != std::string::npos) {
    damaged(path_, "its table's name is wrong");
  }
}

ShardRow Catalogue::shard(std::uint64_t shard) const {
  const std::lock_guard lock(mutex_);
  sqlite::Statement& select = *select_shard_;
  select.reset();
  select.bind(1, static_cast<std::int64_t>(shard));
  if (!select.step()) damaged(path_, "shard " + std::to_string(shard) + " is missing");
  const auto count = [&](int column) { return unsigned_column(select, column, path_); };
  ShardRow row{.url = select.bytes(0),
               .size_bytes = count(1),
               .mtime_ns = select.integer(2),
               .validator = select.bytes(3),
               .first_sample = count(4),
               .num_samples = count(5),
               .num_members = count(6),
               .num_not_samples = count(7),
               .num_archives = count(8),
               .trailing_bytes = count(9),
               .end_marker = select.integer(10) != 0,
               .compression = compression_of(select.bytes(11), path_),
               .expanded_bytes = count(12),
               .content_hash = parse_content_hash(select.bytes(13), path_),
               .header_hash = parse_hash128(select.bytes(14), path_),
               .first_header_hash = parse_hex64(select.bytes(15), path_),
               .segment_checksum = parse_hex64(select.bytes(16), path_)};
  const bool intact = select.bytes(17) == row_checksum(shard, row);
  select.reset();
  if (!intact) damaged(path_, "the checksum of shard " + std::to_string(shard) + " is wrong");
  return row;
}

std::vector<FieldInfo> Catalogue::fields() const {
  const std::lock_guard lock(mutex_);
  std::vector<FieldInfo> fields;
  sqlite::Statement select =
      db_.prepare("SELECT field, members, bytes FROM fields ORDER BY CAST(field AS BLOB)");
  while (select.step()) {
    fields.push_back(
        {select.bytes(0), unsigned_column(select, 1, path_), unsigned_column(select, 2, path_)});
  }
  return fields;
}

std::vector<SkippedMember> Catalogue::skipped(std::uint64_t limit) const {
  const std::lock_guard lock(mutex_);
  std::vector<SkippedMember> skipped;
  sqlite::Statement select =
      db_.prepare("SELECT shard, offset, name, reason FROM skipped ORDER BY shard, offset LIMIT ?");
  select.bind(1, static_cast<std::int64_t>(std::min<std::uint64_t>(limit, INT64_MAX)));
  while (select.step()) {
    skipped.push_back({unsigned_column(select, 0, path_), unsigned_column(select, 1, path_),
                       select.bytes(2), select.bytes(3)});
  }
  return skipped;
}

void Catalogue::check() const {
  const std::lock_guard lock(mutex_);
  sqlite::Statement check = db_.prepare("PRAGMA quick_check(1)");
  if (!check.step() || check.bytes(0) != "ok") damaged(path_, "SQLite finds it damaged");
}

CatalogueWriter::CatalogueWriter(const std::string& path)
    : file_(path),
      db_(std::make_unique<sqlite::Database>(sqlite::Database::create(file_.temporary_path()))) {
  db_->execute("PRAGMA application_id = " + std::to_string(kApplicationId));
  db_->execute("PRAGMA user_version = " + std::to_string(kCatalogueVersion));
  db_->execute("BEGIN");
  for (const char* sql : kSchema) db_->execute(sql);
  insert_shard_ = std::make_unique<sqlite::Statement>(db_->prepare(
      "INSERT INTO shards VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  insert_skipped_ =
      std::make_unique<sqlite::Statement>(db_->prepare("INSERT INTO skipped VALUES (?, ?, ?, ?)"));
}

void CatalogueWriter::add_shard(const ShardRow& row) {
  const auto number = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  insert_shard_->bind(1, number(num_shards_))
      .bind(2, row.url)
      .bind(3, number(row.size_bytes))
      .bind(4, row.mtime_ns)
      .bind(5, row.validator)
      .bind(6, number(row.first_sample))
      .bind(7, number(row.num_samples))
      .bind(8, number(row.num_members))
      .bind(9, number(row.num_not_samples))
      .bind(10, number(row.num_archives))
      .bind(11, number(row.trailing_bytes))
      .bind(12, std::int64_t{row.end_marker})
      .bind(13, compression_name(row.compression))
      .bind(14, number(row.expanded_bytes))
      .bind(15, row.content_hash ? to_string(*row.content_hash) : std::string())
      .bind(16, to_string(row.header_hash))
      .bind(17, hex64(row.first_header_hash))
      .bind(18, hex64(row.segment_checksum))
      .bind(19, row_checksum(num_shards_, row));
  insert_shard_->run();
  ++num_shards_;
}

void CatalogueWriter::add_field(const FieldInfo& field) {
  sqlite::Statement insert = db_->prepare("INSERT INTO fields VALUES (?, ?, ?)");
  insert.bind(1, field.name)
      .bind(2, static_cast<std::int64_t>(field.num_members))
      .bind(3, static_cast<std::int64_t>(field.bytes));
  insert.run();
}

void CatalogueWriter::add_skipped(const SkippedMember& skipped) {
  insert_skipped_->bind(1, static_cast<std::int64_t>(skipped.shard))
      .bind(2, static_cast<std::int64_t>(skipped.offset))
      .bind(3, skipped.name)
      .bind(4, skipped.reason);
  insert_skipped_->run();
}

void CatalogueWriter::commit(const CatalogueMeta& meta) {
  MetaRows rows = to_rows(meta);
  rows["checksum"] = meta_checksum(rows);
  {
    sqlite::Statement insert = db_->prepare("INSERT INTO meta VALUES (?, ?)");
    for (const auto& [name, value] : rows) {
      insert.bind(1, name).bind(2, value);
      insert.run();
    }
  }
  insert_shard_.reset();
  insert_skipped_.reset();
  db_->execute("COMMIT");
  db_.reset();
  SHARDWISE_FAULT_POINT("catalogue.written");
  file_.commit();
}

}  // namespace shardwise
