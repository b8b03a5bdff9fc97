#include "storage/fetch_failure.h"

#include "base/spelling.h"

namespace shardwise {

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
