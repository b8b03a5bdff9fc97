#include "ingest/distinct_shards.h"

#include <filesystem>
#include <system_error>

#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise {

void DistinctShards::add_file(const std::string& path, const FileIdentity& identity) {
  const auto [first, is_new] = files_.emplace(identity, path);
  if (!is_new) refuse_shard_named_twice(first->second, path);
}

void DistinctShards::add_url(const std::string& url) {
  const auto [first, is_new] =
      urls_.emplace(is_command_url(url) ? url : unsigned_url(canonical_url(url)), url);
  if (!is_new) refuse_shard_named_twice(first->second, url);
}

void DistinctShards::add_if_there(const std::string& shard) {
  if (is_fetched_url(shard)) return add_url(shard);
  std::error_code failed;
  if (std::filesystem::is_regular_file(shard, failed)) add_file(shard, file_identity(shard));
}

void refuse_shard_named_twice(const std::string& first, const std::string& second) {
  const std::string a = without_secrets(first), b = without_secrets(second);
  throw InvalidArgument("a shard is named twice",
                        in_quotes(a) + (a == b ? "" : " and " + in_quotes(b)),
                        "name each shard once; otherwise its samples occur twice");
}

}  // namespace shardwise
