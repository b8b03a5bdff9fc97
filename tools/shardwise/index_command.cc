#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/error_types.h"
#include "base/text.h"
#include "base/url.h"
#include "build_notes.h"
#include "cache_options.h"
#include "commands.h"
#include "descriptor_claims.h"
#include "fetch_options.h"
#include "index_report.h"
#include "ingest/reusable_index.h"
#include "interrupt.h"
#include "options.h"
#include "progress.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/relocate.h"
#include "shardwise/ingest/source_list.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct IndexOptions {
  std::string index;
  std::vector<std::string> sources;
  std::optional<unsigned> threads = {};
  /// For each of these policies, empty means that of the existing index, or else "error".
  std::string on_bad;
  std::string on_no_field;
  std::string on_duplicate_field;
  std::string on_repeated_key;
  std::string on_link;
  std::vector<Index::Column> columns;
  bool hash = false;
  bool check_md5 = false;
  bool unique_keys = false;
  bool forget = false;
  bool drop_missing = false;
  bool accept_times = false;
  bool check_index = false;
  std::vector<std::pair<std::string, std::string>> relocations;  ///< old and new path
  std::optional<BuildOptions::Part> part;
  CacheArguments cache;
  bool keep = false;
  bool dry_run = false;
  bool header = false;
  bool quiet = false;
  bool json = false;
};

/// Returns the built index. If another build has replaced it, prints a note and returns null.
std::shared_ptr<const Index> built_index(const IndexOptions& options, const BuildReport& report) {
  std::shared_ptr<const Index> index = Index::open(options.index);
  const Index::Summary summary = index->summary();
  if (summary.fingerprint == report.summary.fingerprint &&
      summary.content == report.summary.content) {
    return index;
  }
  say("note", fmt::format("another build replaced {} during this build, so wids descriptors were "
                          "not checked; run the command again to check the descriptors",
                          in_quotes(options.index)));
  return nullptr;
}

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

/// Returns the requested content: the given options, and `content` for options not given.
Index::Content content_of(const IndexOptions& options, Index::Content content) {
  if (!options.on_bad.empty())
    content.policies = DefectPolicies::all(parse_on_defect(options.on_bad));
  const auto override = [](DefectPolicies::OnDefect& policy, const std::string& text) {
    if (!text.empty()) policy = parse_on_defect(text);
  };
  override(content.policies.no_field, options.on_no_field);
  override(content.policies.duplicate_field, options.on_duplicate_field);
  override(content.policies.repeated_key, options.on_repeated_key);
  if (!options.on_link.empty()) content.policies.link = parse_on_link(options.on_link);
  if (!options.columns.empty()) content.columns = options.columns;
  content.hashes |= options.hash;
  content.unique_keys |= options.unique_keys;
  return content;
}

/// Returns the options that were taken from `content` because this command does not give them, e.g.
/// "--hash, --column cls=cls".
std::string kept_options(const IndexOptions& options, const Index::Content& content) {
  const Index::Content given = content_of(options, {});
  std::string text;
  const auto add = [&](const std::string& option) { text += (text.empty() ? "" : ", ") + option; };
  if (content.policies != given.policies) add("--on-bad " + to_string(content.policies));
  if (content.columns != given.columns) {
    for (const Index::Column& column : content.columns)
      add("--column " + escaped(to_string(column)));
  }
  if (content.hashes != given.hashes) add("--hash");
  if (content.unique_keys != given.unique_keys) add("--unique-keys");
  return text;
}

/// Returns the columns that the earlier index had and the new one lacks: e.g. "'c1', 'c2'".
std::string dropped_columns(const Index::Content& before, const Index::Content& now) {
  std::string text;
  for (const Index::Column& column : before.columns) {
    const bool is_there =
        std::any_of(now.columns.begin(), now.columns.end(),
                    [&](const Index::Column& c) { return c.name == column.name; });
    if (!is_there) text += (text.empty() ? "" : ", ") + in_quotes(column.name);
  }
  return text;
}

