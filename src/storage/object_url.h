#pragma once

#include <string>

namespace shardwise {

/// The parts of scheme://bucket/key. The key is unencoded bytes.
struct ObjectUrl {
  std::string bucket, key;
};

/// Parses the URL of an object.
/// @param form          for error messages: "gs://bucket/object".
/// @param may_be_start  the key is a prefix, and may be empty.
/// Errors: InvalidArgument; the message has the URL without its secrets.
ObjectUrl parse_object_url(const std::string& url, const char* form, bool may_be_start = false);

}  // namespace shardwise
