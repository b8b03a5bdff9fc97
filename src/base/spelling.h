#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// Error texts recommend options, commands and values. C++, the command line and Python spell these
// differently, so error texts take the names from the list below:
//
//     "try again later, or for longer (" + spelled("Fetchers::Options::retry_for") + ")"
//
// spell_for() selects the spelling for the process. A name that is not in the list does not
// compile.

/// The interface whose names errors use.
enum class Face : std::uint8_t { kLibrary, kCommand, kPython };

/// The names of one option, command or value. An empty name means that the interface does not have
/// it.
struct Spelling {
  std::string_view library;
  std::string_view command;
  std::string_view python;
};

namespace spelling {

constexpr Spelling cpp_only(std::string_view library) { return {library, "", ""}; }
/// An option that has the same name in Python and C++.
constexpr Spelling option(std::string_view library, std::string_view command) {
  return {library, command, library};
}
/// A command of the command line. Errors in C++ programs name the same command.
constexpr Spelling command(std::string_view text, std::string_view python) {
  return {text, text, python};
}

}  // namespace spelling

inline constexpr auto kSpellings = std::to_array<Spelling>({
    // Data sets, indexes and their building.
    {"Dataset::open", "", "shardwise.open()"},
    {"Dataset::Access::kMap", "--access map", "access=\"map\""},
    {"Dataset::Access::kRange", "--access range", "access=\"range\""},
    {"Dataset::Options::accept_times", "--accept-times", "accept_times=True"},
    {"Dataset::Options::allow_part", "--allow-part", "allow_part=True"},
    {"Dataset::Options::cache", "--cache DIR", "cache="},
    {"Dataset::Options::root", "--root DIR", "root="},
    {"Dataset::Options::max_open_shards", "", "max_open_shards="},
    {"BuildOptions::accept_times", "--accept-times", "accept_times=True"},
    {"Index::Content::hashes", "--hash", "hashes=True"},
    {"Index::Content::unique_keys", "--unique-keys (--forget, if the index was built with it)",
     "unique_keys=True (forget=True, if the index was built with it)"},
    {"IndexCacheOptions::build", "", "columns="},
    {"IndexCacheOptions::build_missing", "--no-index-cache", "build=False"},
    {"IndexCacheOptions::directory", "--index-cache DIR", "index_directory="},
    {"IndexCacheOptions::offline", "--offline", "offline=True"},
    {"Query::Limits::scratch_bytes", "--scratch-bytes", ""},
    {"ShardWriter::Options::replace", "", "replace=True"},
    {"Repacking::Options::restart", "--force", "restart=True"},
    {"SideTable::Options::columns", "--column", "columns="},
    {"SideTable::Options::name", "--name", "name="},
    {"SideTable::Options::replace", "--replace", "replace=True"},
    {"SideTable::Options::sql_table", "--table", "sql_table="},
    {"list_files", "--files", "shardwise.pack(files=)"},
    spelling::option("max_samples", "--max-samples"),
    spelling::option("max_bytes", "--max-bytes"),
    // Fetching and caching.
    spelling::cpp_only("Fetchers::add"),
    {"Fetchers::Options::allow_pipe", "--allow-pipe", "ShardCache(allow_pipe=True)"},
    {"Fetchers::Options::bearer_token_loopback", "--bearer-token-loopback",
     "bearer_token_loopback=True"},
    {"Fetchers::Options::ca_file", "--ca-file", "ShardCache(ca_file=)"},
    spelling::cpp_only("Fetchers::Options::connect_timeout"),
    {"Fetchers::Options::headers", "--http-header", "http_headers"},
    spelling::cpp_only("Fetchers::Options::low_speed_bytes_per_second"),
    spelling::cpp_only("Fetchers::Options::low_speed_time"),
    {"Fetchers::Options::max_connections_per_host", "--host-connections", "host_connections"},
    {"Fetchers::Options::max_connections_per_shard", "--shard-connections", "shard_connections"},
    spelling::cpp_only("Fetchers::Options::max_redirects"),
    spelling::cpp_only("Fetchers::Options::max_retries"),
    {"Fetchers::Options::moved", "--url-base", "url_base"},
    {"Fetchers::Options::retry_for", "--retry-for", "ShardCache(retry_for=)"},
    spelling::cpp_only("Fetchers::Options::retry_base_delay"),
    spelling::cpp_only("Fetchers::Options::retry_max_delay"),
    spelling::cpp_only("Fetchers::Options::user_agent"),
    spelling::cpp_only("Fetchers::S3Options::region"),
    {"Fetchers::Options: moved, resolve, headers, netrc_file",
     "--url-base, --http-header, --bearer-token-file, --netrc-file",
     "ShardCache: url_base, resolve, http_headers, netrc_file"},
    {"ShardCache::Options::bypass_large", "--cache-bypass-large", "ShardCache(bypass_large=True)"},
    {"ShardCache::Options::group_shared", "--cache-group", "group_shared=True"},
    {"ShardCache::Options::read_only", "--cache-read-only", "read_only=True"},
    // Ranks, orders and loaders. The fields of an order have their names in order/fields.h.
    {"Sampler::Changes::kAllowAtEpochBorder", "--allow-changes", "allow_changes=True"},
    spelling::option("batch_size", "--batch"),
    spelling::option("by_group", "--group-by"),
    spelling::option("global_batch_size", "--global-batch"),
    spelling::option("rank", "--rank"),
    spelling::option("replicas", "--replicas"),
    spelling::option("world_size", "--world"),
    spelling::option("max_bad", "--max-bad"),
    spelling::option("threads", "--threads"),
    spelling::option("fetch_threads", "--prefetch"),
    {"prefetch", "", "prefetch"},
    {"columns::bytes", "", "columns.bytes"},
    spelling::cpp_only("a debug audit"),
    {"ImageDecoding::Scaling::kFast", "", "ImageDecoding(scaling=\"fast\")"},
    {"image_field", "--image-field", ""},
    {"resize", "--resize HEIGHTxWIDTH", "resize"},
    // Commands.
    spelling::command("`shardwise attach`", "shardwise.attach()"),
    spelling::command("`shardwise attach --detach`", "shardwise.detach()"),
    spelling::command("`shardwise cache fill`", "`shardwise cache fill`"),
    spelling::command("`shardwise export --format wids`", "`shardwise export --format wids`"),
    spelling::command("`shardwise index`", "shardwise.index()"),
    spelling::command("`shardwise index` again", "shardwise.update()"),
    spelling::command("`shardwise index -o INDEX DESCRIPTOR`",
                      "shardwise.index(index, descriptor)"),
    spelling::command("`shardwise index -o INDEX SOURCE`", "shardwise.index(index, source)"),
    spelling::command("`shardwise index -o INDEX --relocate OLD NEW`",
                      "`shardwise index -o INDEX --relocate OLD NEW`"),
    spelling::command("`shardwise index --check-index`", "shardwise.index(check_index=True)"),
    spelling::command("`shardwise index --column FIELD`", "shardwise.index(columns=)"),
    spelling::command("`shardwise index --hash`", "shardwise.index(hashes=True)"),
    spelling::command("`shardwise index --drop-missing`", "shardwise.index(drop_missing=True)"),
    spelling::command("`shardwise index --part I/N`", "shardwise.index(part=(i, n))"),
    spelling::command("`shardwise index --on-bad skip`", "shardwise.index(on_bad=\"skip\")"),
    spelling::command("`shardwise index --on-no-field skip`",
                      "shardwise.index(on_bad={\"no_field\": \"skip\"})"),
    spelling::command("`shardwise index --on-duplicate-field skip`",
                      "shardwise.index(on_bad={\"duplicate_field\": \"skip\"})"),
    spelling::command("`shardwise index --on-repeated-key skip`",
                      "shardwise.index(on_bad={\"repeated_key\": \"skip\"})"),
    spelling::command("`shardwise index --on-link resolve`",
                      "shardwise.index(on_bad={\"link\": \"resolve\"})"),
    spelling::command("`shardwise index --on-link skip`",
                      "shardwise.index(on_bad={\"link\": \"skip\"})"),
    spelling::command("`shardwise info`", "Dataset.info.fields"),
    spelling::command("`shardwise ls`", "Dataset.sample_keys()"),
    spelling::command("`shardwise ls --left-out`", "`shardwise ls --left-out`"),
    spelling::command("`shardwise merge`", "shardwise.merge()"),
    spelling::command("`shardwise query INDEX .schema`", "Dataset.columns"),
});

