#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "storage/http_client.h"

namespace shardwise {

/// A cloud's service that issues credentials to a machine, at an address that only this machine
/// reaches.
///
/// Threads: internally synchronised.
class MachineService {
 public:
  explicit MachineService(const Fetchers::Options& options);

  /// Returns the response; nullopt if the service does not exist or has no credentials. A missing
  /// service is detected within seconds.
  /// @param promised_by  name of the environment variable that announces the service; may be empty.
  ///   If a variable announces the service, failing to reach it for a minute is an error.
  /// Errors: FetchError if the service exists, but still fails (429, 5xx) after retries.
  std::optional<std::string> ask(const HttpTarget& target, const HttpQuery& query,
                                 std::string_view promised_by, const CancelToken& cancel);

 private:
  HttpClient near_client_;
  HttpClient client_;
};

}  // namespace shardwise
