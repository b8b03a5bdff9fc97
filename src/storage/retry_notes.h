#pragma once

#include <chrono>
#include <string>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns the sentence that reports a failed fetch which is retried, e.g. "'http://h/a.tar' cannot
/// be fetched now (HTTP status 503); retrying for at most 15 min (--retry-for)".
SHARDWISE_EXPORT std::string retry_note(const std::string& url, const std::string& reason,
                                        std::chrono::milliseconds left);

/// The type of Fetchers::Options::on_retry, as a plain function.
using RetryHook = void (*)(const std::string& url, const std::string& reason,
                           std::chrono::milliseconds left);

/// Sets the default of Fetchers::Options::on_retry for Fetchers that are made later. Null at first:
/// retries are not reported. The Python module sets it, because most fetches of Python programs use
/// default Fetchers.
/// Threads: any.
SHARDWISE_EXPORT void set_retry_hook(RetryHook hook) noexcept;
[[nodiscard]] RetryHook retry_hook() noexcept;

}  // namespace shardwise::detail