/// Returns the files in the sources' folders whose names are not those of shards, without the
/// index's own files.
std::vector<std::string> left_out(const IndexOptions& options, const SourceList& sources) {
  namespace fs = std::filesystem;
  const fs::path index(options.index);
  const fs::path home = index.has_parent_path() ? index.parent_path() : ".";
  std::vector<std::string> files;
  for (const std::string& file : unknown_files(sources.left_out)) {
    std::error_code failed;
    const fs::path path(file);
    const bool is_own = path.filename().native().starts_with(index.filename().native()) &&
                        fs::equivalent(path.parent_path(), home, failed);
    if (!is_own) files.push_back(file);
  }
  return files;
}

/// Parses e.g. "3/8". Errors: wrong usage.
BuildOptions::Part parse_part(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto number = parse_int64(std::string_view(text).substr(0, slash));
  const auto count = slash == std::string::npos
                         ? std::nullopt
                         : parse_int64(std::string_view(text).substr(slash + 1));
  if (!number || !count || *number < 1 || *count < 1 || *number > *count) {
    throw CLI::ValidationError(
        "--part",
        in_quotes(text) + " is not a part of a build; write I/N with I from 1 to N, e.g. 1/4");
  }
  return {static_cast<std::uint64_t>(*number), static_cast<std::uint64_t>(*count)};
}

/// Parses the values of --column. Errors: wrong usage.
std::vector<Index::Column> parse_columns(const std::vector<std::string>& texts) {
  std::vector<Index::Column> columns;
  try {
    for (const std::string& text : texts) columns.push_back(parse_column(text));
  } catch (const InvalidArgument& e) {
    throw CLI::ValidationError("--column", e.what());
  }
  return columns;
}

/// Runs a build. If the build ends early and leaves a journal, prints that the next build continues
/// from there.
template <class Build>
BuildReport saying_how_to_continue(const IndexOptions& options, const Build& build) {
  try {
    return build();
  } catch (const Cancelled&) {
    if (!has_journal(options.index)) throw;
    throw Interrupted(kInterruptedAndKept);
  } catch (const Error& e) {
    if (!has_journal(options.index)) throw;
    throw Error(
        e.code(),
        std::string(e.what()) +
            "; then run the same command to continue, without reading finished shards again");
  }
}

void relocate(const IndexOptions& options, BuildOptions& build, Output& out) {
  const bool had_words = !index_sources(options.index).empty();
  std::vector<Relocation> relocations;
  {
    const std::shared_ptr<const Index> index = Index::open(options.index);
    for (const auto& [from, to] : options.relocations) relocations.push_back({from, to});
    const auto urls_before_and_after = [&] {
      std::vector<std::string> urls = urls_of(*index);
      for (const auto& [from, to] : options.relocations) urls.push_back(to);
      return urls;
    };
    check_servers(options.cache.fetching, urls_before_and_after, options.quiet);
  }
  const Progress progress("relocating", Unit::kBytes, options.quiet);
  const BuildReport report = relocate_index(options.index, relocations, build);
  const double seconds = progress.seconds();
  report_build(options.index, report, {}, seconds, options.json, out);
  if (had_words && index_sources(options.index).empty()) {
    say("note",
        "the index now stores a list of its shards instead of its SOURCEs, because the SOURCEs "
        "do not name the relocated shards");
  }
}

std::vector<std::string> remote_shards(const SourceList& sources) {
  std::vector<std::string> urls;
  std::ranges::copy_if(sources.shards, std::back_inserter(urls),
                       [](const std::string& shard) { return is_remote_url(shard); });
  return urls;
}

bool has_remote_shards(const SourceList& sources) {
  return std::any_of(sources.shards.begin(), sources.shards.end(),
                     [](const std::string& shard) { return is_fetched_url(shard); });
}

