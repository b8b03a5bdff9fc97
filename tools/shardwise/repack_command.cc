#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "cache_options.h"
#include "commands.h"
#include "fetch_options.h"
#include "first_use.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "progress.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/repack.h"

namespace shardwise::tools {
namespace {

struct RepackArguments {
  std::string index;
  std::string directory;
  FirstUse first_use;
  Index::Lookup lookup;
  CacheArguments cache;
  std::optional<std::string> where;
  Repacking::Options how;
  bool json = false;
};

void print_report(const RepackArguments& options, const Repacking::Report& report, double seconds,
                  Output& out) {
  if (options.json) {
    print_json(out, "repack",
               {{"directory", options.directory},
                {"dry_run", options.how.dry_run},
                {"index", report.index},
                {"shards", report.shards},
                {"shards_resumed", report.shards_resumed},
                {"samples", report.samples},
                {"shard_bytes", report.shard_bytes},
                {"seconds", seconds}});
    return;
  }
  if (options.how.dry_run) {
    out.print("would write into {}: {} in {}\n", escaped(options.directory),
              counted(report.samples, "sample"), counted(report.shards, "shard"));
    return;
  }
  out.print("{}: {} in {}, {}", escaped(options.directory), counted(report.samples, "sample"),
            counted(report.shards, "shard"), human_bytes(report.shard_bytes));
  if (report.shards_resumed != 0) {
    out.print(" ({} by an interrupted run)", counted(report.shards_resumed, "shard"));
  }
  out.print(", index {}, {:.2f} s\n", escaped(report.index), seconds);
}

void run(const RepackArguments& options, Output& out) {
  FirstUse first_use = options.first_use;
  first_use.fetching = options.cache.fetching;
  Dataset data = open_dataset(find_index(options.index, first_use), options.lookup,
                              Dataset::Access::kMap, options.cache, /*allow_part=*/false,
                              interrupt_token(), /*wait_for_whole_shards=*/true);
  check_servers(options.cache.fetching, data.index(), first_use.quiet);
  data = selected(std::move(data), options.where, first_use.quiet);
  Progress progress("repacking", Unit::kSamples, first_use.quiet);
  Repacking::Options how = options.how;
  how.cancel = interrupt_token();
  how.progress = [&](const shardwise::Progress& at) {
    progress.update(at.samples, data.size(), [&] {
      return fmt::format("{} of {}", human_count(at.shards_done), counted(at.num_shards, "shard"));
    });
  };
  try {
    const Repacking::Report report = repack(data, options.directory, how);
    progress.clear();
    print_report(options, report, progress.seconds(), out);
  } catch (const Cancelled&) {
    throw Interrupted(how.dry_run ? "interrupted"
                                  : "interrupted; run the same command to continue");
  }
}

}  // namespace

void add_repack_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "repack",
      "Write all or selected samples into new shards, in a new order or with a new "
      "shard size");
  const auto options = std::make_shared<RepackArguments>();
  add_index_argument(*command, options->index)->required();
  command->add_option("-o,--output", options->directory, "folder for the new shards")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--where", options->where,
                   "use only the samples for which this SQL condition holds, e.g. \"cls = 7\"")
      ->type_name("SQL");
  command
      ->add_option("--shuffle", options->how.shuffle,
                   "shuffle all samples by this seed (default: keep their order)")
      ->transform(kWholeNumber)
      ->type_name("SEED");
  Repacking::Options& how = options->how;
  add_new_shard_options(*command, how.max_samples, how.max_bytes, how.prefix);
  command->add_option("--index", how.index, "new index (default: shards.idx in DIR)")
      ->type_name("FILE");
  command
      ->add_option("--threads", how.threads,
                   "copying threads; 0 means only the calling thread (default: one per core)")
      ->check(kNumThreads)
      ->type_name("N");
  command->add_flag("--force", how.restart,
                    "replace the shards of an earlier `shardwise repack`, but no other file");
  command->add_flag("--dry-run", how.dry_run, "count samples and shards, and write nothing");
  command->add_flag("--json", options->json, "print the report as one JSON object");
  add_lookup_options(*command, options->lookup);
  add_cache_options(*command, options->cache);
  add_first_use_options(*command, options->first_use);
  mark_common(*command, {"--output", "--where", "--shuffle", "--max-samples", "--max-bytes",
                         "--index", "--force", "--dry-run", "--json"});
  command->footer(
      "Keys, fields and bytes do not change. The new index has the metadata columns of the old "
      "one, but not its side tables: attach these to the new index.\n"
      "Equal data and options give equal shards, byte for byte. An interrupted run continues when "
      "it is repeated.\n\n"
      "Example:\n  shardwise repack train.idx -o small --where \"cls < 10\" --shuffle 1");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
