#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Adds the URLs of one page of a list, and returns the name of the next page; empty after the
/// last.
using ListPage =
    std::function<std::string(const std::string& page, std::vector<std::string>& urls)>;

/// All URLs of a paged list, sorted bytewise. `page` is first called with "".
/// Errors: FetchError if a page names itself as the next; Cancelled; errors of `page`.
std::vector<std::string> list_pages(const Fetcher::Request& request, const ListPage& page);

/// Throws FetchError: the server's answer is not a list.
[[noreturn]] void throw_no_list(const std::string& url);

}  // namespace shardwise
