#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/lines.h"
#include "base/normal_path.h"
#include "base/text.h"
#include "commands.h"
#include "first_use.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "progress.h"
#include "schema.h"
#include "shardwise/base/error.h"
#include "shardwise/index/query.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct QueryOptions {
  std::string index;
  FirstUse first_use;
  std::string sql;
  Query::Limits limits;
  bool json = false;
  bool header = false;
};

constexpr const char* kHexSuffix = "_hex";

/// Whether a value is shown in hexadecimal: blobs, and text that is not UTF-8.
bool is_shown_as_hex(const Query::Value& value) {
  return value.type == Query::Value::Type::kBlob ||
         (value.type == Query::Value::Type::kText && !is_utf8(value.bytes));
}

/// Returns names for the columns as keys of one JSON object: UTF-8, and unique with and without the
/// suffix "_hex".
std::vector<std::string> json_names(const std::vector<std::string>& columns) {
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (const std::string& column : columns) {
    const std::string name = is_utf8(column) ? column : escaped(column);
    std::string free = name;
    for (int n = 1; taken.contains(free) || taken.contains(free + kHexSuffix); ++n) {
      free = fmt::format("{}:{}", name, n);
    }
    taken.insert({free, free + kHexSuffix});
    names.push_back(free);
  }
  return names;
}

void append_json_value(std::string& line, const Query::Value& value) {
  switch (value.type) {
    case Query::Value::Type::kNull:
      line += "null";
      break;
    case Query::Value::Type::kInteger:
      line += std::to_string(value.integer);
      break;
    case Query::Value::Type::kReal:
      // JSON has no infinity, and null would be wrong, so print a string. SQLite has no NaN.
      line += std::isfinite(value.real) ? fmt::format("{}", value.real)
              : value.real < 0          ? R"("-Infinity")"
                                        : R"("Infinity")";
      break;
    case Query::Value::Type::kText:
    case Query::Value::Type::kBlob:
      append_json_string(line, is_shown_as_hex(value) ? hex(value.bytes) : value.bytes);
      break;
  }
}

/// Formats a value like the sqlite3 shell's tab-separated output. Escapes characters that break a
/// line.
std::string text_of(const Query::Value& value) {
  switch (value.type) {
    case Query::Value::Type::kNull:
      return "NULL";
    case Query::Value::Type::kInteger:
      return std::to_string(value.integer);
    case Query::Value::Type::kReal:
      return fmt::format("{}", value.real);
    case Query::Value::Type::kText:
    case Query::Value::Type::kBlob:
      break;
  }
  return escaped(value.bytes);
}

void print_json_row(const Query& query, const std::vector<std::string>& names, Output& out) {
  std::string line = "{";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) line += ',';
    const Query::Value value = query.value(i);
    append_json_string(line, names[i] + (is_shown_as_hex(value) ? kHexSuffix : ""));
    line += ':';
    append_json_value(line, value);
  }
  out.print("{}}}\n", line);
}

/// Returns the SQL that the argument means: SQL itself, "-" for standard input, or "@file".
std::string sql_of(const std::string& text) {
  constexpr std::string_view kWhat = "the query";
  if (text == "-") return read_text("", kMaxQueryBytes, kWhat);
  if (!text.starts_with('@')) return text;
  if (text == "@") throw CLI::ValidationError("SQL", "no file name follows the @; write @FILE");
  return read_text(at_home(text.substr(1)), kMaxQueryBytes, kWhat);
}

void print_schema(const Index& index, const QueryOptions& options, Output& out) {
  if (options.json) {
    for (const SchemaColumn& column : query_schema(index)) {
      print_json(out, "query",
                 {{"table", column.table},
                  {"column", column.name},
                  {"type", column.type},
                  {"text", column.text}});
    }
    return;
  }
  Table table(out, {{"table"}, {"column"}, {"type"}, {"meaning"}}, options.header);
  for (const SchemaColumn& column : query_schema(index)) {
    table.add({column.table, escaped(column.name), column.type, column.text});
  }
  table.finish();
}

void run(const QueryOptions& options, Output& out) {
  const std::shared_ptr<const Index> index =
      Index::open(index_path(options.index, options.first_use));
  const std::string sql = sql_of(options.sql);
  if (const std::size_t begin = sql.find_first_not_of(" \t\r\n");
      begin != std::string::npos && sql[begin] == '.') {
    const std::size_t end = sql.find_last_not_of(" \t\r\n");
    if (sql.substr(begin, end + 1 - begin) == ".schema") return print_schema(*index, options, out);
    throw CLI::ValidationError("SQL",
                               in_quotes(sql.substr(begin, end + 1 - begin)) +
                                   " is not a dot command; write .schema, the only dot command");
  }
  Query query(index, sql, options.limits);
  query.set_cancel(interrupt_token());
  const std::vector<std::string> names = json_names(query.columns());
  std::vector<TableColumn> columns;
  for (const std::string& name : query.columns()) {
    columns.push_back({escaped(name), Align::kByContent});
  }
  Table table(out, std::move(columns), options.header && !options.json);
  const Progress progress("querying", Unit::kSamples, options.first_use.quiet);
  while (query.next()) {
    throw_if_interrupted();
    if (options.json) {
      print_json_row(query, names, out);
      continue;
    }
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < query.columns().size(); ++i) {
      cells.push_back(text_of(query.value(i)));
    }
    table.add(std::move(cells));
  }
  if (!options.json) table.finish();
}

}  // namespace

void add_query_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "query",
      "Run a read-only SQL query on the index: its tables are samples (with the columns of `index "
      "--column`), members, shards, fields and skipped");
  const auto options = std::make_shared<QueryOptions>();
  add_index_argument(*command, options->index)->required();
  command
      ->add_option("SQL", options->sql,
                   "one SELECT statement; `-` reads it from standard input, `@FILE` from a file; "
                   "`.schema` lists the tables and columns")
      ->required()
      ->type_name("");
  add_byte_size(*command, "--scratch-bytes", options->limits.scratch_bytes,
                "maximum size of temporary files for sorting and grouping, in the folder TMPDIR")
      ->default_str("4G");
  command->add_flag("--json", options->json, "print one JSON object per row");
  command->add_flag("--header", options->header, kHeaderHelp);
  add_first_use_options(*command, options->first_use);
  mark_common(*command, {"--header", "--json", "--quiet"});
  command->footer(
      "Text is compared byte by byte, except with COLLATE. With --json, blobs and text that is not "
      "UTF-8 are printed in hexadecimal, under a name that ends in `_hex`. Infinite numbers are "
      "\"Infinity\" or \"-Infinity\". A second column of the same name is `name:1`.\n\n"
      "Examples:\n"
      "  shardwise query train.idx .schema\n"
      "  shardwise query train.idx \"SELECT cls, count(*) FROM samples GROUP BY cls\"\n"
      "  shardwise query train.idx \"SELECT field, sum(size) FROM members GROUP BY field\"");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
