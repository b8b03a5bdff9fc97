#include <fmt/core.h>

#include <memory>
#include <optional>

#include "base/text.h"
#include "base/url.h"
#include "cache_options.h"
#include "commands.h"
#include "fetch_options.h"
#include "first_use.h"
#include "index/missing_shards.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "shardwise/base/error.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/verify.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct VerifyArguments {
  std::string index;
  Index::Lookup lookup;
  FirstUse first_use;
  bool full = false;
  std::optional<unsigned> threads = {};
  bool header = false;
  bool json = false;
};

bool is_unread(const std::optional<std::string>& problem) {
  return problem && problem->starts_with(kNotVerified);
}

const char* state_of(const std::optional<std::string>& problem) {
  return !problem ? "ok" : is_unread(problem) ? "UNREAD" : "DIFFERS";
}

void print_result(const Index::Shard& shard, const std::optional<std::string>& problem, bool json,
                  Output& out) {
  if (!json) {
    // Blanks, not tabs: scripts rely on this form.
    out.print("{:<7}  {}{}{}\n", state_of(problem), escaped(without_secrets(shard.path)),
              problem ? ": " : "", problem.value_or(""));
    return;
  }
  std::string line = fmt::format("{{\"shard\":{},", shard.number);
  append_json_name(line, "url", without_secrets(shard.path));
  line += !problem             ? ",\"ok\":true"
          : is_unread(problem) ? ",\"ok\":null,\"problem\":"
                               : ",\"ok\":false,\"problem\":";
  if (problem) append_json_string(line, *problem);
  out.print("{}}}\n", line);
}

void run(const VerifyArguments& options, Output& out) {
  FoundIndex found = find_index(options.index, options.first_use);
  Index::Lookup lookup = options.lookup;
  lookup.urls = std::move(found.urls);
  const std::shared_ptr<const Index> index = Index::open(found.path, lookup);
  check_servers(options.first_use.fetching, *index, options.first_use.quiet);
  const Index::Summary summary = index->summary();
  {
    Progress progress("checking the index", Unit::kSamples, options.first_use.quiet);
    index->validate(interrupt_token(), [&](std::uint64_t samples_done) {
      progress.update(samples_done, summary.num_samples, [] { return std::string(); });
    });
    progress.clear();
  }
  Progress progress("verifying", Unit::kBytes, options.first_use.quiet);
  std::uint64_t num_different = 0;
  std::uint64_t num_unread = 0;
  std::uint64_t num_missing = 0;
  std::optional<Index::Shard> first_missing;
  const auto remote = make_remote_access(
      std::make_shared<const Fetchers>(fetching_of(options.first_use.fetching, index->path())),
      nullptr, interrupt_token());
  const bool tabular = out.is_terminal() && !options.json;
  Table table(out, {{"state"}, {"url", Align::kLeft, Cut::kStart}, {"problem"}});
  if (options.header && !tabular && !options.json) out.print("{}\n", out.head("state    url"));
  const auto show = [&](const shardwise::Progress& at) {
    progress.update(at.bytes_done, at.num_bytes, [&] {
      return fmt::format("{} of {}", human_count(at.shards_done), counted(at.num_shards, "shard"));
    });
  };
  show({.num_bytes = summary.shard_bytes, .num_shards = summary.num_shards});
  const auto report = [&](std::uint64_t number, std::optional<std::string> problem) {
    throw_if_interrupted();
    const Index::Shard shard = index->shard(number);
    num_unread += is_unread(problem) ? 1 : 0;
    num_different += problem && !is_unread(problem) ? 1 : 0;
    if (problem && is_missing(shard)) {
      problem = "the shard does not exist";  // shortened: the final error says what to do
      ++num_missing;
      if (!first_missing) first_missing = shard;
    }
    if (tabular) {
      table.add({state_of(problem), escaped(without_secrets(shard.path)), problem.value_or("")});
    } else {
      print_result(shard, problem, options.json, out);
    }
  };
  verify_shards(*index,
                {.full = options.full,
                 .threads = options.threads,
                 .cancel = interrupt_token(),
                 .remote = remote,
                 .progress = show},
                report);
  progress.clear();
  if (tabular) table.finish();
  const std::string shards = counted(summary.num_shards, "shard");
  if (num_missing > 0 && num_missing == num_different) {
    throw NotFound(fmt::format("{} of {} {} missing", human_count(num_missing), shards,
                               num_missing == 1 ? "is" : "are"),
                   in_quotes(options.index), how_to_find(*index, *first_missing));
  }
  if (num_different > 0) {
    throw StaleIndex(
        fmt::format(
            "{} of {} {} from the index{}", human_count(num_different), shards,
            num_different == 1 ? "differs" : "differ",
            num_missing == 0 ? "" : fmt::format(", {} of them missing", human_count(num_missing))),
        in_quotes(options.index),
        "restore the shards, or run `shardwise index` again to index their new content");
  }
  if (num_unread > 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("{} of {} could not be read, and so {} unverified",
                            human_count(num_unread), shards, num_unread == 1 ? "is" : "are"),
                in_quotes(options.index),
                "see the reasons above; run `shardwise verify` again when all shards can be read");
  }
}

}  // namespace

void add_verify_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "verify",
      "Check every shard against the index: its size, its modification time and all headers");
  const auto options = std::make_shared<VerifyArguments>();
  add_index_argument(*command, options->index)->required();
  command->add_flag("--full", options->full,
                    "check every byte against the hashes that `shardwise index --hash` stored");
  command
      ->add_option("--threads", options->threads,
                   "verifying threads; 0 means only the calling thread (default: one per core, or "
                   "up to 16 for remote shards)")
      ->check(kNumThreads)
      ->type_name("N");
  add_lookup_options(*command, options->lookup);
  command->add_flag("--header", options->header, kHeaderHelp);
  command->add_flag("--json", options->json, "print one JSON object per shard");
  add_first_use_options(*command, options->first_use);
  mark_common(*command, {"--full", "--root", "--quiet", "--json"});
  command->footer("Example:\n  shardwise verify train.idx");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
