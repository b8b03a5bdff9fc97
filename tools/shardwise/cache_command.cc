#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cache_options.h"
#include "commands.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "progress.h"
#include "shardwise/base/error.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_metrics.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct CacheCommandOptions {
  std::string directory;
  std::string metrics_file;
  std::uint64_t max_bytes = 0;
  bool remove = false;
  bool quiet = false;
  bool header = false;
  bool dry_run = false;
  bool json = false;
};

/// Opens the cache for changes.
std::shared_ptr<ShardCache> open(const CacheCommandOptions& options) {
  return ShardCache::open({.directory = options.directory, .create = false, .group_shared = true});
}

/// Opens the cache read-only, since another user may own it.
std::shared_ptr<ShardCache> look_at(const CacheCommandOptions& options) {
  return ShardCache::open({.directory = options.directory, .create = false, .read_only = true});
}

std::string utc(std::int64_t time_ns) { return utc_text(time_ns / 1'000'000'000); }

std::string shown_url(const ShardCache::Entry& entry) {
  return entry.url.empty() ? "?" : escaped(entry.url);
}

/// Returns e.g. "in use by 17, 23; expected by 29": the processes that use or expect a shard.
std::string state_of(const ShardCache::Entry& entry, bool is_coming) {
  std::string state;
  const auto add = [&](const std::string& what, const std::vector<std::int64_t>& pids) {
    if (!state.empty()) state += "; ";
    state += what;
    for (std::size_t i = 0; i < pids.size(); ++i) {
      state += fmt::format("{}{}", i == 0 ? " by " : ", ", pids[i]);
    }
  };
  if (entry.fetcher != 0) {
    add("being fetched", {entry.fetcher});
  } else if (is_coming) {
    add("being fetched", {});
  }
  // Omit the fetching process from the users: it pins the shard, too.
  std::vector<std::int64_t> users = entry.users;
  std::erase(users, entry.fetcher);
  if (!users.empty() || (entry.in_use && entry.fetcher == 0 && !is_coming)) add("in use", users);
  if (!entry.expected_by.empty()) add("expected", entry.expected_by);
  return state;
}

void print_entry_json(const ShardCache::Entry& entry, bool is_coming, Output& out) {
  std::string line = fmt::format("{{\"name\":\"{}\",", entry.name);
  append_json_name(line, "url", entry.url);
  line += ',';
  append_json_name(line, "validator", entry.validator);
  out.print(
      "{},\"size\":{},\"last_use\":\"{}\",\"hash\":{},\"in_use\":{},\"users\":{},"
      "\"being_fetched\":{},\"fetcher\":{},\"expected_by\":{}}}\n",
      line, entry.size_bytes, utc(entry.last_use_ns),
      entry.hash ? "\"" + to_string(*entry.hash) + "\"" : "null", entry.in_use,
      nlohmann::json(entry.users).dump(), is_coming,
      entry.fetcher == 0 ? "null" : std::to_string(entry.fetcher),
      nlohmann::json(entry.expected_by).dump());
}

/// Prints a table on a terminal. Elsewhere prints columns separated by blanks, which scripts rely
/// on.
/// @param coming  shards that are being fetched; they are printed last.
void print_entries(const std::vector<ShardCache::Entry>& entries,
                   const std::vector<ShardCache::Entry>& coming, bool header, Output& out) {
  if (out.is_terminal()) {
    Table table(out, {{"name"}, {"size", Align::kRight}, {"last use"}, {"state"}, {"url"}});
    const auto add = [&](const ShardCache::Entry& entry, bool is_coming) {
      table.add({entry.name, human_bytes(entry.size_bytes), utc(entry.last_use_ns),
                 state_of(entry, is_coming), shown_url(entry)});
    };
    for (const ShardCache::Entry& entry : entries) add(entry, false);
    for (const ShardCache::Entry& entry : coming) add(entry, true);
    if (!entries.empty() || !coming.empty()) table.finish();
    return;
  }
  if (header) {
    out.print("{}\n",
              out.head(fmt::format("{:<32}  {:>10}  {:<20}  url", "name", "size", "last use")));
  }
  const auto print = [&](const ShardCache::Entry& entry, bool is_coming) {
    const std::string state = state_of(entry, is_coming);
    out.print("{}  {:>10}  {}  {}{}\n", entry.name, human_bytes(entry.size_bytes),
              utc(entry.last_use_ns), shown_url(entry), state.empty() ? "" : "  (" + state + ")");
  };
  for (const ShardCache::Entry& entry : entries) print(entry, false);
  for (const ShardCache::Entry& entry : coming) print(entry, true);
}

std::uint64_t bytes_of(const std::vector<ShardCache::Entry>& entries) {
  std::uint64_t bytes = 0;
  for (const ShardCache::Entry& entry : entries) bytes += entry.size_bytes;
  return bytes;
}

void list(const CacheCommandOptions& options, Output& out) {
  const std::shared_ptr<ShardCache> cache = look_at(options);
  const std::vector<ShardCache::Entry> entries = cache->entries();
  const std::vector<ShardCache::Entry> coming = cache->coming();
  if (!options.metrics_file.empty()) {
    detail::write_metrics(options.metrics_file,
                          detail::directory_metrics(entries, coming, options.directory));
  }
  if (options.json) {
    for (const ShardCache::Entry& entry : entries) print_entry_json(entry, false, out);
    for (const ShardCache::Entry& entry : coming) print_entry_json(entry, true, out);
    return;
  }
  print_entries(entries, coming, options.header, out);
  out.print("{}, {}\n", counted(entries.size(), "shard"), human_bytes(bytes_of(entries)));
  if (!coming.empty()) {
    out.print("{}, {}\n", counted(coming.size(), "shard", "is being fetched", "are being fetched"),
              human_bytes(bytes_of(coming)));
  }
}

void verify(const CacheCommandOptions& options, Output& out) {
  const std::shared_ptr<ShardCache> cache = options.remove ? open(options) : look_at(options);
  Progress progress("verifying", Unit::kBytes, options.quiet);
  const ShardCache::Check check = cache->verify(interrupt_token(), progress.of_bytes());
  progress.clear();
  nlohmann::ordered_json damaged = nlohmann::ordered_json::array();
  std::uint64_t left = 0;
  const auto report = [&](const ShardCache::Entry& entry, const char* what) {
    const bool removed = options.remove && cache->remove(entry.name);
    left += removed ? 0 : 1;
    if (options.json) {
      damaged.push_back({{"name", entry.name},
                         {"url", entry.url},
                         {"has_record", entry.hash.has_value()},
                         {"removed", removed}});
      return;
    }
    out.print("{}  {}  {}{}\n", what, entry.name, shown_url(entry), removed ? "  (removed)" : "");
  };
  for (const ShardCache::Entry& entry : check.damaged) report(entry, "DAMAGED");
  for (const ShardCache::Entry& entry : check.unknown) report(entry, "UNKNOWN");
  if (options.json) {
    print_json(out, "cache verify",
               {{"shards", check.num_shards},
                {"damaged", std::move(damaged)},
                {"foreign", check.foreign}});
  } else {
    for (const std::string& name : check.foreign) out.print("FOREIGN  {}\n", escaped(name));
    out.print("{}, {} damaged, {} without a recorded hash, {}\n",
              counted(check.num_shards, "shard"), human_count(check.damaged.size()),
              human_count(check.unknown.size()), counted(check.foreign.size(), "foreign file"));
  }
  if (left > 0) {
    throw Error(
        ErrorCode::kCorruptShard, "shards in the cache are damaged, or have no recorded hash",
        in_quotes(options.directory),
        "remove these shards with `shardwise cache verify --remove`; the next use fetches them "
        "again");
  }
}

/// Shows the shards that remove() would remove, by the rule of ShardCache::prune(): the least
/// recently used shards first, but no shard in use, until the cache is small enough.
void show_removal(const CacheCommandOptions& options, Output& out) {
  const std::vector<ShardCache::Entry> entries = look_at(options)->entries();
  std::uint64_t used = bytes_of(entries);
  std::uint64_t num_in_use = 0;
  std::vector<ShardCache::Entry> removed;
  for (const ShardCache::Entry& entry : entries) {
    if (used <= options.max_bytes) break;
    if (entry.in_use) {
      ++num_in_use;
      continue;
    }
    used -= entry.size_bytes;
    removed.push_back(entry);
  }
  if (options.json) {
    nlohmann::ordered_json names = nlohmann::ordered_json::array();
    for (const ShardCache::Entry& entry : removed) names.push_back(entry.name);
    print_json(out, "cache prune",
               {{"dry_run", true},
                {"num_removed", removed.size()},
                {"removed_bytes", bytes_of(removed)},
                {"num_in_use", num_in_use},
                {"names", std::move(names)}});
    return;
  }
  print_entries(removed, {}, options.header, out);
  out.print("would remove {}, {}{}\n", counted(removed.size(), "shard"),
            human_bytes(bytes_of(removed)),
            num_in_use == 0 ? ""
                            : fmt::format("; {} stay, because in use",
                                          counted(num_in_use, "shard", "would", "would")));
}

void remove(const CacheCommandOptions& options, Output& out) {
  if (options.dry_run) return show_removal(options, out);
  const ShardCache::Removal removal = open(options)->prune(options.max_bytes);
  if (options.json) {
    print_json(out, "cache prune",
               {{"dry_run", false},
                {"num_removed", removal.num_shards},
                {"removed_bytes", removal.bytes},
                {"num_in_use", removal.num_in_use}});
    return;
  }
  out.print("removed {}, {}{}\n", counted(removal.num_shards, "shard"), human_bytes(removal.bytes),
            removal.num_in_use == 0
                ? ""
                : fmt::format("; {} not removed, because in use",
                              counted(removal.num_in_use, "shard", "was", "were")));
}

}  // namespace

void add_cache_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand("cache", "Fill, inspect or clean a shard cache");
  command->require_subcommand(1);
  const auto options = std::make_shared<CacheCommandOptions>();
  const auto add = [&](const char* name, const char* text) {
    CLI::App* sub = command->add_subcommand(name, text);
    sub->add_option("DIR", options->directory, "directory of the cache")->required()->type_name("");
    return sub;
  };
  const auto json = [&](CLI::App* sub, const char* text) {
    sub->add_flag("--json", options->json, text);
  };
  CLI::App* ls = add(
      "ls", "List the cached shards, least recently used first, and the processes that use them");
  ls->add_flag("--header", options->header, kHeaderHelp);
  json(ls, "print one JSON object per shard");
  add_metrics_option(*ls, options->metrics_file,
                     "write the numbers and sizes of the cached shards to this file");
  ls->callback([options, &out] { list(*options, out); });

  CLI::App* check = add(
      "verify", "Read every cached shard, and compare it with the hash stored when it was fetched");
  check->add_flag("--remove", options->remove,
                  "remove damaged shards and shards without a "
                  "recorded hash, unless a process is using them");
  check->add_flag("--quiet", options->quiet, "show no progress");
  json(check, "print one JSON object");
  check->callback([options, &out] { verify(*options, out); });

  CLI::App* prune = add("prune", "Remove the least recently used shards, down to a size");
  add_byte_size(*prune, "--to", options->max_bytes, "maximum size of the shards that stay")
      ->required();
  const auto dry_run = [&](CLI::App* sub) {
    sub->add_flag("--dry-run", options->dry_run, "show what would be removed, and remove nothing");
  };
  dry_run(prune);
  json(prune, "print one JSON object");
  prune->callback([options, &out] { remove(*options, out); });

  CLI::App* clear = add("clear", "Remove all shards that no process is using");
  dry_run(clear);
  json(clear, "print one JSON object");
  clear->callback([options, &out] { remove(*options, out); });

  add_fill_command(*command, out);
  command->footer(
      "Examples:\n  shardwise cache ls /scratch/cache\n"
      "  shardwise cache fill train.idx --cache /scratch/cache --cache-bytes 200G\n"
      "  shardwise cache prune /scratch/cache --to 20G");
}

}  // namespace shardwise::tools
