#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/assert.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/index.h"

namespace shardwise {

// The rows of the catalogue's tables. for_each_field() lists the fields of a row. The SQL of the
// tables, the checksums of rows and the journal of builds use this list.

/// A value of a SQLite cell.
struct Cell {
  bool is_integer = false;
  std::int64_t integer = 0;
  std::string bytes = {};  ///< of a text or a blob

  friend bool operator==(const Cell&, const Cell&) = default;
};

/// A 64-bit hash in a row. The catalogue stores it as 16 hexadecimal digits.
template <class Word>
struct HashField {
  Word& word;
};
template <class Word>
HashField(Word&) -> HashField<Word>;

template <class Row, class Of>
concept RowOf = std::same_as<std::remove_const_t<Row>, Of>;

/// Calls visit(name, value) for each column of a row in order, except the row's number. The `path`
/// of a shard is not a column, because it is derived from the url.
template <RowOf<Index::Shard> Row, class Visit>
void for_each_field(Row& row, const Visit& visit) {
  visit("url", row.url);
  visit("size", row.size_bytes);
  visit("mtime_ns", row.mtime_ns);
  visit("validator", row.validator);
  visit("first_sample", row.first_sample);
  visit("samples", row.num_samples);
  visit("members", row.num_members);
  visit("not_samples", row.num_not_samples);
  visit("archives", row.num_archives);
  visit("trailing_bytes", row.trailing_bytes);
  visit("end_marker", row.end_marker);
  visit("compression", row.compression);
  visit("unchecked", row.unchecked);
  visit("expanded_size", row.expanded_bytes);
  visit("content_hash", row.content_hash);
  visit("header_hash", row.header_hash);
  visit("first_header_hash", HashField{row.first_header_hash});
  visit("segment_checksum", HashField{row.segment_checksum});
}

template <RowOf<Index::Summary::Field> Row, class Visit>
void for_each_field(Row& row, const Visit& visit) {
  visit("field", row.name);
  visit("members", row.num_members);
  visit("bytes", row.bytes);
}

template <RowOf<Index::SkippedMember> Row, class Visit>
void for_each_field(Row& row, const Visit& visit) {
  visit("shard", row.shard);
  visit("offset", row.offset);
  visit("name", row.name);
  visit("kind", row.kind);
  visit("reason", row.reason);
}

/// The names of the rows' table and of its column with the row's number.
template <class Row>
struct TableOf;
template <>
struct TableOf<Index::Shard> {
  static constexpr std::string_view kName = "shards", kNumber = "shard";
};
template <>
struct TableOf<Index::Summary::Field> {
  static constexpr std::string_view kName = "fields", kNumber = "number";
};
template <>
struct TableOf<Index::SkippedMember> {
  static constexpr std::string_view kName = "skipped", kNumber = "number";
};

Cell to_cell(std::int64_t value);
Cell to_cell(std::uint64_t value);
Cell to_cell(bool value);
Cell to_cell(const std::string& value);
Cell to_cell(Compression value);
Cell to_cell(Index::SkippedMember::Kind value);
Cell to_cell(const Hash128& value);
Cell to_cell(const std::optional<Hash128>& value);
Cell hash_cell(std::uint64_t hash);
template <class Word>
Cell to_cell(HashField<Word> hash) {
  return hash_cell(hash.word);
}

// Sets a value from its cell. Errors: InvalidArgument if the cell has another kind of value.
void from_cell(const Cell& cell, std::int64_t& value);
void from_cell(const Cell& cell, std::uint64_t& value);
void from_cell(const Cell& cell, bool& value);
void from_cell(const Cell& cell, std::string& value);
void from_cell(const Cell& cell, Compression& value);
void from_cell(const Cell& cell, Index::SkippedMember::Kind& value);
void from_cell(const Cell& cell, Hash128& value);
void from_cell(const Cell& cell, std::optional<Hash128>& value);
std::uint64_t hash_of_cell(const Cell& cell);
inline void from_cell(const Cell& cell, HashField<std::uint64_t> hash) {
  hash.word = hash_of_cell(cell);
}

template <class Row>
std::vector<Cell> to_cells(const Row& row) {
  std::vector<Cell> cells;
  for_each_field(row, [&](const char*, const auto& value) { cells.push_back(to_cell(value)); });
  return cells;
}

/// REQUIRES: `cells` has as many elements as the row has fields. Errors: InvalidArgument.
template <class Row>
Row from_cells(std::span<const Cell> cells) {
  Row row;
  std::size_t next = 0;
  for_each_field(row, [&](const char*, auto&& value) {
    SHARDWISE_ASSERT(next < cells.size());
    from_cell(cells[next++], value);
  });
  SHARDWISE_ASSERT(next == cells.size());
  return row;
}

/// The names of a row's columns.
template <class Row>
std::vector<std::string> columns_of() {
  std::vector<std::string> names;
  const Row row{};
  for_each_field(row, [&](const char* name, const auto&) { names.emplace_back(name); });
  return names;
}

/// Returns the statement that creates the rows' table. Readers compare it verbatim with that of the
/// file.
template <class Row>
std::string create_table_sql() {
  std::string sql = "CREATE TABLE " + std::string(TableOf<Row>::kName) + " (" +
                    std::string(TableOf<Row>::kNumber) + " INTEGER PRIMARY KEY";
  const Row row{};
  for_each_field(row, [&](const char* name, const auto& value) {
    sql +=
        std::string(", ") + name + (to_cell(value).is_integer ? " INTEGER" : " BLOB") + " NOT NULL";
  });
  return sql + ", checksum INTEGER NOT NULL)";
}

/// The checksum of a row: hash64 of its number and of its cells in the layout of pack().
std::int64_t row_checksum(std::uint64_t number, std::span<const Cell> cells);

/// Appends cells to `out`: an integer as 8 bytes, any other value as 8 bytes of length and then the
/// value's bytes.
void pack(std::span<const Cell> cells, std::string& out);
/// Removes the cells of one row, as pack() wrote them, from the front of `bytes`. The kinds of
/// values are those of `like`. Returns nullopt if `bytes` are truncated.
std::optional<std::vector<Cell>> unpack(std::span<const Cell> like, std::string_view& bytes);

}  // namespace shardwise
