#include "first_use.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "build_notes.h"
#include "fetch_options.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "shardwise/data/make_remote_access.h"

namespace shardwise::tools {

CLI::Option* add_index_argument(CLI::App& command, std::string& index) {
  return command
      .add_option("INDEX", index,
                  "the index, or one SOURCE as for `shardwise index`; the index of a SOURCE is "
                  "built at first use, and updated at later uses")
      ->type_name("");
}

void add_first_use_options(CLI::App& command, FirstUse& first_use) {
  constexpr const char* kGroup = "A SOURCE in place of INDEX";
  command.add_flag("--quiet", first_use.quiet, "show no progress");
  CLI::Option* const directory =
      command
          .add_option("--index-cache", first_use.directory,
                      "folder for the indexes of SOURCEs (default: `$XDG_CACHE_HOME/shardwise` or "
                      "`~/.cache/shardwise`)")
          ->type_name("DIR")
          ->group(kGroup);
  command
      .add_flag("--no-index-cache", first_use.refused,
                "fail if INDEX is a SOURCE, instead of building an index")
      ->excludes(directory)
      ->group(kGroup);
  if (command.get_option_no_throw("--http-header") == nullptr) {
    add_fetch_options(command, first_use.fetching);
  }
}

std::string index_path(const std::string& name, const FirstUse& first_use) {
  std::string path = find_index(name, first_use).path;
  if (has_server_options(first_use.fetching)) {
    check_servers(first_use.fetching, urls_of(*Index::open(path)), first_use.quiet);
  }
  return path;
}

FoundIndex find_index(const std::string& name, const FirstUse& first_use) {
  const CancelToken cancel =
      first_use.cancel.can_be_cancelled() ? first_use.cancel : interrupt_token();
  Progress progress("indexing", Unit::kBytes, first_use.quiet);
  std::string built;
  FoundIndex found;
  IndexCacheOptions options;
  options.on_sources = [&](const SourceList& sources) { found.urls = sources.shards; };
  options.directory = first_use.directory;
  options.build_missing = !first_use.refused;
  options.build.cancel = cancel;
  if (!names_an_index(name)) {
    Fetchers::Options fetching = fetching_of(first_use.fetching, "");
    if (!fetching.on_retry && !first_use.quiet) fetching.on_retry = &say_what_is_tried_again;
    options.build.remote =
        make_remote_access(std::make_shared<const Fetchers>(fetching), nullptr, cancel);
  }
  options.build.progress = [&](const auto& at) { show(progress, at); };
  options.on_build = [&](const std::string& index, const BuildPlan::RemoteReading& remote) {
    built = index;
    if (!first_use.quiet) say_what_is_fetched(remote);
  };
  options.on_built = [&](const std::string& index, const SourceList& sources,
                         const BuildReport& report) {
    progress.clear();
    if (first_use.quiet) return;
    say("note",
        fmt::format("indexed {} ({} read) in {:.1f} s; the index is kept for the next use: {}",
                    counted(report.summary.num_shards, "shard"), human_count(report.shards_scanned),
                    progress.seconds(), in_quotes(index)));
    say_files_left_out(unknown_files(sources.left_out));
    say_members_left_out(report.summary.num_skipped, index);
  };
  options.on_wait = [&](const std::string& builder, std::chrono::milliseconds waited) {
    if (first_use.quiet) return;
    say("waiting", fmt::format("{} s for {}, which builds the index", waited.count() / 1000,
                               escaped(builder)));
  };
  try {
    found.path = index_for(name, options);
    return found;
  } catch (const Cancelled&) {
    if (built.empty() || !has_journal(built)) throw;
    throw Interrupted(kInterruptedAndKept);
  }
}

}  // namespace shardwise::tools
