#include "storage/machine_service.h"

#include <algorithm>

#include "storage/fetch_failure.h"

namespace shardwise {
namespace {

/// Most machines are none of a cloud's, and shall not wait for it.
Fetchers::Options impatient(Fetchers::Options options) {
  options.connect_timeout = std::min(options.connect_timeout, std::chrono::milliseconds(1000));
  options.max_retries = std::min(options.max_retries, 1);
  return options;
}

}  // namespace

MachineService::MachineService(const Fetchers::Options& options)
    : near_client_(impatient(options)), client_(options) {}

std::optional<std::string> MachineService::ask(const HttpTarget& target, const HttpQuery& query,
                                               const CancelToken& cancel) {
  const Fetcher::Request request{.url = target.url, .cancel = cancel};
  const auto text_of = [](HttpClient::Text&& answer) {
    return answer.result.has_file() ? std::optional(std::move(answer.text)) : std::nullopt;
  };
  try {
    return text_of(near_client_.ask_for_text(target, query, request));
  } catch (const NotReached&) {
    return std::nullopt;
  } catch (const FetchError&) {  // it is there, and stumbled
    return text_of(client_.ask_for_text(target, query, request));
  }
}

}  // namespace shardwise
