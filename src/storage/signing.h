#pragma once

#include <string>
#include <string_view>

namespace shardwise {

// Primitives for the signatures of cloud stores, implemented with libcrypto.
// Errors: InvalidArgument for a malformed key. Messages never contain any part of the key.

/// Base64 with padding (RFC 4648, section 4).
std::string base64(std::string_view bytes);
/// Base64 for URLs, without padding (RFC 4648, section 5).
std::string base64_url(std::string_view bytes);
/// Decodes base64.
/// @param what  name of the text in messages, e.g. "key of the Azure account".
std::string base64_decoded(std::string_view text, std::string_view what);
/// HMAC-SHA256 (RFC 2104), 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);
/// Signs `text` by RSASSA-PKCS1-v1_5 with SHA-256 ("RS256" of RFC 7518).
/// @param key_pem  private key in PEM.
/// @param what     name of the key in messages.
std::string rs256(const std::string& key_pem, std::string_view text, std::string_view what);

}  // namespace shardwise
