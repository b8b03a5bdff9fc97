#include "storage/hf_fetcher.h"

#include <unistd.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/environment.h"
#include "storage/http_fetcher.h"
#include "storage/json_text.h"
#include "storage/listing.h"
#include "storage/store_fetcher.h"
#include "storage/this_machine.h"
#include "storage/token_file.h"

namespace shardwise {
namespace {

constexpr char kHfForm[] =
    "hf://datasets/owner/name[@revision]/path, or hf://buckets/owner/name/path";

std::string hub_endpoint() {
  std::string endpoint = environment("HF_ENDPOINT");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint.empty() ? "https://huggingface.co" : endpoint;
}

/// Returns HF_TOKEN, else the token that `hf auth login` stored; may be empty.
std::string hub_token() {
  std::string token(trimmed(environment("HF_TOKEN")));
  if (!token.empty()) return token;
  std::string path = environment("HF_TOKEN_PATH");
  if (path.empty() && !environment("HF_HOME").empty()) path = environment("HF_HOME") + "/token";
  if (path.empty()) path = environment("HOME") + "/.cache/huggingface/token";
  return ::access(path.c_str(), R_OK) == 0 ? read_token(path, "token of the Hugging Face Hub")
                                           : std::string();
}

/// Removes the text before the next slash from `rest` (with the slash), and returns it.
std::string next_part(std::string_view& rest) {
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string part(rest.substr(0, slash));
  rest.remove_prefix(std::min(slash + 1, rest.size()));
  return part;
}

class HfFetcher : public StoreFetcher {
 public:
  explicit HfFetcher(const Fetchers::Options& options)
      : StoreFetcher(options), unsent_(unsent_headers(options)) {}

  std::vector<std::string> list(const Fetcher::Request& request) override {
    const HubPath prefix = parse_hub_path(request.url, true);
    const std::size_t slash = prefix.path.rfind('/');
    const std::string folder =
        slash == std::string::npos ? "" : "/" + encoded_path(prefix, prefix.path.substr(0, slash));
    const std::string first = hub_endpoint() + "/api/" + prefix.kind + "/" + prefix.repository +
                              "/tree" + below(prefix.revision) + folder + "?recursive=true";
    const std::string root = request.url.substr(0, request.url.size() - prefix.path.size());
    return list_pages(request, [&](const std::string& page, std::vector<std::string>& urls) {
      const HttpTarget asked = target(page.empty() ? first : page);
      if (parse_url(asked.url).origin() != parse_url(first).origin()) throw_no_list(request.url);
      std::string next;
      const std::string text = client_.get_text(asked, request, {}, &next);
      const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
      if (!json.is_array()) throw_no_list(request.url);
      for (const nlohmann::json& entry : json) {
        const std::string path = json_text(entry, "path");
        if (json_text(entry, "type") == "file" && path.starts_with(prefix.path)) {
          urls.push_back(root + path);
        }
      }
      return next;
    });
  }

 private:
  /// Returns the target for `url`. The Hub redirects to the host that stores the file; the token is
  /// not forwarded to that host.
  HttpTarget target(const std::string& url) const {
    HttpTarget target{.url = url};
    const bool is_safe = keeps_secrets(url);
    const std::string token = is_safe ? hub_token() : std::string();
    if (!token.empty()) target.headers.push_back("Authorization: Bearer " + token);
    target.login_remedy = !is_safe ? "use https in HF_ENDPOINT; the request was anonymous, because "
                                     "the connection is not encrypted"
                          : token.empty() ? "set HF_TOKEN, or run `hf auth login`; the request was "
                                            "anonymous, because no token was found"
                                          : "check the token and its access to the repository";
    target.login_remedy += unsent_;
    return target;
  }

  HttpTarget target_of(const Fetcher::Request& request) override {
    const HubPath file = parse_hub_path(request.url);
    const std::string kind = file.kind == "models" ? "" : file.kind + "/";
    return target(hub_endpoint() + "/" + kind + file.repository + "/resolve" +
                  below(file.revision) + "/" + encoded_path(file, file.path));
  }

  /// Returns the revision as a path segment; empty for a bucket, which has no revisions.
  static std::string below(const std::string& revision) {
    return revision.empty() ? "" : "/" + percent_encoded(revision);
  }
  /// Encodes a path. In a bucket the path is a single segment of the Hub's URL, so its slashes are
  /// encoded.
  static std::string encoded_path(const HubPath& of, const std::string& path) {
    return percent_encoded(path, of.kind == "buckets" ? "" : "/");
  }

  const std::string unsent_;
};

}  // namespace

HubPath parse_hub_path(const std::string& url, bool may_be_start) {
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument("the hf: URL is malformed",
                          in_quotes(redacted_url(url)) + " (" + std::string(why) + ")",
                          "write " + std::string(kHfForm));
  };
  const std::string canonical = canonical_url(url);
  std::string_view rest = std::string_view(canonical).substr(3);
  if (!rest.starts_with("//")) refuse("the URL has no //");
  rest.remove_prefix(2);
  HubPath hub{.kind = "models", .repository = {}, .revision = "main", .path = {}};
  for (const std::string_view kind : {"datasets", "spaces", "models", "kernels", "buckets"}) {
    if (!rest.starts_with(std::string(kind) + "/")) continue;
    hub.kind = next_part(rest);
    break;
  }
  const bool is_bucket = hub.kind == "buckets";
  if (is_bucket) hub.revision.clear();
  const std::string owner = next_part(rest);
  std::string name = next_part(rest);
  const std::size_t at = name.find('@');
  if (at != std::string::npos) {
    if (is_bucket) refuse("a bucket has no revisions");
    // Slashes in a revision are encoded, e.g. my%2Fbranch. Exceptions are the Hub's own refs/pr/1
    // and refs/convert/parquet.
    hub.revision = percent_decoded(name.substr(at + 1)).value_or("");
    name.resize(at);
    if (hub.revision == "refs" && (rest.starts_with("pr/") || rest.starts_with("convert/"))) {
      hub.revision += "/" + next_part(rest);
      hub.revision += "/" + next_part(rest);
    }
  }
  const auto is_name = [](const std::string& part) {
    return !part.empty() && part != "." && part != ".." && percent_encoded(part) == part;
  };
  if (!is_name(owner) || !is_name(name)) refuse("the URL names no repository");
  if (hub.revision.empty() && !is_bucket) refuse("the revision is not valid");
  hub.repository = owner + "/" + name;
  hub.path = rest;
  if (hub.path.empty() && !may_be_start) refuse("the URL names no file");
  return hub;
}

std::unique_ptr<Fetcher> make_hf_fetcher(const Fetchers::Options& options) {
  return std::make_unique<HfFetcher>(options);
}

}  // namespace shardwise