/// An element of kSpellings, selected by its C++ name.
class Named {
 public:
  template <std::size_t kSize>
  consteval Named(const char (&library)[kSize])  // NOLINT(google-explicit-constructor)
      : spelling_(find({library, kSize - 1})) {}

  constexpr const Spelling& operator*() const noexcept { return *spelling_; }

 private:
  static constexpr const Spelling* find(std::string_view library) {
    for (const Spelling& one : kSpellings) {
      if (one.library == library) return &one;
    }
    return is_not_in_the_list();
  }
  // It is not constexpr, so a call in find() does not compile.
  static const Spelling* is_not_in_the_list();

  const Spelling* spelling_;
};

/// Sets the interface whose names this process uses. The default is kLibrary.
/// @param rename  for kCommand: returns this program's name of an option, or an empty text if the
///                program does not have the option.
SHARDWISE_EXPORT void spell_for(Face face,
                                std::string_view (*rename)(std::string_view option) = nullptr);

/// Returns the name for this process's interface. If the interface has no name for it, returns the
/// C++ name.
SHARDWISE_EXPORT std::string spelled(const Spelling& what);
inline std::string spelled(Named what) { return spelled(*what); }

/// Returns `before`, the name and `after`, or an empty text if this process's interface has no name
/// for it.
SHARDWISE_EXPORT std::string if_there(std::string_view before, Named what,
                                      std::string_view after = {});

/// Returns e.g. "threads = 4" or "--threads 4".
SHARDWISE_EXPORT std::string spelled_with(Named option, std::uint64_t value);

}  // namespace shardwise::detail

namespace shardwise {
using detail::if_there;
using detail::spelled;
using detail::spelled_with;
}  // namespace shardwise
