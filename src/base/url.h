#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns the part of `url` before the first colon, in lower case, if it has the form of a scheme.
/// Otherwise returns an empty text. "C:/x" has the scheme "c".
SHARDWISE_EXPORT std::string scheme_of(std::string_view url);

/// True for `scheme://...` except file://, i.e. for a source on another machine.
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
  std::string userinfo = {};               ///< "user" or "user:password", as written; it is secret
  std::string host;                        ///< in lower case; IPv6 in brackets
  std::optional<std::uint16_t> port = {};  ///< empty if it is not given, or is the scheme's default
  std::string path = "/";                  ///< normalised, see canonical_url()
  std::optional<std::string> query = {};   ///< without its question mark; may be secret

  /// Returns scheme://host[:port], the origin.
  std::string origin() const;
};

/// Parses a URL.
/// Errors: InvalidArgument if `url` contains a control character, its host is missing or invalid,
///   or its port is invalid. The text shows the URL without its secrets.
SHARDWISE_EXPORT Url parse_url(std::string_view url);

/// Returns the same spelling for all URLs of one file. It is used for cache keys and for requests.
///
/// Scheme and host become lower case. Userinfo, default port and fragment are removed, and dot
/// segments resolved. Each %XX is written in upper case, and unreserved characters are decoded.
/// Characters that a URL must not contain (spaces, quotes, bytes above 127) are encoded. The query
/// is kept. For `s3://bucket/key` and other URLs of is_object_url(), only the scheme's case
/// changes, because a key is bytes without structure.
/// Errors: those of parse_url().
/// Source: RFC 3986, sections 5.2.4 and 6.2.2.
SHARDWISE_EXPORT std::string canonical_url(std::string_view url);

/// Returns `url` for error texts and logs: without userinfo and fragment, and with "***" in place
/// of each value in the query. A pipe: URL is cut to the program's name. It never throws, but shows
/// less of a malformed URL. The result is not escaped: use in_quotes().
SHARDWISE_EXPORT std::string redacted_url(std::string_view url);

/// Returns redacted_url() of a URL, and a path unchanged. The result is not escaped.
SHARDWISE_EXPORT std::string without_secrets(const std::string& path_or_url);

/// True for a URL of an object store (s3, gs, az, hf). The part after the bucket is a key, whose
/// bytes are used literally.
SHARDWISE_EXPORT bool is_object_url(std::string_view url);

/// If `url` equals `from` or is below it, in any spelling (see canonical_url()), returns the
/// corresponding URL below `to`; otherwise returns nothing. The rest of `url` is appended to the
/// path of `to`, and the query of `to` is added. Between http URLs and URLs of an object store, the
/// path is converted to a key, or back.
SHARDWISE_EXPORT std::optional<std::string> rebased_url(std::string_view url, std::string_view from,
                                                        std::string_view to);

/// Returns `url` without the parts that depend on the user and on the time: userinfo, fragment, and
/// the signature parameters of the query. Other parameters are kept.
/// docs/formats/cache-directory.md lists the parameters of AWS, CloudFront, Google Cloud Storage
/// and CDN, Azure, Alibaba Cloud, and Tencent Cloud. Two URLs of one file that are signed at
/// different times give the same result. URLs of object stores, commands and paths are unchanged. A
/// pattern of URLs, or a malformed URL, is stripped in the same way.
SHARDWISE_EXPORT std::string unsigned_url(std::string_view url);

/// Decodes every %XX of `text`. Returns nothing if a % is not followed by two hexadecimal digits.
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
