#include "index/url_base.h"

#include <algorithm>

#include "base/url.h"

namespace shardwise::detail {
namespace {

/// Returns the position at which a URL's path begins: the slash after the host or bucket.
std::size_t path_begin(std::string_view url) { return url.find('/', url.find("://") + 3); }

/// Returns the folder of a URL's file, with its slash. It may be empty.
std::string_view url_folder_of(std::string_view url) {
  const std::string_view path = is_object_url(url) ? url : url.substr(0, url.find('?'));
  if (path_begin(path) == std::string_view::npos) return {};
  return path.substr(0, path.rfind('/') + 1);
}

}  // namespace

void UrlBase::add(std::string_view url) {
  if (!is_remote_url(url)) return;
  const std::string_view folder = url_folder_of(url);
  if (!has_url_) {
    has_url_ = true;
    base_ = folder;
    return;
  }
  const auto [end, ignored] = std::ranges::mismatch(base_, folder);
  base_.erase(end, base_.end());
  base_.resize(base_.rfind('/') + 1);
  // "https://" and "https:/" are not folders.
  if (!is_url_base(base_)) base_.clear();
}

std::string below_base(const std::string& url, std::string_view base) {
  if (base.empty() || !is_remote_url(url) || !url.starts_with(base)) return url;
  return ":" + url.substr(base.size());
}

std::optional<std::string> from_base(const std::string& stored, std::string_view base) {
  if (!stored.starts_with(':')) return stored;
  if (base.empty()) return std::nullopt;
  return std::string(base) + stored.substr(1);
}

bool is_url_base(std::string_view text) {
  if (!is_remote_url(text) || !text.ends_with('/')) return false;
  if (!is_object_url(text) && text.find_first_of("?#") != std::string_view::npos) return false;
  const std::size_t path = path_begin(text);
  return path != std::string_view::npos && path > text.find("://") + 3;
}

}  // namespace shardwise::detail
