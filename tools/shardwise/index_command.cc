#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "shardwise/base/text.h"
#include "shardwise/index/index_builder.h"
#include "shardwise/index/source_list.h"

namespace shardwise::tools {
namespace {

struct IndexOptions {
  std::string index;
  std::vector<std::string> sources;
  unsigned threads = 0;
  std::string on_bad = "error";
  bool quiet = false;
  bool json = false;
};

std::vector<std::string> paths_of(const std::vector<std::string>& shards,
                                  const std::vector<std::uint64_t>& numbers) {
  std::vector<std::string> paths;
  for (const std::uint64_t number : numbers) paths.push_back(shards[number]);
  return paths;
}

/// "a.tar, b.tar and 12 more"
std::string some_of(const std::vector<std::string>& paths) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < paths.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", ") + in_quotes(paths[i]);
  }
  if (paths.size() > kShown) text += fmt::format(" and {} more", paths.size() - kShown);
  return text;
}

void print_notes(const IndexOptions& options, const BuildReport& report,
                 const std::vector<std::string>& shards) {
  if (!report.without_end_marker.empty()) {
    say("note", fmt::format("{} without the marker that ends an archive, complete as far as can be "
                            "told: {}",
                            counted(report.without_end_marker.size(), "shard"),
                            some_of(paths_of(shards, report.without_end_marker))));
  }
  if (!report.concatenated.empty()) {
    say("note", fmt::format("{} of several archives one after another, all of them read: {}",
                            counted(report.concatenated.size(), "shard"),
                            some_of(paths_of(shards, report.concatenated))));
  }
  if (!report.with_trailing_bytes.empty()) {
    say("note", fmt::format("{} with bytes after the end marker that are no archive, not read: {}",
                            counted(report.with_trailing_bytes.size(), "shard"),
                            some_of(paths_of(shards, report.with_trailing_bytes))));
  }
  if (report.num_not_samples > 0) {
    say("note", fmt::format("{} in no sample left out: directories, links, names without a field",
                            counted(report.num_not_samples, "member")));
  }
  if (report.summary.num_skipped > 0) {
    say("note", fmt::format("{} skipped; see shardwise info {}",
                            counted(report.summary.num_skipped, "bad member"), options.index));
  }
}

void print_json(const IndexOptions& options, const BuildReport& report,
                const std::vector<std::string>& shards, double seconds, Output& out) {
  const nlohmann::ordered_json json = {
      {"index", options.index},
      {"shards", report.summary.num_shards},
      {"shards_scanned", report.shards_scanned},
      {"shards_reused", report.shards_reused},
      {"samples", report.summary.num_samples},
      {"members", report.summary.num_members},
      {"shard_bytes", report.summary.shard_bytes},
      {"content_bytes", report.summary.content_bytes},
      {"fingerprint", to_string(report.summary.fingerprint)},
      {"not_samples", report.num_not_samples},
      {"skipped", report.summary.num_skipped},
      {"without_end_marker", paths_of(shards, report.without_end_marker)},
      {"concatenated", paths_of(shards, report.concatenated)},
      {"with_trailing_bytes", paths_of(shards, report.with_trailing_bytes)},
      {"seconds", seconds},
  };
  out.print("{}\n", json_text(json));
}

void run(const IndexOptions& options, Output& out) {
  const std::vector<std::string> shards = expand_sources(options.sources);
  Progress progress("indexing", Unit::kBytes, options.quiet);
  BuildOptions build;
  build.num_threads = options.threads;
  build.on_bad = options.on_bad == "skip" ? OnBad::kSkip : OnBad::kError;
  build.cancel = &interrupt_flag();
  build.progress = [&](const BuildProgress& at) {
    progress.update(at.bytes_done, at.num_bytes, [&] {
      return fmt::format("{} of {}, {}", human_count(at.shards_done),
                         counted(at.num_shards, "shard"), counted(at.samples, "sample"));
    });
  };
  const BuildReport report = build_index(options.index, shards, build);
  progress.clear();
  const double seconds = progress.seconds();

  if (options.json) {
    print_json(options, report, shards, seconds, out);
    return;
  }
  out.print("{}: {} in {} ({} read, {} unchanged), {} of {}, {:.2f} s\n", escaped(options.index),
            counted(report.summary.num_samples, "sample"),
            counted(report.summary.num_shards, "shard"), human_count(report.shards_scanned),
            human_count(report.shards_reused), counted(report.summary.num_members, "member"),
            human_bytes(report.summary.content_bytes), seconds);
  print_notes(options, report, shards);
}

}  // namespace

void add_index_command(CLI::App& program, Output& out) {
  CLI::App* command =
      program.add_subcommand("index",
                             "Build an index, or bring it up to date: unchanged shards are "
                             "not read again");
  const auto options = std::make_shared<IndexOptions>();
  command->add_option("-o,--output", options->index, "the index to write")
      ->required()
      ->type_name("INDEX");
  command->add_option("--threads", options->threads, "threads that scan; 0: one a core")
      ->check(kWholeNumber)
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--on-bad", options->on_bad, "what to do with a bad member: fail, or skip it")
      ->check(CLI::IsMember({"error", "skip"}))
      ->capture_default_str();
  command->add_flag("--quiet", options->quiet, "show no progress");
  command->add_flag("--json", options->json, "print the report as JSON");
  command
      ->add_option(
          "SOURCE", options->sources,
          "a tar file, a directory, a glob, a pattern such as 'train-{000000..000146}.tar', "
          "@list.txt, or - for a list on standard input")
      ->required()
      ->type_name("");
  command->footer("Example:\n  shardwise index -o train.idx 'train-{000000..001281}.tar'");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
