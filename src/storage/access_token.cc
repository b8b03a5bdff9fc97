#include "storage/access_token.h"

#include "shardwise/base/error.h"
#include "storage/iso_time.h"
#include "storage/json_text.h"

namespace shardwise {

AccessToken parse_access_token(const std::string& answer, const std::string& source) {
  const nlohmann::json json = nlohmann::json::parse(answer, nullptr, false);
  AccessToken token{.text = json_text(json, "access_token"), .source = source};
  if (const auto lasts = json_count(json, "expires_in")) token.expires = time_from_now(*lasts);
  if (!token.are_there()) {
    throw FetchError("cannot get a token from " + source, "the response has no token",
                     "check the settings of this source");
  }
  return token;
}

}  // namespace shardwise
