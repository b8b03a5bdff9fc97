#pragma once

#include <cstdlib>
#include <string>

namespace shardwise {

/// Returns the value of an environment variable; empty if it is not set.
inline std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace shardwise
