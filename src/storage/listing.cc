#include "storage/listing.h"

#include <algorithm>

#include "storage/backoff.h"
#include "storage/fetch_failure.h"

namespace shardwise {

std::vector<std::string> list_pages(const Fetcher::Request& request, const ListPage& page) {
  std::vector<std::string> urls;
  std::string at;
  do {
    check_cancelled(request);
    std::string next = page(at, urls);
    if (!next.empty() && next == at) throw_no_list(request.url);
    at = std::move(next);
  } while (!at.empty());
  std::ranges::sort(urls);
  return urls;
}

void throw_no_list(const std::string& url) {
  throw_fetch_error(url, "the server did not send a list",
                    "check that the server speaks the protocol of the scheme");
}

}  // namespace shardwise
