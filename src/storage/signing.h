#pragma once

#include <string>
#include <string_view>

namespace shardwise {

// Primitives of the stores' signatures, by libcrypto.
// Errors: InvalidArgument for a malformed key. No message holds any of it.

/// Base64 with padding (RFC 4648, section 4).
std::string base64(std::string_view bytes);
/// Base64 for URLs, without padding (section 5).
std::string base64_url(std::string_view bytes);
/// Decodes base64.
/// @param what  names the text in messages: "key of the Azure account".
std::string base64_decoded(std::string_view text, std::string_view what);
/// HMAC-SHA256 (RFC 2104), 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);
/// A signature by RSASSA-PKCS1-v1_5 with SHA-256 ("RS256" of RFC 7518).
/// @param key_pem  a private key in PEM.
/// @param what     names the key in messages.
std::string rs256(const std::string& key_pem, std::string_view text, std::string_view what);

}  // namespace shardwise
