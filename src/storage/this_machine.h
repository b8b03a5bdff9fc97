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
  // A host name may begin with "127." as well.
  const bool is_number = std::ranges::all_of(host, [](char c) { return is_digit(c) || c == '.'; });
  return host == "localhost" || host == "[::1]" || (is_number && host.starts_with("127."));
}

/// True if a request to `url` cannot be read in transit: over https, or on this machine.
inline bool keeps_secrets(const std::string& url) {
  const Url parsed = parse_url(url);
  return parsed.scheme == "https" || is_this_machine(parsed.host);
}

/// Throws InvalidArgument unless keeps_secrets().
/// @param named_by  the file or variable that names the URL.
inline void require_keeps_secrets(const std::string& url, const std::string& named_by) {
  if (keeps_secrets(url)) return;
  throw InvalidArgument("a token would be sent without encryption",
                        in_quotes(redacted_url(url)) + " (of " + named_by + ")",
                        "use an https URL for the service");
}

}  // namespace shardwise
