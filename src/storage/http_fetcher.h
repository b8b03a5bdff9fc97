#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Fetches http and https URLs.
std::unique_ptr<Fetcher> make_http_fetcher(const Fetchers::Options& options);

/// Returns the headers of the options whose names begin with `beginning`. Only these headers are
/// sent to a store.
/// @param beginning  in lower case, e.g. "x-amz-". Empty means that the store accepts no such
///   headers.
std::vector<std::string> headers_of_store(const Fetchers::Options& options,
                                          std::string_view beginning);
/// If some credentials of the options were not sent to the store, returns a suffix for a remedy
/// that says so; otherwise empty.
std::string unsent_headers(const Fetchers::Options& options, std::string_view beginning = {});

}  // namespace shardwise
