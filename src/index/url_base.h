#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// The URLs of an index's shards, as the catalogue stores them: what they have in common once, and
// of each the rest, behind a colon. See docs/formats/index.md.

/// Finds what the URLs of all remote shards have in common. One thread.
class SHARDWISE_EXPORT UrlBase {
 public:
  /// Adds a shard's url, as url_of_path() gives it; a path is passed over, and so is a command.
  void add(std::string_view url);
  /// The deepest folder of all, up to and with its slash; empty if there was no URL, or no folder
  /// of all: then each is stored whole. It does not depend on their order.
  const std::string& text() const noexcept { return base_; }

 private:
  std::string base_;
  bool has_url_ = false;
};

/// `url` as it is stored beside `base`: ":0.tar", or as it is where it does not lie below.
SHARDWISE_EXPORT std::string below_base(const std::string& url, std::string_view base);
/// Undoes it; nothing if `stored` is relative to a base, and there is none.
SHARDWISE_EXPORT std::optional<std::string> from_base(const std::string& stored,
                                                      std::string_view base);
/// True for what text() may return.
SHARDWISE_EXPORT bool is_url_base(std::string_view text);

}  // namespace shardwise::detail

namespace shardwise {
using detail::below_base;
using detail::from_base;
using detail::is_url_base;
using detail::UrlBase;
}  // namespace shardwise
