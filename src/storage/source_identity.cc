#include "storage/source_identity.h"

#include "base/url.h"

namespace shardwise {

std::string source_identity(const std::string& url) {
  return is_remote_url(url) ? unsigned_url(canonical_url(url)) : url;
}

}  // namespace shardwise
