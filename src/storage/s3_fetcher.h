#pragma once

#include <memory>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/http_exchange.h"
#include "storage/s3_profile.h"

namespace shardwise {

/// For s3://bucket/key.
std::unique_ptr<Fetcher> make_s3_fetcher(const Fetchers::Options& options);

/// The web address of `url`, and what signs the request.
/// Errors: InvalidArgument for a malformed URL, endpoint, region or key; Unsupported if libcurl is
///   too old to sign.
HttpTarget s3_target(const std::string& url, const S3Access& access);

/// The web address of a page of the list of the keys that begin as `url` says, s3://bucket/prefix,
/// and what signs the request. `page` is the one after that which named it; empty: the first.
/// Errors: as s3_target.
HttpTarget s3_list_target(const std::string& url, const std::string& page, const S3Access& access);

}  // namespace shardwise