/// Returns the path of the index to which a NEW of --url-base without OLD applies: the index, if it
/// is updated from its own sources. Otherwise returns "".
/// Errors: wrong usage if there is such a NEW, and the index is not updated from its own sources.
std::string index_of_url_base(const IndexOptions& options) {
  if (options.sources.empty() && options.relocations.empty()) return options.index;
  for (const Fetchers::Options::Moved& move : options.cache.fetching.moved) {
    if (!move.from.empty()) continue;
    throw CLI::ValidationError(
        "--url-base", fmt::format("NEW alone is for updates of an index; with {} write OLD=NEW",
                                  options.sources.empty() ? "--relocate" : "SOURCE"));
  }
  return {};
}

/// A build to run or to plan.
struct Job {
  const IndexOptions& options;
  BuildOptions build;
  SourceList sources;
  bool is_update;               ///< the index stores no sources, so its list of shards is used
  detail::EarlierContent kept;  ///< unless --forget is given

  BuildPlan plan() const {
    return is_update ? plan_update(options.index, build)
                     : plan_index(options.index, sources.shards, build);
  }
  BuildReport run() const {
    return is_update ? update_index(options.index, build)
                     : build_index(options.index, sources.shards, build);
  }
};

/// Returns the options of all modes: access to the shards, and cancellation.
BuildOptions access_options(const IndexOptions& options) {
  BuildOptions build;
  const std::string based_on = index_of_url_base(options);
  const std::shared_ptr<ShardCache> cache = open_cache(options.cache, std::nullopt, based_on);
  build.remote = make_remote_access(make_fetchers(options.cache, based_on),
                                    options.keep ? cache : nullptr, interrupt_token());
  build.accept_times = options.accept_times;
  build.check_index = options.check_index;
  build.cancel = interrupt_token();
  return build;
}

/// Reads the sources. Makes the checks that need no shard.
Job make_job(const IndexOptions& options, BuildOptions build) {
  SourceList sources = options.sources.empty() ? read_index_sources(options.index, build.remote)
                                               : read_sources(options.sources, build.remote);
  const bool is_update = options.sources.empty() && sources.shards.empty();
  const auto all_urls = [&] {
    std::vector<std::string> urls =
        is_update ? urls_of(*Index::open(options.index)) : remote_shards(sources);
    for (const WidsDescriptor& descriptor : sources.descriptors) urls.push_back(descriptor.path);
    return urls;
  };
  check_servers(options.cache.fetching, all_urls, options.quiet);
  detail::EarlierContent kept;
  if (!options.forget) kept = detail::earlier_content(options.index);
  if (options.check_md5 && sources.descriptors.empty()) {
    throw CLI::ValidationError("--check-md5", "needs a wids descriptor (*.json) as a SOURCE");
  }
  build.remote = remembering_states(build.remote, sources.shards);
  build.threads = options.threads;
  build.content = content_of(options, kept.content);
  build.sources = sources.sources;
  build.drop_missing = options.drop_missing;
  build.part = options.part;
  return {options, std::move(build), std::move(sources), is_update, std::move(kept)};
}

/// After a build with SOURCE, prints how the content options differ from those of the earlier
/// index.
void say_content_changed(const Job& job) {
  if (job.kept.is_lost) {
    say("note",
        "the earlier index could not be read, so its options were lost; if you need "
        "these options, e.g. --column, give them again");
  }
  if (const auto text = dropped_columns(job.kept.content, job.build.content); !text.empty()) {
    say("note",
        "these columns of the earlier index were removed, because --column did not name "
        "them: " +
            text);
  }
  if (const auto text = kept_options(job.options, job.build.content); !text.empty()) {
    say("note", "options kept from the earlier index, unless --forget is given: " + text);
  }
}

