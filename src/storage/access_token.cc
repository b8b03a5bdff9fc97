#include "storage/access_token.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {

AccessToken parse_access_token(const std::string& answer, const std::string& source) {
  const nlohmann::json json = nlohmann::json::parse(answer, nullptr, false);
  AccessToken token{.text = {}, .source = source};
  if (json.is_object()) {
    const auto text = json.find("access_token");
    const auto seconds = json.find("expires_in");
    if (text != json.end() && text->is_string()) token.text = text->get<std::string>();
    std::optional<std::int64_t> lasts;
    if (seconds != json.end() && seconds->is_number()) lasts = seconds->get<std::int64_t>();
    if (seconds != json.end() && seconds->is_string()) {
      lasts = parse_int64(seconds->get<std::string>());
    }
    if (lasts) token.expires = std::chrono::system_clock::now() + std::chrono::seconds(*lasts);
  }
  if (!token.are_there()) {
    throw FetchError("no token came from " + source, "its answer has none", "check its settings");
  }
  return token;
}

}  // namespace shardwise
