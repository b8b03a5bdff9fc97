#include "ingest/shard_url.h"

#include <algorithm>

#include "base/assert.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"

namespace shardwise {
namespace {

/// For error texts, e.g. "'http://x' in 'd.json', shardlist[0].url".
std::string named(std::string_view url, std::string_view where) {
  std::string text = in_quotes(without_secrets(std::string(url)));
  if (!where.empty()) (text += " in ") += where;
  return text;
}

/// Returns the path in a file: URL.
/// REQUIRES: `url` is a file: URL.
std::string path_in_file_url(std::string_view url, std::string_view where) {
  SHARDWISE_ASSERT(scheme_of(url) == "file");
  std::string_view rest = url.substr(5);
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    const std::size_t slash = rest.find('/');
    const std::string_view host = rest.substr(0, slash);
    if (!host.empty() && host != "localhost") {
      throw Unsupported(
          "the file: URL names another machine", named(url, where),
          "give an http, https or s3 URL, or copy the file and give the path of the copy");
    }
    rest.remove_prefix(std::min(slash, rest.size()));
  }
  const auto path = percent_decoded(rest);
  if (!path || path->empty() || rest.find_first_of("?#") != std::string_view::npos) {
    throw InvalidArgument("the file: URL is malformed", named(url, where),
                          "write file:///folder/x.tar, with %25, %3F and %23 for %, ? and #");
  }
  return *path;
}

}  // namespace

bool is_plain_path(std::string_view text) {
  return !is_command_url(text) && !is_remote_url(text) && scheme_of(text) != "file";
}

void require_no_command(std::string_view url, std::string_view where) {
  if (!is_command_url(url)) return;
  throw Unsupported(
      "a pipe: URL is a command, and commands are not run", named(url, where),
      "copy the shard to a local disk and give its path, or run your own commands with " +
          spelled("Fetchers::Options::allow_pipe"));
}

std::string resolve_reference(std::string_view url, const std::string& base,
                              std::string_view where) {
  require_no_command(url, where);
  const bool remote_base = is_remote_url(base);
  const bool remote = is_remote_url(url);
  if (url.empty() || url.find('\0') != std::string_view::npos) {
    throw InvalidArgument("the URL names no file", named(url, where), "give a path");
  }
  if (remote && remote_base) {
    const std::string from = scheme_of(base), to = scheme_of(url);
    if (from != to && !(from == "http" && to == "https")) {
      throw Unsupported("a remote list or descriptor names a URL of another scheme",
                        named(url, where), "use relative paths, or " + from + ": URLs");
    }
  }
  if (remote) {
    // Reports a malformed URL here, where its source is known.
    static_cast<void>(canonical_url(url));
    return std::string(url);
  }
  if (remote_base) {
    if (scheme_of(url) == "file" || url.starts_with('/')) {
      throw Unsupported("a remote list or descriptor names a path on this machine",
                        named(url, where), "use relative paths, or URLs with a scheme");
    }
    return base + "/" + std::string(url);
  }
  if (url.starts_with("//")) {
    throw InvalidArgument("the URL has no scheme", named(url, where), "begin the URL with https:");
  }
  const std::string path =
      scheme_of(url) == "file" ? path_in_file_url(url, where) : std::string(url);
  if (path.starts_with('/') || base.empty()) return normal_path(path);
  return normal_path(base.ends_with('/') ? base + path : base + "/" + path);
}

std::string_view without_query(std::string_view path_or_url) {
  const bool has_parts = is_remote_url(path_or_url) && !is_object_url(path_or_url);
  return has_parts ? path_or_url.substr(0, path_or_url.find_first_of("?#")) : path_or_url;
}

std::string base_of_reference(const std::string& path) {
  if (!is_remote_url(path)) return directory_of(path);
  const std::string plain(without_query(path));
  const std::size_t host = plain.find("://") + 3;
  const std::size_t slash = plain.rfind('/');
  return slash == std::string::npos || slash < host ? plain : plain.substr(0, slash);
}

}  // namespace shardwise
