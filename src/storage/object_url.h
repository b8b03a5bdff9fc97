#pragma once

#include <string>

namespace shardwise {

/// The parts of scheme://bucket/key. The key is bytes, as they are.
struct ObjectUrl {
  std::string bucket, key;
};

/// Takes a URL of an object apart.
/// @param form          for the text of the error: "gs://bucket/object".
/// @param may_be_start  the key may be empty: it is the beginning of keys.
/// Errors: InvalidArgument; the text has the URL without its secrets.
ObjectUrl parse_object_url(const std::string& url, const char* form, bool may_be_start = false);

}  // namespace shardwise
