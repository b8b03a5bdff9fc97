#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Adds the URLs of one page of a list, and returns the name of the next one; empty: it was the
/// last.
using ListPage =
    std::function<std::string(const std::string& page, std::vector<std::string>& urls)>;

/// All URLs of a list that comes in pages, bytewise sorted. `page` is first called with "".
/// Errors: FetchError, if a page names itself as the next one; Cancelled; those of `page`.
std::vector<std::string> list_pages(const Fetcher::Request& request, const ListPage& page);

/// Throws FetchError: what the server sent is no list.
[[noreturn]] void throw_no_list(const std::string& url);

}  // namespace shardwise
