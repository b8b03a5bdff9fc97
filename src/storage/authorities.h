#pragma once

#include <span>
#include <string>

namespace shardwise {

/// The certificate authorities that https trusts.
struct Authorities {
  std::string file = {};      ///< certificates in PEM; may be empty
  std::string folder = {};    ///< one certificate per file, named by hash as `openssl rehash` does
  std::string setting = {};   ///< name of the setting, for messages: "SSL_CERT_FILE"; may be empty
  bool are_built_in = false;  ///< libcurl's defaults are used unchanged

  bool are_none() const { return file.empty() && folder.empty() && !are_built_in; }
};

/// The default paths of this libcurl; empty if it was built for many distributions.
struct BuiltInAuthorities {
  std::string file = {};
  std::string folder = {};
};

/// Finds the authorities. The first of these sources is used alone: `ca_file`, CURL_CA_BUNDLE,
/// SSL_CERT_FILE with SSL_CERT_DIR, existing files of `built_in`, the first existing path of
/// `places`.
/// Cost: reads the environment and the disk in each call.
Authorities find_authorities(const std::string& ca_file, const BuiltInAuthorities& built_in,
                             std::span<const char* const> places);

/// Finds the authorities for this libcurl and the known distributions' paths.
/// @param is_aws  for requests to AWS: try AWS_CA_BUNDLE after `ca_file`.
Authorities find_authorities(const std::string& ca_file, bool is_aws = false);

}  // namespace shardwise
