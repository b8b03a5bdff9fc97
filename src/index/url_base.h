#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// The catalogue stores the common folder of all URLs of shards once. For each shard it stores a
// colon and the rest of the URL. See docs/formats/index.md.

/// Finds the common folder of all remote shards' URLs. Threads: one.
class SHARDWISE_EXPORT UrlBase {
 public:
  /// Adds a shard's url in the form of url_of_path(). Paths and commands are ignored.
  void add(std::string_view url);
  /// The deepest common folder, including its slash. It is empty if no URL was added, or the URLs
  /// have no common folder. It does not depend on the order of the add() calls.
  const std::string& text() const noexcept { return base_; }

 private:
  std::string base_;
  bool has_url_ = false;
};

/// Returns a colon and the part of `url` below `base`, e.g. ":0.tar". If `url` is not below `base`,
/// returns it unchanged.
SHARDWISE_EXPORT std::string below_base(const std::string& url, std::string_view base);
/// Reverses below_base(). Returns nullopt if `stored` begins with a colon but `base` is empty.
SHARDWISE_EXPORT std::optional<std::string> from_base(const std::string& stored,
                                                      std::string_view base);
/// True if `text` has the form of a result of UrlBase::text().
SHARDWISE_EXPORT bool is_url_base(std::string_view text);

}  // namespace shardwise::detail

namespace shardwise {
using detail::below_base;
using detail::from_base;
using detail::is_url_base;
using detail::UrlBase;
}  // namespace shardwise
