#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns the part before the first colon of `url`, in lower case, if it has the form of a scheme;
/// otherwise an empty text. "C:/x" has the scheme "c".
SHARDWISE_EXPORT std::string scheme_of(std::string_view url);

/// True for `scheme://...`, where the scheme is not file: something on another machine.
SHARDWISE_EXPORT bool is_remote_url(std::string_view url);

/// True for `pipe:command` and `|command`.
SHARDWISE_EXPORT bool is_command_url(std::string_view url);

/// True for a source that is no path on this machine, so that a fetcher must bring it.
inline bool is_fetched_url(std::string_view url) {
  return is_remote_url(url) || is_command_url(url);
}

/// The parts of `scheme://[userinfo@]host[:port][/path][?query][#fragment]`.
struct Url {
  std::string scheme;                      ///< in lower case
  std::string userinfo = {};               ///< "user" or "user:password", as written; a secret
  std::string host;                        ///< in lower case; IPv6 in its brackets
  std::optional<std::uint16_t> port = {};  ///< nothing: not given, or the scheme's own
  std::string path = "/";                  ///< normalised, see canonical_url
  std::optional<std::string> query = {};   ///< without its question mark; may be a secret

  /// scheme://host[:port], what browsers call the origin.
  std::string origin() const;
};

/// Takes a URL apart.
/// Errors: InvalidArgument if `url` holds a control character, has no host, or a host or port that
///   is not valid; the text has the URL without its secrets.
SHARDWISE_EXPORT Url parse_url(std::string_view url);

/// Returns one spelling for all URLs that name the same file: for keys of caches, and for requests.
///
/// Scheme and host in lower case; no userinfo, default port or fragment; dot segments resolved; %XX
/// in upper case, unreserved characters decoded, and what no URL may hold (spaces, quotes, bytes
/// above 127) encoded. The query stays. `s3://bucket/key` and other
/// is_object_url() keep all but the case of their scheme: a key is bytes, in which nothing has a
/// meaning.
/// Errors: as parse_url.
/// Source: RFC 3986, sections 5.2.4 and 6.2.2.
SHARDWISE_EXPORT std::string canonical_url(std::string_view url);

/// `url` for texts: without userinfo and fragment, each value in the query as "***"; of a pipe:
/// URL the program's name only. Never throws for a malformed URL, but shows less of it. Not yet
/// escaped: put it in_quotes.
SHARDWISE_EXPORT std::string redacted_url(std::string_view url);

/// A path or URL for texts: a URL as redacted_url() gives it, a path as it is. Not yet escaped.
SHARDWISE_EXPORT std::string without_secrets(const std::string& path_or_url);

/// True for a URL of a store of objects (s3, gs, az, hf): what follows the bucket is a key, whose
/// bytes stand for themselves.
SHARDWISE_EXPORT bool is_object_url(std::string_view url);

/// If `url` is `from` or lies below it, as written or in another spelling (see canonical_url): the
/// URL at `to`. What follows `from` comes after the path
/// of `to`, and the query of `to` is added to its own. A path of the web becomes a key, and the
/// other way round, where the schemes are of two kinds.
SHARDWISE_EXPORT std::optional<std::string> rebased_url(std::string_view url, std::string_view from,
                                                        std::string_view to);

/// `url` without what says who asks, and until when: userinfo, fragment, and the parameters of
/// signatures in the query, which docs/formats/cache-directory.md lists (AWS, CloudFront, Google
/// Cloud Storage and CDN, Azure, Alibaba Cloud, Tencent Cloud). Other parameters stay as they are.
/// Two URLs of one file that are signed at different times give the same text. Others (of objects,
/// commands, paths) stay as they are. A pattern of URLs, or a malformed one, is stripped in the
/// same way.
SHARDWISE_EXPORT std::string unsigned_url(std::string_view url);

/// `text` with every %XX as its byte; nothing if one is malformed.
SHARDWISE_EXPORT std::optional<std::string> percent_decoded(std::string_view text);

/// `text` with every byte that is not unreserved (letters, digits, "-._~") nor in `also` as %XX.
SHARDWISE_EXPORT std::string percent_encoded(std::string_view text, std::string_view also = "");

}  // namespace shardwise::detail

namespace shardwise {
using detail::canonical_url;
using detail::is_command_url;
using detail::is_fetched_url;
using detail::is_object_url;
using detail::is_remote_url;
using detail::parse_url;
using detail::percent_decoded;
using detail::percent_encoded;
using detail::rebased_url;
using detail::redacted_url;
using detail::scheme_of;
using detail::unsigned_url;
using detail::Url;
using detail::without_secrets;
}  // namespace shardwise
