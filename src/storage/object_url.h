#pragma once

#include <string>

namespace shardwise {

/// The parts of scheme://bucket/key. The key is decoded to bytes.
struct ObjectUrl {
  std::string bucket, key;
};

/// Parses the URL of an object.
/// @param form          expected form for error messages, e.g. "gs://bucket/object".
/// @param may_be_start  the key is a prefix for a listing, and may be empty.
/// Errors: InvalidArgument; the message quotes the URL without secrets.
ObjectUrl parse_object_url(const std::string& url, const char* form, bool may_be_start = false);

}  // namespace shardwise
