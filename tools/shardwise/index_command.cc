#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache_options.h"
#include "commands.h"
#include "descriptor_claims.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"
#include "shardwise/data/remote_access.h"
#include "shardwise/index/index_builder.h"
#include "shardwise/index/source_list.h"

namespace shardwise::tools {
namespace {

struct IndexOptions {
  std::string index;
  std::vector<std::string> sources;
  unsigned threads = 0;
  std::string on_bad = "error";
  std::string on_no_field;
  std::string on_duplicate_field;
  std::string on_repeated_key;
  std::vector<std::string> columns;
  bool hash = false;
  bool check_md5 = false;
  bool unique_keys = false;
  bool drop_missing = false;
  std::string part;
  CacheArguments cache;
  bool keep = false;
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

IndexContent content_of(const IndexOptions& options) {
  IndexContent content;
  content.policies = BadPolicies::all(parse_on_bad(options.on_bad));
  const auto override = [](OnBad& policy, const std::string& text) {
    if (!text.empty()) policy = parse_on_bad(text);
  };
  override(content.policies.no_field, options.on_no_field);
  override(content.policies.duplicate_field, options.on_duplicate_field);
  override(content.policies.repeated_key, options.on_repeated_key);
  for (const std::string& column : options.columns) {
    content.columns.push_back(parse_column(column));
  }
  content.hashes = options.hash;
  content.unique_keys = options.unique_keys;
  return content;
}

/// "3/8"
BuildPart parse_part(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto number = parse_int64(std::string_view(text).substr(0, slash));
  const auto count = slash == std::string::npos
                         ? std::nullopt
                         : parse_int64(std::string_view(text).substr(slash + 1));
  if (!number || !count || *number < 1 || *count < 1 || *number > *count) {
    throw InvalidArgument("no part of a build", in_quotes(text),
                          "write --part I/N with I from 1 to N: 1/4, 2/4, 3/4, 4/4");
  }
  return {static_cast<std::uint64_t>(*number), static_cast<std::uint64_t>(*count)};
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
  if (report.shards_resumed > 0) {
    say("note", fmt::format("{} taken over from a build that did not finish",
                            counted(report.shards_resumed, "shard")));
  }
  if (!report.dropped.empty()) {
    say("note", fmt::format("{} missing, and left out: {}", counted(report.dropped.size(), "shard"),
                            some_of(report.dropped)));
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
      {"shards_resumed", report.shards_resumed},
      {"dropped", report.dropped},
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

/// Without sources: the shards that the index names. Errors: NotFound if there is no index.
SourceList sources_of(const IndexOptions& options) {
  if (!options.sources.empty()) return read_sources(options.sources);
  SourceList list;
  const std::shared_ptr<const Index> index = Index::open(options.index);
  for (std::uint64_t i = 0; i < index->num_shards(); ++i) {
    list.shards.push_back(index->shard(i).path);
  }
  return list;
}

void run(const IndexOptions& options, Output& out) {
  const bool update = options.sources.empty();
  const SourceList sources = sources_of(options);
  const std::vector<std::string>& shards = sources.shards;
  Progress progress("indexing", Unit::kBytes, options.quiet);
  BuildOptions build;
  const std::shared_ptr<ShardCache> cache = open_cache(options.cache);
  build.remote = make_remote_shards(make_fetchers(options.cache), options.keep ? cache : nullptr,
                                    &interrupt_flag());
  build.num_threads = options.threads;
  build.content = content_of(options);
  build.drop_missing = options.drop_missing;
  if (!options.part.empty()) build.part = parse_part(options.part);
  build.cancel = &interrupt_flag();
  build.progress = [&](const BuildProgress& at) {
    progress.update(at.bytes_done, at.num_bytes, [&] {
      return fmt::format("{} of {}, {}", human_count(at.shards_done),
                         counted(at.num_shards, "shard"), counted(at.samples, "sample"));
    });
  };
  const BuildReport report =
      update ? update_index(options.index, build) : build_index(options.index, shards, build);
  progress.clear();
  const double seconds = progress.seconds();
  if (options.part.empty() && report.dropped.empty()) {
    check_descriptor_claims(options.index, sources.descriptors, options.check_md5, options.quiet);
  }

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
  const auto add_policy = [&](const char* name, std::string& value, const char* text,
                              std::vector<std::string> choices) {
    return command->add_option(name, value, text)->check(CLI::IsMember(choices));
  };
  std::vector<CLI::Option*> content = {
      add_policy("--on-bad", options->on_bad, "what to do with a bad member: fail, or skip it",
                 {"error", "skip"})
          ->capture_default_str(),
      add_policy("--on-no-field", options->on_no_field,
                 "the same for names without a field, as README", {"error", "skip"}),
      add_policy("--on-duplicate-field", options->on_duplicate_field,
                 "the same for a field that comes twice in a sample", {"error", "skip"}),
      add_policy("--on-repeated-key", options->on_repeated_key,
                 "the same for a key in two places of a shard; keep: take both as samples",
                 {"error", "skip", "keep"}),
      command
          ->add_option("--column", options->columns,
                       "metadata to keep for queries, [NAME=]FIELD[:JSONPATH]: cls, json:$.width; "
                       "may be given again")
          ->type_name("COLUMN")
          ->allow_extra_args(false),
      command->add_flag("--hash", options->hash,
                        "hash every shard and member, for `verify --full`: reads every byte"),
      command->add_flag("--unique-keys", options->unique_keys, "fail if a key comes in two shards"),
      command
          ->add_option("--part", options->part,
                       "index only the I-th of N parts of the shards, for `shardwise merge`")
          ->type_name("I/N")};
  command->add_flag("--check-md5", options->check_md5,
                    "read the shards of a wids descriptor for their md5sum");
  add_cache_options(*command, options->cache);
  command->add_flag("--keep", options->keep, "keep remote shards in the cache once they were read")
      ->needs("--cache");
  command->add_flag("--drop-missing", options->drop_missing,
                    "leave shards out that do not exist, instead of failing");
  command->add_flag("--quiet", options->quiet, "show no progress");
  command->add_flag("--json", options->json, "print the report as JSON");
  command
      ->add_option(
          "SOURCE", options->sources,
          "a tar file, a directory, a glob, a pattern such as 'train-{000000..000146}.tar', "
          "a wids descriptor (*.json), @list.txt, or - for a list on standard input; without any, "
          "the index is brought up to "
          "date with the shards and options that it was built with")
      ->type_name("");
  command->footer("Example:\n  shardwise index -o train.idx 'train-{000000..001281}.tar'");
  command->callback([options, content = std::move(content), &out] {
    for (const CLI::Option* option : content) {
      if (!options->sources.empty() || option->count() == 0) continue;
      throw CLI::ValidationError(option->get_name() +
                                 " needs SOURCE: without any the index is updated with the options "
                                 "that it was built with");
    }
    if (options->sources.empty() && !std::filesystem::exists(options->index)) {
      throw CLI::RequiredError("SOURCE");
    }
    run(*options, out);
  });
}

}  // namespace shardwise::tools
