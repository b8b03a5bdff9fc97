#include "shardwise/ingest/attach.h"

#include <charconv>
#include <filesystem>
#include <vector>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/sqlite.h"
#include "ingest/csv_reader.h"
#include "ingest/side_table_writer.h"
#include "shardwise/index/index.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kRowsBetweenLooks = 65'536;

/// True if `text` is a decimal number: an optional minus sign, digits without a superfluous leading
/// zero, an optional fraction, and an optional exponent.
bool is_number(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const auto skip_digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - begin;
  };
  const std::size_t begin = at;
  const std::size_t whole = skip_digits();
  if (whole > 1 && text[begin] == '0') return false;
  std::size_t fraction = 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    fraction = skip_digits();
  }
  if (whole + fraction == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    if (skip_digits() == 0) return false;
  }
  return at == text.size();
}

/// The kind of a CSV cell or column. A column's kind is the greatest of its cells' kinds.
enum class CellKind : std::uint8_t { kNull, kInteger, kReal, kText };

/// Returns the kind of a cell. If the cell is a number, sets `value` to it.
CellKind kind_of(std::string_view cell, MetadataValue& value) {
  if (cell.empty()) return CellKind::kNull;
  const std::string_view text = trimmed(cell);
  if (!is_number(text)) return CellKind::kText;
  if (text.find_first_of(".eE") == std::string_view::npos) {
    const auto integer = parse_int64(text);
    if (!integer) return CellKind::kText;
    value.type = ValueType::kInteger;
    value.integer = *integer;
    return CellKind::kInteger;
  }
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value.real).ec != std::errc()) return CellKind::kText;
  value.type = ValueType::kReal;
  return CellKind::kReal;
}

/// Returns the value of a cell in a column of this kind.
MetadataValue value_of_cell(std::string_view cell, CellKind column) {
  MetadataValue value;
  if (cell.empty()) return value;
  if (column != CellKind::kText && kind_of(cell, value) <= column) {
    if (column == CellKind::kReal && value.type == ValueType::kInteger) {
      value.real = static_cast<double>(value.integer);
      value.type = ValueType::kReal;
    }
    return value;
  }
  value.type = ValueType::kText;
  value.bytes = cell;
  return value;
}

/// A CSV file whose records all have as many cells as the header.
class CsvTable {
 public:
  CsvTable(const std::string& path, const CancelToken& cancel)
      : reader_(path, separator_of(path)), cancel_(cancel) {
    std::vector<std::string_view> cells;
    if (!reader_.next(cells)) {
      throw InvalidArgument("the table is empty", in_quotes(path),
                            "its first line must name the columns");
    }
    columns_.assign(cells.begin(), cells.end());
  }

  const std::vector<std::string>& columns() const noexcept { return columns_; }

  bool next(std::vector<std::string_view>& cells) {
    if (num_rows_++ % kRowsBetweenLooks == 0) cancel_.throw_if_cancelled();
    if (!reader_.next(cells)) return false;
    if (cells.size() != columns_.size()) {
      reader_.refuse("the record has " + std::to_string(cells.size()) + " cells, the header has " +
                         std::to_string(columns_.size()),
                     "give all records the same number of cells; a file that ends in .tsv is "
                     "separated by tabs, any other by commas");
    }
    return true;
  }

 private:
  static char separator_of(const std::string& path) {
    const std::string lower = to_lower(path);
    return lower.ends_with(".tsv") || lower.ends_with(".tab") ? '\t' : ',';
  }

  CsvReader reader_;
  const CancelToken cancel_;
  std::vector<std::string> columns_;
  std::uint64_t num_rows_ = 0;
};

/// Reads the file twice: first to find the kinds of columns, then to write the rows.
SideTable::Match attach_csv(const std::string& index, const std::string& file,
                            const SideTable::Options& options) {
  const FileIdentity identity = file_identity(file);
  CsvTable first(file, options.cancel);
  detail::SideTableWriter writer(index, first.columns(), file, options);
  const std::vector<std::size_t>& places = writer.places();
  std::vector<CellKind> kinds(places.size(), CellKind::kNull);
  std::vector<std::string_view> cells;
  MetadataValue value;
  while (first.next(cells)) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (kinds[i] != CellKind::kText) {
        kinds[i] = std::max(kinds[i], kind_of(cells[places[i]], value));
      }
    }
  }
  CsvTable again(file, options.cancel);
  std::vector<MetadataValue> values(places.size());
  while (again.next(cells)) {
    MetadataValue key;
    key.type = ValueType::kText;
    key.bytes = cells[writer.key_place()];
    for (std::size_t i = 0; i < places.size(); ++i) {
      values[i] = value_of_cell(cells[places[i]], kinds[i]);
    }
    writer.add(key, values);
  }
  if (file_identity(file) != identity) {
    throw InvalidArgument("the table changed while it was read", in_quotes(file),
                          "attach it again");
  }
  return writer.finish(options.cancel);
}

