#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Appends the URLs of one page of a listing to `urls`. Returns the name of the next page; empty
/// after the last page.
using ListPage =
    std::function<std::string(const std::string& page, std::vector<std::string>& urls)>;

/// Returns all URLs of a paged listing, sorted bytewise. The first call of `page` gets "".
/// Errors: FetchError if a page names itself as the next; Cancelled; errors of `page`.
std::vector<std::string> list_pages(const Fetcher::Request& request, const ListPage& page);

/// Throws FetchError, because the server's response is not a listing.
[[noreturn]] void throw_no_list(const std::string& url);

}  // namespace shardwise
