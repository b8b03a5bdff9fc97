#include <fmt/core.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"
#include "interrupt.h"
#include "schema.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"
#include "shardwise/index/query.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct QueryOptions {
  std::string index;
  std::string sql;
  bool json = false;
  bool header = false;
};

void append_json_value(std::string& line, const MetadataValue& value) {
  switch (value.type) {
    case ValueType::kNull:
      line += "null";
      break;
    case ValueType::kInteger:
      line += std::to_string(value.integer);
      break;
    case ValueType::kReal:
      line += fmt::format("{}", value.real);
      break;
    case ValueType::kText:
      append_json_string(line, value.bytes);
      break;
    case ValueType::kBlob:
      append_json_string(line, hex(value.bytes));
      break;
  }
}

/// As the sqlite3 shell's tab-separated output, but with what would break a line escaped.
std::string text_of(const MetadataValue& value) {
  switch (value.type) {
    case ValueType::kNull:
      return "NULL";
    case ValueType::kInteger:
      return std::to_string(value.integer);
    case ValueType::kReal:
      return fmt::format("{}", value.real);
    case ValueType::kText:
    case ValueType::kBlob:
      break;
  }
  return escaped(value.bytes);
}

/// A blob's name ends in _hex, as that of other names that are not UTF-8.
void print_json_row(const Query& query, Output& out) {
  std::string line = "{";
  for (std::size_t i = 0; i < query.columns().size(); ++i) {
    if (i > 0) line += ',';
    const MetadataValue value = query.value(i);
    append_json_string(line, query.columns()[i] + (value.type == ValueType::kBlob ? "_hex" : ""));
    line += ':';
    append_json_value(line, value);
  }
  out.print("{}}}\n", line);
}

std::string read_all(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The SQL itself, "-" for standard input, or "@file".
std::string sql_of(const std::string& text) {
  if (text == "-") return read_all(std::cin);
  if (!text.starts_with('@')) return text;
  const std::string path = text.substr(1);
  std::ifstream file(path);
  if (!file) throw_errno(errno, "cannot open the file with the query", path);
  return read_all(file);
}

void print_schema(const Index& index, const QueryOptions& options, Output& out) {
  if (options.json) {
    for (const SchemaColumn& column : query_schema(index)) {
      out.print("{}\n", json_text({{"table", column.table},
                                   {"column", column.name},
                                   {"type", column.type},
                                   {"text", column.text}}));
    }
    return;
  }
  Table table(out, {{"table"}, {"column"}, {"type"}, {"what it is"}}, options.header);
  for (const SchemaColumn& column : query_schema(index)) {
    table.add({column.table, escaped(column.name), column.type, column.text});
  }
  table.finish();
}

void run(const QueryOptions& options, Output& out) {
  const std::shared_ptr<const Index> index = Index::open(options.index);
  const std::string sql = sql_of(options.sql);
  if (const std::size_t begin = sql.find_first_not_of(" \t\r\n");
      begin != std::string::npos && sql[begin] == '.') {
    const std::size_t end = sql.find_last_not_of(" \t\r\n");
    if (sql.substr(begin, end + 1 - begin) == ".schema") return print_schema(*index, options, out);
    throw CLI::ValidationError("SQL", "the only command with a dot is .schema");
  }
  Query query(index, sql);
  query.set_cancel(&interrupt_flag());
  std::vector<TableColumn> columns;
  for (const std::string& name : query.columns()) {
    columns.push_back({escaped(name), Align::kByContent});
  }
  Table table(out, std::move(columns), options.header && !options.json);
  while (query.next()) {
    throw_if_interrupted();
    if (options.json) {
      print_json_row(query, out);
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
      "Run read-only SQL over an index: over its samples, members, shards and fields, and the "
      "columns that `index --column` asked for");
  const auto options = std::make_shared<QueryOptions>();
  command->add_option("INDEX", options->index, "the index")->required()->type_name("");
  command
      ->add_option("SQL", options->sql,
                   "one SELECT; - reads it from standard input, @FILE from a file; .schema shows "
                   "the tables and columns")
      ->required()
      ->type_name("");
  command->add_flag("--json", options->json, "print one JSON object a row");
  command->add_flag("--header", options->header,
                    "name the columns first; on a terminal they always are");
  command->footer(
      "Examples:\n"
      "  shardwise query train.idx .schema\n"
      "  shardwise query train.idx \"SELECT cls, count(*) FROM samples GROUP BY cls\"\n"
      "  shardwise query train.idx \"SELECT field, sum(size) FROM members GROUP BY field\"");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
