#include "index/shard_url.h"

#include <algorithm>
#include <filesystem>

#include "shardwise/base/error.h"
#include "shardwise/base/text.h"
#include "shardwise/base/url.h"

namespace shardwise {
namespace {

/// "'http://x' in 'd.json', shardlist[0].url"
std::string named(std::string_view url, std::string_view where) {
  std::string text = in_quotes(is_remote_url(url) ? redacted_url(url) : std::string(url));
  if (!where.empty()) (text += " in ") += where;
  return text;
}

[[noreturn]] void refuse_remote(std::string_view url, std::string_view where) {
  throw Unsupported("remote shards are not read by this version", named(url, where),
                    "copy the shard to a local disk and give its path");
}

/// The path in a file: URL. REQUIRES: it is one.
std::string path_in_file_url(std::string_view url, std::string_view where) {
  std::string_view rest = url.substr(5);
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    const std::size_t slash = rest.find('/');
    const std::string_view host = rest.substr(0, slash);
    if (!host.empty() && host != "localhost") refuse_remote(url, where);
    rest.remove_prefix(std::min(slash, rest.size()));
  }
  const auto path = percent_decoded(rest);
  if (!path || path->empty() || rest.find_first_of("?#") != std::string_view::npos) {
    throw InvalidArgument("a malformed file: URL", named(url, where),
                          "write file:///folder/x.tar, with %25, %3F and %23 for %, ? and #");
  }
  return *path;
}

}  // namespace

bool is_plain_path(std::string_view text) {
  return !is_command_url(text) && !is_remote_url(text) && scheme_of(text) != "file";
}

void require_local(std::string_view url, std::string_view where) {
  if (is_command_url(url)) {
    throw Unsupported("a pipe: URL is a command, and none is ever run", named(url, where),
                      "copy the shard to a local disk and give its path");
  }
  if (is_remote_url(url)) refuse_remote(url, where);
}

std::string path_of_url(std::string_view url, const std::string& directory,
                        std::string_view where) {
  require_local(url, where);
  if (url.starts_with("//")) refuse_remote(url, where);  // a host, in URLs
  const std::string path =
      scheme_of(url) == "file" ? path_in_file_url(url, where) : std::string(url);
  if (path.empty() || path.find('\0') != std::string::npos) {
    throw InvalidArgument("a URL that can name no file", named(url, where), "give a path");
  }
  return (std::filesystem::path(directory) / path).lexically_normal().string();
}

}  // namespace shardwise
