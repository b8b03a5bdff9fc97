#pragma once

#include <string>

#include "shardwise/base/cancel.h"
#include "storage/http_client.h"

namespace shardwise {

/// The access token of an SSO session, as `aws sso login` left it in ~/.aws/sso/cache.
///
/// If the token of an [sso-session] is about to expire, it is renewed by its refresh token (OIDC
/// CreateToken), as AWS's own programs do. It is written back for them atomically, readable by its
/// owner alone. If renewal fails, a token that is still valid is used until it expires. If another
/// process renews it at the same time, that process's token is used.
///
/// Errors: InvalidArgument if there is no token, or it has expired and cannot be renewed;
///   FetchError if it has expired and the service fails; Cancelled. No message holds a token.
/// @param name    of the session, or its start URL; the file's name is its SHA-1.
/// @param oidc    base address of the service that renews; empty disables renewal.
std::string find_sso_token(HttpClient& client, const std::string& name, const std::string& oidc,
                           const CancelToken& cancel);

}  // namespace shardwise
