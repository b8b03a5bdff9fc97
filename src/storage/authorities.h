#pragma once

#include <span>
#include <string>

namespace shardwise {

/// The certificate authorities that are trusted for https.
struct Authorities {
  std::string file = {};  ///< certificates in PEM; may be empty
  /// Folder with one certificate per file. The files are named by hash, as by `openssl rehash`.
  std::string folder = {};
  /// The setting that named the file or the folder, for messages, e.g. "SSL_CERT_FILE"; may be
  /// empty.
  std::string setting = {};
  bool are_built_in = false;  ///< use libcurl's defaults unchanged

  bool are_none() const { return file.empty() && folder.empty() && !are_built_in; }
};

/// The default paths of the linked libcurl; empty if libcurl has none, e.g. because it was built
/// for many distributions.
struct BuiltInAuthorities {
  std::string file = {};
  std::string folder = {};
};

/// Finds the authorities. Only the first of these sources that exists is used: `ca_file`;
/// CURL_CA_BUNDLE; SSL_CERT_FILE with SSL_CERT_DIR; existing files of `built_in`; the first
/// existing path of `places`.
/// Cost: each call reads the environment and the disk.
Authorities find_authorities(const std::string& ca_file, const BuiltInAuthorities& built_in,
                             std::span<const char* const> places);

/// Finds the authorities as above, with the default paths of the linked libcurl and the paths of
/// known distributions.
/// @param is_aws  for requests to AWS: try AWS_CA_BUNDLE after `ca_file`.
Authorities find_authorities(const std::string& ca_file, bool is_aws = false);

}  // namespace shardwise
