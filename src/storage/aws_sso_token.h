#pragma once

#include <string>

#include "shardwise/base/cancel.h"
#include "storage/http_client.h"

namespace shardwise {

/// The access token of an SSO session, as `aws sso login` left it in ~/.aws/sso/cache.
///
/// One of an [sso-session] that is about to expire is renewed by its refresh token, as AWS's own
/// programs do (OIDC CreateToken), and written back for them: the file appears whole, and only its
/// owner may read it. Where that fails, an access token that is still valid is used to its end.
/// Another process may renew it at the same time; whichever token is there afterwards is taken.
/// Errors: InvalidArgument, if there is no token, or it has expired and cannot be renewed;
///   FetchError, if it has expired and the service fails; Cancelled. No text holds a token.
/// @param name    of the session, or the start URL, after which the file is called.
/// @param oidc    the base address of the service that renews; empty: it is not renewed.
std::string find_sso_token(HttpClient& client, const std::string& name, const std::string& oidc,
                           const CancelToken& cancel);

}  // namespace shardwise
