#include "first_use.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "base/url.h"
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
                  "the index, a path or a URL ending in .idx; or one SOURCE as for `shardwise "
                  "index`; the index of a SOURCE is built at first use, and updated at later uses")
      ->type_name("");
}

void add_first_use_options(CLI::App& command, FirstUse& first_use) {
  constexpr const char* kGroup = "An INDEX at a URL, or a SOURCE in its place";
  command.add_flag("--quiet", first_use.quiet, "show no progress");
  CLI::Option* const directory =
      command
          .add_option("--index-cache", first_use.directory,
                      "folder for fetched indexes and the indexes of SOURCEs (default: "
                      "`$XDG_CACHE_HOME/shardwise` or `~/.cache/shardwise`)")
          ->type_name("DIR")
          ->group(kGroup);
  command
      .add_flag("--no-index-cache", first_use.refused,
                "fail if INDEX is a SOURCE, instead of building an index")
      ->excludes(directory)
      ->group(kGroup);
  command
      .add_flag(
          "--offline", first_use.offline,
          "for an INDEX at a URL, use this machine's copy, without asking the server for a newer "
          "version")
      ->group(kGroup);
  if (command.get_option_no_throw("--http-header") == nullptr) {
    add_fetch_options(command, first_use.fetching);
  }
}

std::string index_path(const std::string& name, const FirstUse& first_use) {
  std::string path = find_index(name, first_use).path;
  check_servers(
      first_use.fetching, [&] { return urls_of(*Index::open(path)); }, first_use.quiet);
  return path;
}

FoundIndex find_index(const std::string& name, const FirstUse& first_use) {
  const CancelToken cancel =
      first_use.cancel.can_be_cancelled() ? first_use.cancel : interrupt_token();
  const bool is_at_url = is_remote_url(name) && names_an_index(name);
  Progress progress(is_at_url ? "fetching" : "indexing", Unit::kBytes, first_use.quiet);
  std::string built;
  FoundIndex found;
  IndexCacheOptions options;
  options.on_sources = [&](const SourceList& sources) { found.urls = sources.shards; };
  options.directory = first_use.directory;
  options.build_missing = !first_use.refused;
  options.offline = first_use.offline;
  options.build.cancel = cancel;
  if (is_at_url || !names_an_index(name)) {
    Fetchers::Options fetching = first_use.fetching;
    // A NEW of --url-base without OLD concerns the shards of the index, not the index.
    const auto is_of_shards = [](const auto& move) { return move.from.empty(); };
    if (is_at_url) std::erase_if(fetching.moved, is_of_shards);
    fetching = fetching_of(std::move(fetching), "");
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
    say_without_end_marker(report.without_end_marker);
    say_members_left_out(report.summary.num_skipped, index);
  };
  options.on_wait = [&](const std::string& builder, std::chrono::milliseconds waited) {
    if (first_use.quiet) return;
    say("waiting", fmt::format("{} s for {}, which {} the index", waited.count() / 1000,
                               escaped(builder), is_at_url ? "fetches" : "builds"));
  };
  options.on_fetch = [&](const std::string& url, std::uint64_t size_bytes) {
    if (first_use.quiet) return;
    say("note", fmt::format("fetching the index {} ({})", in_quotes(url), human_bytes(size_bytes)));
  };
  options.on_unreached = [&](const std::string& url, const std::string& reason) {
    say("note", fmt::format("the server of {} was not reached, so the last copy of the index is "
                            "used: {}",
                            in_quotes(url), reason));
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
