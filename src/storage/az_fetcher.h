#pragma once

#include <memory>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/http_exchange.h"

namespace shardwise {

/// Fetches az://container/blob and az://account.blob.core.windows.net/container/blob from Azure
/// Blob Storage, with credentials from the environment. See docs/remote.md.
std::unique_ptr<Fetcher> make_az_fetcher(const Fetchers::Options& options);

/// Returns the string to sign for a request to Azure ("Shared Key").
/// @param path   path as encoded in the URL.
/// @param query  query without the question mark.
/// @param date   value of the x-ms-date header.
/// Source: "Authorize with Shared Key", Microsoft's reference of Azure Storage.
std::string azure_string_to_sign(const HttpQuery& request, const std::string& account,
                                 const std::string& path, const std::string& query,
                                 const std::string& date, const std::string& version);

}  // namespace shardwise
