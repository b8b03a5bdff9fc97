#pragma once

#include <cstddef>
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
/// @param max  the largest number of URLs, and of pages; by default the limit of source lists.
/// Errors: FetchError if a page names an earlier page as the next; InvalidArgument if there are
/// more than `max` URLs or pages; Cancelled; errors of `page`.
std::vector<std::string> list_pages(const Fetcher::Request& request, const ListPage& page,
                                    std::size_t max = 10'000'000);

/// Throws FetchError, because the server's response is not a listing.
[[noreturn]] void throw_no_list(const std::string& url);

}  // namespace shardwise
