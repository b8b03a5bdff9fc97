#include "storage/authorities.h"

#include <curl/curl.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/spelling.h"
#include "storage/environment.h"

namespace shardwise {
namespace {

/// The files in which distributions keep the certificates of all authorities.
constexpr auto kPlaces = std::to_array<const char*>({
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Alpine, NixOS
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, Red Hat
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Red Hat, if the file above is missing
    "/etc/ssl/ca-bundle.pem",                             // SUSE
    "/var/lib/ca-certificates/ca-bundle.pem",             // SUSE, if the link above is missing
    "/etc/ssl/cert.pem",                                  // Alpine without ca-certificates
});

bool is_there(const std::string& path) {
  return !path.empty() && ::access(path.c_str(), R_OK) == 0;
}

std::string text_of(const char* text) { return text == nullptr ? std::string() : text; }

}  // namespace

Authorities find_authorities(const std::string& ca_file, const BuiltInAuthorities& built_in,
                             std::span<const char* const> places) {
  if (!ca_file.empty()) return {.file = ca_file, .setting = spelled("Fetchers::Options::ca_file")};
  std::string file = environment("CURL_CA_BUNDLE");
  if (!file.empty()) return {.file = std::move(file), .setting = "CURL_CA_BUNDLE"};
  file = environment("SSL_CERT_FILE");
  std::string folder = environment("SSL_CERT_DIR");
  if (!file.empty() || !folder.empty()) {
    std::string setting = file.empty() ? "SSL_CERT_DIR" : "SSL_CERT_FILE";
    return {.file = std::move(file), .folder = std::move(folder), .setting = std::move(setting)};
  }
  if (is_there(built_in.file) || is_there(built_in.folder)) return {.are_built_in = true};
  for (const char* const place : places) {
    if (is_there(place)) return {.file = place};
  }
  return {};
}

Authorities find_authorities(const std::string& ca_file, bool is_aws) {
  std::string aws_file = is_aws && ca_file.empty() ? environment("AWS_CA_BUNDLE") : "";
  if (!aws_file.empty()) return {.file = std::move(aws_file), .setting = "AWS_CA_BUNDLE"};
  const curl_version_info_data& curl = *curl_version_info(CURLVERSION_NOW);
  return find_authorities(ca_file, {.file = text_of(curl.cainfo), .folder = text_of(curl.capath)},
                          kPlaces);
}

}  // namespace shardwise
