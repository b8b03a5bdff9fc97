#include "storage/object_url.h"

#include <algorithm>
#include <string_view>

#include "base/ascii.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise {

ObjectUrl parse_object_url(const std::string& url, const char* form, bool may_be_start) {
  const std::string scheme = scheme_of(url);
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument("the " + scheme + ": URL is malformed",
                          in_quotes(redacted_url(url)) + " (" + std::string(why) + ")",
                          "write " + std::string(form));
  };
  const std::string canonical = canonical_url(url);
  std::string_view rest = std::string_view(canonical).substr(scheme.size() + 1);
  if (!rest.starts_with("//")) refuse("the URL has no //");
  rest.remove_prefix(2);
  const std::size_t slash = rest.find('/');
  const std::string_view bucket = rest.substr(0, slash);
  const bool is_bucket = !bucket.empty() && std::ranges::all_of(bucket, [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_';
  });
  if (!is_bucket || bucket == "." || bucket == "..") refuse("the bucket's name is not valid");
  if (slash == std::string_view::npos || (slash + 1 == rest.size() && !may_be_start)) {
    refuse("the URL names no key");
  }
  return {std::string(bucket), std::string(rest.substr(slash + 1))};
}

}  // namespace shardwise