void build(Job& job, Progress& progress, Output& out) {
  const IndexOptions& options = job.options;
  const SourceList& sources = job.sources;
  job.build.progress = [&](const auto& at) { show(progress, at); };
  if (has_remote_shards(sources)) {
    for (const WidsDescriptor& descriptor : sources.descriptors) {
      if (!options.part) check_remote_sizes(descriptor, job.build.remote);
    }
    const BuildPlan plan = plan_index(options.index, sources.shards, job.build);
    if (!options.quiet) say_what_is_fetched(remote_reading(plan, sources, job.build.remote));
  }
  const BuildReport report = saying_how_to_continue(options, [&] { return job.run(); });
  progress.clear();
  const double seconds = progress.seconds();
  if (const auto index = built_index(options, report)) {
    if (!options.part && report.dropped.empty()) {
      check_descriptor_claims(*index, sources.descriptors, job.build.remote, options.check_md5,
                              options.quiet);
    } else if (!sources.descriptors.empty()) {
      say("note",
          "the wids descriptor was not checked, because not all of its shards are in this index");
    }
  }
  report_build(options.index, report, left_out(options, sources), seconds, options.json, out);
  if (!options.json && !options.sources.empty()) say_content_changed(job);
}

void run(const IndexOptions& options, Output& out) {
  BuildOptions access = access_options(options);
  if (!options.relocations.empty()) return relocate(options, access, out);
  Progress progress(options.dry_run ? "comparing" : "indexing", Unit::kBytes, options.quiet);
  // The user may be typing the list of shards.
  if (std::ranges::count(options.sources, "-") > 0) progress.clear();
  Job job = make_job(options, std::move(access));
  if (!options.dry_run) return build(job, progress, out);
  const BuildPlan plan = job.plan();
  progress.clear();
  report_plan(options.index, plan, options.json, options.header, out);
}

}  // namespace

