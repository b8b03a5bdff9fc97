#pragma once

#include <memory>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/http_exchange.h"
#include "storage/s3_profile.h"

namespace shardwise {

/// Fetches s3://bucket/key.
std::unique_ptr<Fetcher> make_s3_fetcher(const Fetchers::Options& options);

/// Returns the web address of `url`, with the keys that sign the request.
/// Errors: InvalidArgument for a malformed URL, endpoint, region or key; Unsupported if libcurl is
///   too old to sign.
HttpTarget s3_target(const std::string& url, const S3Access& access);

/// Returns the web address of one page of the listing of s3://bucket/prefix, with the keys that
/// sign the request.
/// @param page  name that the previous page gave; empty for the first page.
/// Errors: as s3_target.
HttpTarget s3_list_target(const std::string& url, const std::string& page, const S3Access& access);

}  // namespace shardwise
