#pragma once

#include <algorithm>
#include <string>

#include "base/ascii.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// True if requests to this host, as parsed by parse_url(), never leave this machine.
inline bool is_this_machine(const std::string& host) {
  // Check for digits, because a host name may also begin with "127.".
  const bool is_number = std::ranges::all_of(host, [](char c) { return is_digit(c) || c == '.'; });
  return host == "localhost" || host == "[::1]" || (is_number && host.starts_with("127."));
}

/// True if a request to `url` cannot be read in transit, because it uses https or stays on this
/// machine.
inline bool keeps_secrets(const std::string& url) {
  const Url parsed = parse_url(url);
  return parsed.scheme == "https" || is_this_machine(parsed.host);
}

/// Throws InvalidArgument if a request to `url` could be read in transit (see keeps_secrets()).
/// @param named_by  name of the file or variable that contains the URL.
inline void require_keeps_secrets(const std::string& url, const std::string& named_by) {
  if (keeps_secrets(url)) return;
  throw InvalidArgument("a token would be sent without encryption",
                        in_quotes(redacted_url(url)) + " (of " + named_by + ")",
                        "use an https URL for the service");
}

}  // namespace shardwise
