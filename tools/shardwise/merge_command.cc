#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "build_notes.h"
#include "commands.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "progress.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise::tools {
namespace {

struct MergeOptions {
  std::string index;
  std::vector<std::string> parts;
  bool quiet = false;
  bool json = false;
};

void run(const MergeOptions& options, Output& out) {
  Progress progress("merging", Unit::kBytes, options.quiet);
  BuildOptions build;
  build.cancel = interrupt_token();
  build.progress = [&](const auto& at) {
    progress.update(at.bytes_done, at.num_bytes, [&] {
      return fmt::format("{} of {}", human_count(at.shards_done), counted(at.num_shards, "shard"));
    });
  };
  const BuildReport report = merge_indexes(options.index, options.parts, build);
  progress.clear();
  if (options.json) {
    const nlohmann::ordered_json json = {{"index", options.index},
                                         {"num_parts", options.parts.size()},
                                         {"shards", report.summary.num_shards},
                                         {"samples", report.summary.num_samples},
                                         {"members", report.summary.num_members},
                                         {"fingerprint", to_string(report.summary.fingerprint)},
                                         {"seconds", progress.seconds()}};
    print_json(out, "merge", json);
    return;
  }
  out.print("{}: {} in {} from {}, {:.2f} s\n", escaped(options.index),
            counted(report.summary.num_samples, "sample"),
            counted(report.summary.num_shards, "shard"), counted(options.parts.size(), "part"),
            progress.seconds());
  say_members_left_out(report.summary.num_skipped, options.index);
}

}  // namespace

void add_merge_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "merge", "Join the parts of an index that `shardwise index --part I/N` built");
  const auto options = std::make_shared<MergeOptions>();
  command->add_option("-o,--output", options->index, "index to write")
      ->required()
      ->type_name("INDEX");
  command->add_flag("--quiet", options->quiet, "show no progress");
  command->add_flag("--json", options->json, "print the report as one JSON object");
  command->add_option("PART", options->parts, "all parts of the index, in any order")
      ->required()
      ->type_name("");
  command->footer(
      "Example:\n  shardwise index -o part1.idx --part 1/2 shards/\n"
      "  shardwise index -o part2.idx --part 2/2 shards/\n"
      "  shardwise merge -o train.idx part1.idx part2.idx");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
