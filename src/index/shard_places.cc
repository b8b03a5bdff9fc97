#include "index/shard_places.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/error_types.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/index_files.h"

namespace shardwise {
namespace {

bool is_absolute(const std::string& url) { return url.starts_with('/'); }

/// Returns the folder of an absolute path, without a trailing slash. For the root directory this is
/// empty.
std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

template <class E>
[[noreturn]] void refuse(std::string_view what, const std::string& where) {
  throw E(what, in_quotes(without_secrets(where)),
          "leave out " + spelled("Dataset::Options::root") +
              "; if the shards moved, store their new place in the index: " +
              spelled("`shardwise index -o INDEX --relocate OLD NEW`"));
}

bool goes_up(const std::string& url) { return ("/" + url + "/").find("/../") != std::string::npos; }

}  // namespace

ShardPlaces::ShardPlaces(const Catalogue& catalogue, std::string home, const Index::Lookup& lookup)
    : home_(std::move(home)) {
  for (const std::string& url : lookup.urls) {
    std::string plain = unsigned_url(url);
    if (plain != url) urls_.emplace(std::move(plain), url);
  }
  if (lookup.root.empty()) return;
  if (is_fetched_url(lookup.root)) {
    refuse<Unsupported>("the root is a URL, but must be a folder", lookup.root);
  }
  std::error_code failed;
  if (!std::filesystem::is_directory(c_path(lookup.root), failed)) {
    throw NotFound("the folder with the shards does not exist", in_quotes(lookup.root),
                   "check the path in " + spelled("Dataset::Options::root"));
  }
  root_ = normal_absolute_path(lookup.root);
  if (root_ == "/") root_.clear();
  root_ += '/';
  std::optional<std::string> shared;
  for (std::uint64_t i = 0; i < catalogue.meta().summary.num_shards; ++i) {
    const std::string url = catalogue.shard(i).url;
    if (is_fetched_url(url)) {
      refuse<Unsupported>("the shard is remote, but a root folder was given", url);
    }
    if (goes_up(url)) {
      refuse<InvalidArgument>("the stored path of a shard may lead out of the root folder", url);
    }
    if (!is_absolute(url)) continue;
    if (!shared) shared = folder_of(url);
    while (!url.starts_with(*shared + "/")) shared = folder_of(*shared);
  }
  shared_ = shared.value_or("") + "/";
}

std::string ShardPlaces::path_of(const std::string& url) const {
  if (root_.empty()) {
    const auto now = urls_.find(url);
    return now != urls_.end() ? now->second : resolve_url(home_, url);
  }
  if (is_absolute(url)) return root_ + url.substr(shared_.size());
  return root_ + (url.starts_with("./") ? url.substr(2) : url);
}

}  // namespace shardwise
