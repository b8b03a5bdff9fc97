#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text.h"
#include "commands.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "shardwise/base/error.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/attach.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct AttachOptions {
  std::string index;
  std::string file;
  SideTable::Options table;
  std::string detached;
  bool json = false;
  bool header = false;
};

nlohmann::ordered_json json_of(const SideTable& table, const SideTable::Match& match) {
  return {{"side_table", table.name},
          {"columns", table.columns},
          {"source", table.source},
          {"on", table.key},
          {"attached_at", table.attached_at},
          {"rows", match.num_rows},
          {"rows_without_sample", match.num_rows_without_sample},
          {"samples", match.num_samples},
          {"samples_without_row", match.num_samples_without_row}};
}

/// Returns e.g. "3 rows have no sample (the first: 'x')".
std::string unmatched(std::uint64_t count, const char* what, const char* lacks,
                      const std::string& first) {
  return fmt::format("{} {} no {}{}", counted(count, what), count == 1 ? "has" : "have", lacks,
                     count == 0 ? "" : fmt::format(" (the first: {})", in_quotes(first)));
}

void list_tables(const AttachOptions& options, Output& out) {
  const std::shared_ptr<const Index> index = Index::open(options.index);
  Table table(out,
              {{"side_table"},
               {"rows", Align::kRight},
               {"rows_without_sample", Align::kRight},
               {"samples_without_row", Align::kRight},
               {"columns"},
               {"source"}},
              options.header && !options.json);
  for (const SideTable& side : index->side_tables()) {
    const SideTable::Match match = match_side_table(*index, side.name, interrupt_token());
    if (options.json) {
      print_json(out, "attach", json_of(side, match));
      continue;
    }
    table.add({side.name, std::to_string(match.num_rows),
               std::to_string(match.num_rows_without_sample),
               std::to_string(match.num_samples_without_row),
               fmt::format("{}", fmt::join(side.columns, ",")), escaped(side.source)});
  }
  if (!options.json) table.finish();
}

void attach(const AttachOptions& options, Output& out) {
  SideTable::Options how = options.table;
  how.cancel = interrupt_token();
  const SideTable::Match match = attach_table(options.index, options.file, how);
  const std::vector<SideTable> tables = Index::open(options.index)->side_tables();
  const auto found = std::ranges::find(tables, match.name, &SideTable::name);
  if (found == tables.end()) throw NotFound("another process detached the table", match.name, "");
  const SideTable& table = *found;
  if (options.json) return print_json(out, "attach", json_of(table, match));
  out.print("{}: attached {} with {} and {}\n", escaped(options.index), in_quotes(table.name),
            counted(match.num_rows, "row"), counted(table.columns.size(), "column"));
  out.print(
      "{}\n{}\n",
      unmatched(match.num_rows_without_sample, "row", "sample", match.first_row_without_sample),
      unmatched(match.num_samples_without_row, "sample", "row", match.first_sample_without_row));
}

void run(const AttachOptions& options, Output& out) {
  if (!options.file.empty() && options.table.key.empty()) {
    throw CLI::RequiredError("--on");
  }
  if (!options.file.empty()) return attach(options, out);
  if (options.detached.empty()) return list_tables(options, out);
  detach_table(options.index, options.detached, interrupt_token());
}

}  // namespace

void add_attach_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "attach",
      "Attach the columns of a table to an index, by key: for queries, conditions and weights. "
      "Without FILE, list the side tables of the index");
  const auto options = std::make_shared<AttachOptions>();
  command->add_option("INDEX", options->index, "the index")->required()->type_name("");
  CLI::Option* const file = command->add_option(
      "FILE", options->file,
      "a table: CSV or TSV with the names of the columns in the first line, or SQLite");
  file->type_name("");
  command
      ->add_option("--on", options->table.key, "column of FILE that contains the keys of samples")
      ->type_name("COLUMN")
      ->needs(file);
  command
      ->add_option("--column", options->table.columns,
                   "column to attach, and its name in the index; may be given several times "
                   "(default: all columns)")
      ->type_name("[NAME=]COLUMN")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->needs(file);
  command
      ->add_option("--name", options->table.name,
                   "name of the side table (default: the name of FILE without its extension)")
      ->needs(file);
  command
      ->add_option("--table", options->table.sql_table,
                   "table to read from a SQLite file; needed if the file has several tables")
      ->type_name("TABLE")
      ->needs(file);
  command->add_flag("--replace", options->table.replace, "replace the side table of the same name")
      ->needs(file);
  command->add_option("--detach", options->detached, "remove this side table from the index")
      ->type_name("NAME")
      ->excludes(file);
  command->add_flag("--header", options->header, kHeaderHelp);
  command->add_flag("--json", options->json, "print one JSON object per side table");
  mark_common(*command, {"--on", "--column", "--name", "--replace", "--detach", "--json"});
  command->footer(
      "The columns are stored in the file INDEX.side, and follow updates of the index by key. A "
      "sample without a row has NULL in them. Empty cells of CSV are NULL. A CSV column contains "
      "integers or reals if all of its cells are numbers; otherwise, and for numbers like 007, it "
      "contains texts.\n\n"
      "Examples:\n"
      "  shardwise attach train.idx scores.csv --on key\n"
      "  shardwise query train.idx \"SELECT key, score FROM samples WHERE score > 0.5\"\n"
      "  shardwise attach train.idx laion.sqlite --on id --column 'ratio=aspect ratio'\n"
      "  shardwise attach train.idx --detach scores");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
