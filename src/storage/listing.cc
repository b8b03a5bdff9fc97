#include "storage/listing.h"

#include <algorithm>
#include <set>

#include "base/hasher.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "storage/backoff.h"
#include "storage/fetch_failure.h"

namespace shardwise {

std::vector<std::string> list_pages(const Fetcher::Request& request, const ListPage& page,
                                    std::size_t max) {
  std::vector<std::string> urls;
  std::set<Hash128> seen;  // names of pages
  std::string at;
  do {
    check_cancelled(request);
    if (!seen.insert(hash128(at)).second) throw_no_list(request.url);
    at = page(at, urls);
    if (urls.size() > max || seen.size() > max) {
      throw InvalidArgument("the listing has more than " + human_count(max) + " files or pages",
                            in_quotes(redacted_url(request.url)), "give a longer prefix");
    }
  } while (!at.empty());
  std::ranges::sort(urls);
  return urls;
}

void throw_no_list(const std::string& url) {
  throw_fetch_error(url, "the server did not send a list",
                    "check that the server speaks the protocol of the scheme");
}

}  // namespace shardwise
