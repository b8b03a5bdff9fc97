#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns the part before the first colon of `url` in lower case, if it has the form of a scheme;
/// otherwise an empty text. "C:/x" has the scheme "c".
SHARDWISE_EXPORT std::string scheme_of(std::string_view url);

/// True for `scheme://...`, except file://: a source on another machine.
SHARDWISE_EXPORT bool is_remote_url(std::string_view url);

/// True for `pipe:command` and `|command`.
SHARDWISE_EXPORT bool is_command_url(std::string_view url);

/// True for a source that is not a path on this machine, so that a fetcher must download it.
inline bool is_fetched_url(std::string_view url) {
  return is_remote_url(url) || is_command_url(url);
}

/// The parts of `scheme://[userinfo@]host[:port][/path][?query][#fragment]`.
struct Url {
  std::string scheme;                      ///< in lower case
  std::string userinfo = {};               ///< "user" or "user:password", as written; secret
  std::string host;                        ///< in lower case; IPv6 in brackets
  std::optional<std::uint16_t> port = {};  ///< empty if not given, or the scheme's default
  std::string path = "/";                  ///< normalised, see canonical_url()
  std::optional<std::string> query = {};   ///< without its question mark; may be secret

  /// Returns scheme://host[:port], which browsers call the origin.
  std::string origin() const;
};

/// Parses a URL.
/// Errors: InvalidArgument if `url` holds a control character, or its host or port is missing or
///   invalid. The text shows the URL without its secrets.
SHARDWISE_EXPORT Url parse_url(std::string_view url);

/// Returns one spelling for all URLs that name the same file: for cache keys, and for requests.
///
/// Scheme and host become lower case. Userinfo, default port and fragment are removed, and dot
/// segments resolved. Each %XX is written in upper case, and unreserved characters are decoded.
/// Characters that no URL may hold (spaces, quotes, bytes above 127) are encoded. The query stays.
/// For `s3://bucket/key` and other URLs of is_object_url(), only the scheme's case changes: a key
/// is bytes without structure.
/// Errors: as parse_url.
/// Source: RFC 3986, sections 5.2.4 and 6.2.2.
SHARDWISE_EXPORT std::string canonical_url(std::string_view url);

/// Returns `url` for texts: without userinfo and fragment, and with "***" for each value in the
/// query. A pipe: URL is cut to the program's name. Never throws for a malformed URL, but shows
/// less of it. The result is not escaped: use in_quotes().
SHARDWISE_EXPORT std::string redacted_url(std::string_view url);

/// Returns a path or URL for texts: a URL as by redacted_url(), a path unchanged. Not escaped.
SHARDWISE_EXPORT std::string without_secrets(const std::string& path_or_url);

/// True for a URL of an object store (s3, gs, az, hf). The part after the bucket is a key, whose
/// bytes are taken literally.
SHARDWISE_EXPORT bool is_object_url(std::string_view url);

/// If `url` equals `from` or lies below it, in any spelling (see canonical_url()), returns the
/// matching URL below `to`.
/// The rest of `url` is appended to the path of `to`, and the query of `to` is added. If one scheme
/// is of the web and the other of an object store, the path is converted to a key, or back.
SHARDWISE_EXPORT std::optional<std::string> rebased_url(std::string_view url, std::string_view from,
                                                        std::string_view to);

/// Returns `url` without the parts that depend on who asks and until when: userinfo, fragment, and
/// the signature parameters of the query. Other parameters stay. The page
/// docs/formats/cache-directory.md lists the signatures of AWS, CloudFront, Google Cloud Storage
/// and CDN, Azure, Alibaba Cloud, and Tencent Cloud.
/// Two URLs of one file that are signed at different times give the same text. URLs of objects,
/// commands and paths stay unchanged. A pattern of URLs, or a malformed URL, is stripped in the
/// same way.
SHARDWISE_EXPORT std::string unsigned_url(std::string_view url);

/// Decodes every %XX of `text`; returns nothing if one is malformed.
SHARDWISE_EXPORT std::optional<std::string> percent_decoded(std::string_view text);

/// Encodes as %XX every byte of `text` that is neither unreserved (letters, digits, "-._~") nor in
/// `also`.
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
