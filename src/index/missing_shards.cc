#include "index/missing_shards.h"

#include <algorithm>
#include <filesystem>

#include "base/counted.h"
#include "base/file.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"

namespace shardwise::detail {

bool is_missing(const Index::Shard& shard) {
  if (is_fetched_url(shard.path)) return false;
  std::error_code failed;
  return std::filesystem::status(shard.path, failed).type() ==
         std::filesystem::file_type::not_found;
}

std::string count_missing_shards(const Index& index) {
  constexpr std::uint64_t kMax = 1000;
  const std::uint64_t num_shards = index.num_shards();
  const std::uint64_t num_looked_at = std::min(num_shards, kMax);
  std::uint64_t num_missing = 0;
  for (std::uint64_t i = 0; i < num_looked_at; ++i) {
    const std::uint64_t rest = num_shards % num_looked_at;
    const std::uint64_t shard = num_shards / num_looked_at * i + std::min(i, rest);
    num_missing += is_missing(index.shard(shard)) ? 1 : 0;
  }
  return (num_looked_at < num_shards ? "at least " : "") + human_count(num_missing) + " of " +
         counted(num_shards, "shard") + (num_missing == 1 ? " is missing" : " are missing");
}

std::string how_to_find(const Index& index, const Index::Shard& shard) {
  if (!index.lookup().root.empty()) {
    const std::filesystem::path root = normal_absolute_path(index.lookup().root);
    return "give with " + spelled("Dataset::Options::root") + " the folder that holds " +
           in_quotes(std::filesystem::path(shard.path).lexically_relative(root).string()) +
           "; it is not in " + in_quotes(index.lookup().root);
  }
  const std::string where = shard.url.starts_with('/')
                                ? "the index stores this path"
                                : "the index stores paths relative to the folder of the index, " +
                                      in_quotes(normal_absolute_path(directory_of(index.path())));
  return where + ": move the shards back, give their new folder with " +
         spelled("Dataset::Options::root") + ", or store their new place with " +
         spelled("`shardwise index -o INDEX --relocate OLD NEW`");
}

NotFound missing_shard_error(const Index& index, const Index::Shard& shard,
                             const std::string& note) {
  return NotFound("shard not found",
                  in_quotes(shard.path) + " (No such file or directory" +
                      (note.empty() ? "" : "; ") + note + ")",
                  how_to_find(index, shard));
}

}  // namespace shardwise::detail
