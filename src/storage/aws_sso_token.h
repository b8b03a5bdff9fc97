#pragma once

#include <string>

#include "shardwise/base/cancel.h"
#include "storage/http_client.h"

namespace shardwise {

/// Returns the access token of an SSO session that `aws sso login` stored in ~/.aws/sso/cache.
///
/// If the token of an [sso-session] is about to expire, it is renewed with its refresh token (OIDC
/// CreateToken), as AWS's own programs do. The renewed token is written back atomically for those
/// programs; only the owner may read the file. If renewal fails, the old token is used until it
/// expires. If another process renews the token at the same time, that process's token is used.
///
/// Errors: InvalidArgument if there is no token, or if it has expired and cannot be renewed;
///   FetchError if it has expired and the service fails; Cancelled. Messages never contain a token.
/// @param name    name of the session, or its start URL; its SHA-1 is the file's name.
/// @param oidc    base address of the service that renews tokens; empty disables renewal.
std::string find_sso_token(HttpClient& client, const std::string& name, const std::string& oidc,
                           const CancelToken& cancel);

}  // namespace shardwise