/// Returns a name in quotes for SQL.
std::string sql_name(const std::string& name) {
  std::string quoted = "\"";
  for (const char c : name) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

/// Calls `call`, which reads a SQLite file of the user. Replaces the texts of errors, because they
/// are about indexes.
template <class Call>
auto reading(const std::string& file, const Call& call) {
  try {
    return call();
  } catch (const CorruptIndex& e) {
    throw InvalidArgument("the SQLite file cannot be read", in_quotes(file) + " (" + e.what() + ")",
                          "check it with the program sqlite3");
  }
}

/// Returns the texts in the first column of a query's result.
std::vector<std::string> texts_of(const sqlite::Database& db, const std::string& sql,
                                  std::string_view argument = {}) {
  std::vector<std::string> texts;
  sqlite::Statement statement = db.prepare(sql);
  if (!argument.empty()) statement.bind(1, argument);
  while (statement.step()) texts.push_back(statement.bytes(0));
  return texts;
}

std::string chosen_table(const std::string& file, const std::vector<std::string>& tables,
                         const std::string& wanted) {
  if (wanted.empty() && tables.size() == 1) return tables.front();
  for (const std::string& table : tables) {
    if (table == wanted) return table;
  }
  std::string names;
  for (const std::string& table : tables) names += (names.empty() ? "" : ", ") + in_quotes(table);
  throw InvalidArgument(
      wanted.empty() ? "the SQLite file has " + std::to_string(tables.size()) + " tables"
                     : "the SQLite file has no table " + in_quotes(wanted),
      in_quotes(file),
      tables.empty() ? "name another file"
                     : "name one with " + spelled("SideTable::Options::sql_table") + ": " + names);
}

SideTable::Match attach_sqlite(const std::string& index, const std::string& file,
                               const SideTable::Options& options) {
  const sqlite::Database db = reading(file, [&] { return sqlite::Database::open_existing(file); });
  std::string table;
  std::vector<std::string> columns;
  reading(file, [&] {
    if (texts_of(db, "PRAGMA encoding").front() != "UTF-8") {
      throw Unsupported("the text of the SQLite file is UTF-16", in_quotes(file),
                        "convert it to UTF-8 (PRAGMA encoding, then VACUUM)");
    }
    table = chosen_table(file,
                         texts_of(db,
                                  "SELECT name FROM sqlite_master WHERE type = 'table' AND "
                                  "name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"),
                         options.sql_table);
    columns = texts_of(db, "SELECT name FROM pragma_table_info(?)", table);
  });
  detail::SideTableWriter writer(index, columns, file, options);
  std::string sql = "SELECT " + sql_name(columns[writer.key_place()]);
  for (const std::size_t place : writer.places()) sql += ", " + sql_name(columns[place]);
  sqlite::Statement rows =
      reading(file, [&] { return db.prepare(sql + " FROM " + sql_name(table)); });
  std::vector<MetadataValue> values(writer.places().size());
  for (std::uint64_t row = 0; reading(file, [&] { return rows.step(); }); ++row) {
    if (row % kRowsBetweenLooks == 0) options.cancel.throw_if_cancelled();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = rows.value(static_cast<int>(i) + 1);
    writer.add(rows.value(0), values);
  }
  return writer.finish(options.cancel);
}

bool is_sqlite(std::string_view start) { return start == sqlite::kMagic; }

void require_readable(std::string_view start, const std::string& file) {
  if (start.starts_with("PAR1")) {
    throw Unsupported("a Parquet file is read by Python only", in_quotes(file),
                      "call shardwise.attach() in Python, or convert the file to CSV");
  }
  if (start.starts_with("\x1F\x8B") || start.starts_with("\x28\xB5\x2F\xFD") ||
      start.starts_with("PK\x03\x04") || start.starts_with("ARROW1") ||
      (!is_sqlite(start) && start.find('\0') != std::string_view::npos)) {
    throw Unsupported("the file is neither CSV nor SQLite", in_quotes(file),
                      "expand or convert it first");
  }
}

}  // namespace

SideTable::Match attach_table(const std::string& index, const std::string& file,
                              const SideTable::Options& options) {
  for (const std::string* const path : {&index, &file}) {
    if (!is_fetched_url(*path)) continue;
    throw Unsupported("a table is attached to a local index, from a local file",
                      in_quotes(redacted_url(*path)), "download it first");
  }
  static_cast<void>(Index::open(index));  // report errors of the index before those of the table
  const std::string path = at_home(file);
  SideTable::Options how = options;
  if (how.name.empty()) how.name = std::filesystem::path(path).stem().string();
  std::string start(16, '\0');
  start.resize(File::open_read(path).read_at(0, start.data(), start.size()));
  require_readable(start, path);
  return is_sqlite(start) ? attach_sqlite(index, path, how) : attach_csv(index, path, how);
}

}  // namespace shardwise