void add_index_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "index", "Build an index, or update it without reading unchanged shards again");
  const auto options = std::make_shared<IndexOptions>();
  command->add_option("-o,--output", options->index, "index to write")
      ->required()
      ->type_name("INDEX");
  command
      ->add_option("--threads", options->threads,
                   "number of scanning threads; 0 means: only the calling thread scans (default: "
                   "one per core)")
      ->transform(kNumThreads)
      ->type_name("N");
  const auto add_policy = [&](const char* name, std::string& value, const char* text,
                              std::vector<std::string> choices) {
    return command->add_option(name, value, text)->check(CLI::IsMember(choices));
  };
  std::vector<CLI::Option*> content = {
      add_policy("--on-bad", options->on_bad,
                 "rule for bad members; error (the default) ends the build; skip leaves out the "
                 "member, or stores NULL if only the value of a column cannot be read",
                 {"error", "skip"}),
      add_policy("--on-no-field", options->on_no_field,
                 "rule for members that are not fields: names without an extension, e.g. `README`, "
                 "and hidden files",
                 {"error", "skip"}),
      add_policy("--on-duplicate-field", options->on_duplicate_field,
                 "rule for a field that occurs twice in a sample", {"error", "skip"}),
      add_policy("--on-repeated-key", options->on_repeated_key,
                 "rule for a key that occurs at two places in a shard; keep makes one sample per "
                 "place",
                 {"error", "skip", "keep"}),
      add_policy("--on-link", options->on_link,
                 "rule for links that are named like a field of a sample; resolve gives a hard "
                 "link the bytes of its target; symbolic links are never followed",
                 {"error", "skip", "resolve"}),
      command
          ->add_option_function<std::vector<std::string>>(
              "--column",
              [options](const std::vector<std::string>& texts) {
                options->columns = parse_columns(texts);
              },
              "metadata to store for queries, `[NAME=]FIELD[:JSONPATH]`, e.g. `cls` or "
              "`json:$.width`; "
              "may be given several times")
          ->type_name("COLUMN")
          ->allow_extra_args(false),
      command->add_flag(
          "--hash", options->hash,
          "read every byte, and store hashes of every shard and member for `verify --full`"),
      command->add_flag("--unique-keys", options->unique_keys,
                        "fail if a key occurs in two shards"),
      command->add_flag("--forget", options->forget,
                        "do not keep the options that INDEX was built with; use only the options "
                        "of this command"),
      command
          ->add_option_function<std::string>(
              "--part", [options](const std::string& text) { options->part = parse_part(text); },
              "index only the I-th of N parts of the shards, I from 1, for `shardwise merge`")
          ->type_name("I/N")};
  CLI::Option* check_md5 =
      command->add_flag("--check-md5", options->check_md5,
                        "read every byte, and check the md5sums of the wids descriptor");
  check_md5->excludes("--part");
  command
      ->add_flag("--drop-missing", options->drop_missing,
                 "leave out shards that do not exist, instead of failing")
      ->excludes(check_md5);
  command->add_flag("--accept-times", options->accept_times,
                    "do not read shards again that only have new modification times, e.g. copies, "
                    "if size, first bytes and some headers agree with the index");
  command->add_flag("--check-index", options->check_index,
                    "read the whole existing index first, and scan all shards if it is damaged");
  CLI::Option* const relocate =
      command
          ->add_option("--relocate", options->relocations,
                       "replace OLD, a folder or the beginning of URLs, by NEW in the stored "
                       "paths, without reading shards; relative folders are below the current "
                       "folder; cannot be given with SOURCE; may be given several times")
          ->type_name("OLD NEW")
          ->allow_extra_args(false);
  add_cache_options(*command, options->cache);
  command->add_flag("--keep", options->keep, "keep the fetched shards in the cache of --cache")
      ->needs("--cache");
  command->add_flag(
      "--dry-run", options->dry_run,
      "write nothing; list the shards that would be read, those that are unchanged or missing, "
      "and those that the sources no longer name");
  command->add_flag("--header", options->header, kHeaderHelp)->needs("--dry-run");
  command->add_flag("--quiet", options->quiet, "show no progress");
  command->add_flag("--json", options->json, "print the report as one JSON object");
  command
      ->add_option("SOURCE", options->sources,
                   "a tar file; a directory (all `*.tar`, `*.tgz` and `*.tar.<codec>` below it, "
                   "except hidden ones); a glob; a pattern, e.g. 'train-{000000..000146}.tar'; a "
                   "URL; a wids descriptor (`*.json`); a list (`@list.txt`, or `-` for standard "
                   "input). Without a SOURCE, the index is updated from the sources and options "
                   "stored in it; directories, globs and descriptors are then read again")
      ->type_name("");
  for (const char* name : {"--on-bad", "--on-no-field", "--on-duplicate-field", "--on-repeated-key",
                           "--on-link", "--drop-missing", "--check-md5", "--check-index"}) {
    command->get_option(name)->group("Bad and missing shards");
  }
  for (const char* name : {"--column", "--hash", "--unique-keys", "--forget", "--part"}) {
    command->get_option(name)->group("Contents of the index");
  }
  for (const char* name : {"--accept-times", "--relocate"}) {
    command->get_option(name)->group("Shards that moved");
  }
  for (const char* name :
       {"--drop-missing", "--check-md5", "--check-index", "--dry-run", "--keep", "SOURCE"}) {
    relocate->excludes(command->get_option(name));
  }
  command->get_option("--keep")->group("Remote and compressed shards");
  mark_common(*command, {"--output", "--threads", "--on-bad", "--column", "--hash", "--dry-run",
                         "--quiet", "--json"});
  command->footer(
      "Examples:\n  shardwise index -o train.idx 'train-{000000..001281}.tar'\n"
      "  shardwise index -o train.idx --relocate /data/old /data/new");
  command->callback([options, content = std::move(content), &out] {
    for (const CLI::Option* option : content) {
      if (!options->sources.empty() || option->count() == 0) continue;
      throw CLI::ValidationError(
          option->get_name() +
          " needs a SOURCE; without a SOURCE, the index is updated with its stored options");
    }
    if (options->sources.empty() && options->relocations.empty() && !is_there(options->index)) {
      throw CLI::RequiredError("SOURCE");
    }
    run(*options, out);
  });
}

}  // namespace shardwise::tools
