#pragma once

#include <span>
#include <string>

namespace shardwise {

/// Whose certificates https trusts.
struct Authorities {
  std::string file = {};      ///< their certificates, in PEM; empty: none
  std::string folder = {};    ///< one file each, named after its hash as by `openssl rehash`
  std::string setting = {};   ///< what names them, for people: "SSL_CERT_FILE"; empty: nothing does
  bool are_built_in = false;  ///< those that libcurl was built to trust; it is left as it is

  bool are_none() const { return file.empty() && folder.empty() && !are_built_in; }
};

/// Where libcurl looks by itself; nothing, where it was built for many distributions.
struct BuiltInAuthorities {
  std::string file = {};
  std::string folder = {};
};

/// Those of `ca_file`, and no others; without it those that the environment names, and no others
/// (CURL_CA_BUNDLE, else SSL_CERT_FILE and SSL_CERT_DIR); else this machine's: libcurl's built-in
/// ones if they are there, or the first of `places` that is. The environment and the disk are
/// looked at in each call.
Authorities find_authorities(const std::string& ca_file, const BuiltInAuthorities& built_in,
                             std::span<const char* const> places);

/// The same, for this libcurl and the places of the distributions.
/// @param is_aws  AWS_CA_BUNDLE comes after `ca_file`: the request is one to a service of AWS.
Authorities find_authorities(const std::string& ca_file, bool is_aws = false);

}  // namespace shardwise
