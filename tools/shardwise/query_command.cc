#include <fmt/core.h>

#include <memory>

#include "commands.h"
#include "interrupt.h"
#include "shardwise/base/text.h"
#include "shardwise/index/query.h"

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

void run(const QueryOptions& options, Output& out) {
  Query query(Index::open(options.index), options.sql);
  query.set_cancel(&interrupt_flag());
  std::string line;
  if (options.header && !options.json) {
    for (const std::string& column : query.columns()) line += (line.empty() ? "" : "\t") + column;
    out.print("{}\n", line);
  }
  while (query.next()) {
    throw_if_interrupted();
    if (options.json) {
      print_json_row(query, out);
      continue;
    }
    line.clear();
    for (std::size_t i = 0; i < query.columns().size(); ++i) {
      if (i > 0) line += '\t';
      line += text_of(query.value(i));
    }
    out.print("{}\n", line);
  }
}

}  // namespace

void add_query_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "query",
      "Run read-only SQL over an index: tables samples, members, shards, fields, skipped, and the "
      "columns that `index --column` asked for");
  const auto options = std::make_shared<QueryOptions>();
  command->add_option("INDEX", options->index, "the index")->required()->type_name("");
  command->add_option("SQL", options->sql, "one SELECT")->required()->type_name("");
  command->add_flag("--json", options->json, "print one JSON object a row");
  command->add_flag("--header", options->header, "print the columns' names first");
  command->footer(
      "Examples:\n"
      "  shardwise query train.idx \"SELECT cls, count(*) FROM samples GROUP BY cls\"\n"
      "  shardwise query train.idx \"SELECT field, sum(size) FROM members GROUP BY field\"");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
