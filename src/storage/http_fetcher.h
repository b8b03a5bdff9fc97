#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// For http and https.
std::unique_ptr<Fetcher> make_http_fetcher(const Fetchers::Options& options);

/// The headers of the options that belong to a store and are sent to it: their names begin so.
/// @param beginning  in lower case, say "x-amz-". Empty means that the store has no such headers.
std::vector<std::string> headers_of_store(const Fetchers::Options& options,
                                          std::string_view beginning);
/// A note for the end of a remedy: some options that say who asks were not sent to the store. Empty
/// means that all were sent.
std::string unsent_headers(const Fetchers::Options& options, std::string_view beginning = {});

}  // namespace shardwise
