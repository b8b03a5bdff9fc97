#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "base/fork.h"

namespace shardwise {

/// Remembers where servers redirected requests. Only one request for a file that is fetched in
/// parts is therefore redirected.
///
/// A redirect is kept until the time that its URL names (Expires, X-Amz-Expires), otherwise for 10
/// minutes.
/// Threads: internally synchronised.
class KnownRedirects {
 public:
  struct Redirect {
    std::string to;       ///< absolute URL; may be secret
    std::string version;  ///< see HttpTarget::version
  };

  [[nodiscard]] std::optional<Redirect> find(const std::string& url);
  void keep(const std::string& url, const Redirect& redirect);
  void drop(const std::string& url);

 private:
  struct Known {
    Redirect redirect;
    std::chrono::system_clock::time_point end;
  };
  Mutex mutex_;
  std::map<std::string, Known> by_url_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise
