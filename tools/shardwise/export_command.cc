#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cache_options.h"
#include "commands.h"
#include "first_use.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "progress.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_export.h"

namespace shardwise::tools {
namespace {

struct ExportOptions {
  std::string index;
  Index::Lookup lookup;
  FirstUse first_use;
  std::string format;
  std::string output;
  std::string name;
  bool md5 = false;
  bool json = false;
};

void export_wids(const Index& index, const ExportOptions& options) {
  Progress progress("exporting", Unit::kBytes, options.first_use.quiet);
  WidsDescriptor::ExportOptions wids;
  wids.name = options.name;
  wids.md5 = options.md5;
  wids.cancel = interrupt_token();
  wids.progress = progress.of_bytes();
  write_wids_descriptor(index, options.output, wids);
}

void run(const ExportOptions& options, Output& out) {
  const bool wids = options.format == "wids";
  if (!wids && (options.md5 || !options.name.empty())) {
    throw CLI::ValidationError("--format dali",
                               "--md5 and --name apply only to --format wids; "
                               "leave out --md5 and --name");
  }
  const std::shared_ptr<const Index> index =
      Index::open(index_path(options.index, options.first_use), options.lookup);
  std::vector<std::string> files = {options.output};
  if (wids) {
    export_wids(*index, options);
  } else {
    files = write_dali_index(*index, options.output, interrupt_token());
  }
  if (options.json) {
    const nlohmann::ordered_json json = {{"index", options.index},
                                         {"format", options.format},
                                         {"files", files},
                                         {"shards", index->num_shards()},
                                         {"samples", index->size()}};
    print_json(out, "export", json);
    return;
  }
  out.print("{}: {} in {}{}\n", escaped(options.output), counted(index->size(), "sample"),
            counted(index->num_shards(), "shard"), wids ? "" : ", one file per shard");
}

}  // namespace

void add_export_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "export", "Write a wids descriptor or DALI index files for other readers");
  const auto options = std::make_shared<ExportOptions>();
  add_index_argument(*command, options->index)->required();
  command
      ->add_option("--format", options->format,
                   "wids: one JSON file; dali: a folder of index files, one per shard")
      ->required()
      ->check(CLI::IsMember({"wids", "dali"}));
  command->add_option("-o,--output", options->output, "file (`*.json`) or folder to write")
      ->required()
      ->type_name("OUT");
  command->add_option("--name", options->name, "name of the data set, in a wids descriptor")
      ->type_name("NAME");
  command->add_flag("--md5", options->md5,
                    "read every shard and store its md5sum, in a wids descriptor");
  add_lookup_options(*command, options->lookup);
  command->add_flag("--json", options->json, "print one JSON object");
  add_first_use_options(*command, options->first_use);
  mark_common(*command, {"--format", "--output", "--name", "--md5", "--json"});
  command->footer(
      "Example:\n  shardwise export train.idx --format wids -o train.json\n"
      "  shardwise export train.idx --format dali -o train-dali");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
