#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace shardwise::test {

/// Sets environment variables of this process, and restores them on destruction.
/// Threads: one.
class Environment {
 public:
  Environment() = default;
  ~Environment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const std::string& name, const std::string& value) {
    keep(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  void unset(const std::string& name) {
    keep(name);
    ::unsetenv(name.c_str());
  }

 private:
  void keep(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    before_.emplace(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
  }

  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace shardwise::test
