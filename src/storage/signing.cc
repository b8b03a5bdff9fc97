#include "storage/signing.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "shardwise/base/error.h"

namespace shardwise {
namespace {

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

[[noreturn]] void refuse_key(std::string_view what) {
  throw InvalidArgument("the " + std::string(what) + " is malformed", "",
                        "copy the whole value again");
}

/// Fails for an encrypted key. Without this callback, OpenSSL would ask for the password at the
/// terminal.
int no_password(char*, int, int, void*) { return -1; }

}  // namespace

std::string base64(std::string_view bytes) {
  std::vector<unsigned char> text(4 * ((bytes.size() + 2) / 3) + 1);
  const int size = EVP_EncodeBlock(text.data(), bytes_of(bytes), static_cast<int>(bytes.size()));
  return {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(size)};
}

std::string base64_url(std::string_view bytes) {
  std::string text = base64(bytes);
  while (text.ends_with('=')) text.pop_back();
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return text;
}

std::string base64_decoded(std::string_view text, std::string_view what) {
  std::vector<unsigned char> bytes(text.size() + 1);
  const int size = EVP_DecodeBlock(bytes.data(), bytes_of(text), static_cast<int>(text.size()));
  const std::size_t padding = text.size() - std::min(text.find('='), text.size());
  const bool is_padded = text.find_first_not_of('=', text.size() - padding) == text.npos;
  if (text.empty() || text.size() % 4 != 0 || size < 0 || padding > 2 || !is_padded) {
    refuse_key(what);
  }
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(size) - padding};
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text), text.size(),
           digest, &size) == nullptr) {
    throw std::bad_alloc();
  }
  return {reinterpret_cast<const char*>(digest), size};
}

std::string rs256(const std::string& key_pem, std::string_view text, std::string_view what) {
  const std::unique_ptr<BIO, int (*)(BIO*)> memory(
      BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())), BIO_free);
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
      memory ? PEM_read_bio_PrivateKey(memory.get(), nullptr, &no_password, nullptr) : nullptr,
      EVP_PKEY_free);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  std::size_t size = 0;
  if (!key || !context ||
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, bytes_of(text), text.size()) != 1) {
    refuse_key(what);
  }
  std::string signature(size, '\0');
  auto* const out = reinterpret_cast<unsigned char*>(signature.data());
  if (EVP_DigestSign(context.get(), out, &size, bytes_of(text), text.size()) != 1) refuse_key(what);
  signature.resize(size);
  return signature;
}

}  // namespace shardwise
