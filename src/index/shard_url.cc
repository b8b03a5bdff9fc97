#include "index/shard_url.h"

#include <filesystem>
#include <optional>

#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

/// What stands before the first colon, in lower case, if it has the form of a scheme; else nothing.
std::string scheme_of(std::string_view url) {
  std::string scheme;
  for (const char c : url.substr(0, url.find(':'))) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool letter = upper || (c >= 'a' && c <= 'z');
    const bool other = (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
    if (!letter && (!other || scheme.empty())) return {};
    scheme += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return scheme.size() < url.size() ? scheme : std::string();
}

bool names_a_command(std::string_view url) {
  return url.starts_with('|') || scheme_of(url) == "pipe";
}

/// True for `scheme://...`, where the scheme is not file.
bool names_a_host(std::string_view url) {
  const std::string scheme = scheme_of(url);
  return !scheme.empty() && scheme != "file" && url.substr(scheme.size()).starts_with("://");
}

/// "'http://x' in 'd.json', shardlist[0].url"
std::string named(std::string_view url, std::string_view where) {
  std::string text = in_quotes(url);
  if (!where.empty()) (text += " in ") += where;
  return text;
}

[[noreturn]] void refuse_remote(std::string_view url, std::string_view where) {
  throw Unsupported("remote shards are not read by this version", named(url, where),
                    "copy the shard to a local disk and give its path");
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Takes the %XX out; nothing if one is malformed.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
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
  return !names_a_command(text) && !names_a_host(text) && scheme_of(text) != "file";
}

void require_local(std::string_view url, std::string_view where) {
  if (names_a_command(url)) {
    throw Unsupported("a pipe: URL is a command, and none is ever run", named(url, where),
                      "copy the shard to a local disk and give its path");
  }
  if (names_a_host(url)) refuse_remote(url, where);
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
