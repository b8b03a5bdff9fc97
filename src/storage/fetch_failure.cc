#include "storage/fetch_failure.h"

#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise {

void throw_fetch_error(std::string_view url, std::string_view reason, std::string_view remedy) {
  throw FetchError("cannot fetch", in_quotes(redacted_url(url)) + " (" + std::string(reason) + ")",
                   remedy);
}

void throw_not_reached(std::string_view url, std::string_view reason, std::string_view remedy) {
  throw NotReached("cannot fetch", in_quotes(redacted_url(url)) + " (" + std::string(reason) + ")",
                   remedy);
}

void throw_bad_part(std::string_view url, std::string_view reason, std::string_view remedy) {
  throw BadPart("cannot fetch", in_quotes(redacted_url(url)) + " (" + std::string(reason) + ")",
                remedy);
}

void throw_not_found(std::string_view url, std::string_view reason, std::string_view remedy) {
  throw NotFound("cannot fetch", in_quotes(redacted_url(url)) + " (" + std::string(reason) + ")",
                 remedy);
}

void throw_changed_at_source(std::string_view url, std::string_view wanted, std::string_view now,
                             std::string_view cause) {
  throw StaleIndex("the file changed at its source",
                   in_quotes(redacted_url(url)) + " (version " + in_quotes(wanted) + " before, " +
                       (now.empty() ? "unknown" : in_quotes(now)) + " now)",
                   cause.empty()
                       ? "run " + spelled("`shardwise index` again") + ", or restore the old file"
                       : cause);
}

}  // namespace shardwise
