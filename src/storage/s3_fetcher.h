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
HttpTarget s3_target(const std::string& url, const Fetchers::S3Options& options,
                     const S3Access& access);

}  // namespace shardwise
