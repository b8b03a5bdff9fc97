#pragma once

#include <algorithm>
#include <string>

#include "base/ascii.h"

namespace shardwise {

/// True if a URL with this host, as parse_url() gives it, never leaves this machine.
inline bool is_this_machine(const std::string& host) {
  // A name may begin with "127." as well.
  const bool is_number = std::ranges::all_of(host, [](char c) { return is_digit(c) || c == '.'; });
  return host == "localhost" || host == "[::1]" || (is_number && host.starts_with("127."));
}

}  // namespace shardwise
