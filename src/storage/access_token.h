#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace shardwise {

/// A token of OAuth 2.0, for "Authorization: Bearer ...".
struct AccessToken {
  std::string text;    ///< secret; empty if requests are anonymous
  std::string source;  ///< where it comes from, for messages
  /// Its expiry; nullopt if unknown or never.
  std::optional<std::chrono::system_clock::time_point> expires = {};

  bool are_there() const { return !text.empty(); }
  const std::string& id() const { return text; }
};

/// Parses a service's answer: JSON with "access_token" and "expires_in" (RFC 6749, section 5.1).
/// Errors: FetchError if it has no token.
AccessToken parse_access_token(const std::string& answer, const std::string& source);

}  // namespace shardwise
