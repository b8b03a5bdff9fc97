#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace shardwise {

/// An OAuth 2.0 token, sent as "Authorization: Bearer ...".
struct AccessToken {
  std::string text;    ///< secret; empty for anonymous requests
  std::string source;  ///< where the token comes from, for messages
  /// Expiry time; nullopt if it is unknown or the token never expires.
  std::optional<std::chrono::system_clock::time_point> expires = {};

  bool are_there() const { return !text.empty(); }
  const std::string& id() const { return text; }
};

/// Parses the JSON answer of a token service: "access_token" and "expires_in" (RFC 6749, section
/// 5.1).
/// Errors: FetchError if the answer has no token.
AccessToken parse_access_token(const std::string& answer, const std::string& source);

}  // namespace shardwise
