#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "storage/http_client.h"

namespace shardwise {

/// The service of a cloud that tells a machine who it is, at an address that no other machine has.
///
/// Threads: internally synchronised.
class MachineService {
 public:
  explicit MachineService(const Fetchers::Options& options);

  /// What it answers; nothing if there is no such service here, or it knows nobody. That there is
  /// none is known after 2 seconds or so.
  /// @param promised_by  what says that there is one, as a variable of the environment: then it is
  ///                     an error if it is not reached for a minute. Empty: nothing does.
  /// Errors: FetchError, if it is there, and cannot answer now (429, 5xx), also after retries.
  std::optional<std::string> ask(const HttpTarget& target, const HttpQuery& query,
                                 std::string_view promised_by, const CancelToken& cancel);

 private:
  HttpClient near_client_;
  HttpClient client_;
};

}  // namespace shardwise
