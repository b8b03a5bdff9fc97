#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "storage/http_client.h"

namespace shardwise {

/// A cloud's service that gives a machine its credentials, at an address local to that machine.
///
/// Threads: internally synchronised.
class MachineService {
 public:
  explicit MachineService(const Fetchers::Options& options);

  /// Returns the answer; nullopt if there is no such service, or it has no credentials. A missing
  /// service is detected within seconds.
  /// @param promised_by  the environment variable that promises the service; may be empty. With a
  ///   promise, it is an error if the service is not reached for a minute.
  /// Errors: FetchError if it exists, but fails (429, 5xx) even after retries.
  std::optional<std::string> ask(const HttpTarget& target, const HttpQuery& query,
                                 std::string_view promised_by, const CancelToken& cancel);

 private:
  HttpClient near_client_;
  HttpClient client_;
};

}  // namespace shardwise
