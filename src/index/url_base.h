#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// How the catalogue stores the URLs of an index's shards: their common part once, and the rest of
// each after a colon. See docs/formats/index.md.

/// Finds the common folder of all remote shards' URLs. Threads: one.
class SHARDWISE_EXPORT UrlBase {
 public:
  /// Adds a shard's url, as url_of_path() returns it. Paths and commands are ignored.
  void add(std::string_view url);
  /// The deepest common folder, including its slash; empty without URLs or a common folder. Does
  /// not depend on the order of add().
  const std::string& text() const noexcept { return base_; }

 private:
  std::string base_;
  bool has_url_ = false;
};

/// `url` relative to `base` with a colon, e.g. ":0.tar"; unchanged if it is not below.
SHARDWISE_EXPORT std::string below_base(const std::string& url, std::string_view base);
/// Reverses below_base(); nullopt if `stored` is relative and `base` is empty.
SHARDWISE_EXPORT std::optional<std::string> from_base(const std::string& stored,
                                                      std::string_view base);
/// True for possible results of text().
SHARDWISE_EXPORT bool is_url_base(std::string_view text);

}  // namespace shardwise::detail

namespace shardwise {
using detail::below_base;
using detail::from_base;
using detail::is_url_base;
using detail::UrlBase;
}  // namespace shardwise
