#include "storage/machine_service.h"

#include <algorithm>

#include "storage/fetch_failure.h"

namespace shardwise {
namespace {

/// Reduces the timeouts. Most machines are not in a cloud, and must not wait long for a service.
Fetchers::Options impatient(Fetchers::Options options) {
  options.connect_timeout = std::min(options.connect_timeout, std::chrono::milliseconds(1000));
  options.max_retries = std::min(options.max_retries, 1);
  return options;
}

/// Limits retries to a minute. The service is on this machine, so a longer outage is not temporary.
Fetchers::Options patient_for_a_minute(Fetchers::Options options) {
  options.retry_for =
      std::min<std::chrono::milliseconds>(options.retry_for, std::chrono::minutes(1));
  return options;
}

}  // namespace

MachineService::MachineService(const Fetchers::Options& options)
    : near_client_(impatient(options)), client_(patient_for_a_minute(options)) {}

std::optional<std::string> MachineService::ask(const HttpTarget& target, const HttpQuery& query,
                                               std::string_view promised_by,
                                               const CancelToken& cancel) {
  const Fetcher::Request request{.url = target.url, .cancel = cancel};
  const auto text_of = [](HttpClient::Text&& answer) {
    return answer.result.has_file() ? std::optional(std::move(answer.text)) : std::nullopt;
  };
  try {
    return text_of(near_client_.ask_for_text(target, query, request));
  } catch (const NotReached&) {
    if (promised_by.empty()) return std::nullopt;
  } catch (const FetchError&) {  // the service exists, but failed
  }
  try {
    return text_of(client_.ask_for_text(target, query, request));
  } catch (const NotReached& away) {
    if (promised_by.empty()) throw;
    throw FetchError("cannot reach the service for this machine's credentials",
                     std::string(promised_by) + " announces the service: " + away.what(), "");
  }
}

}  // namespace shardwise
