#include "storage/az_fetcher.h"

#include <algorithm>
#include <ctime>
#include <initializer_list>
#include <map>
#include <string_view>

#include "base/ascii.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/azure_account.h"
#include "storage/http_fetcher.h"
#include "storage/listing.h"
#include "storage/object_url.h"
#include "storage/signing.h"
#include "storage/store_fetcher.h"
#include "storage/this_machine.h"
#include "storage/xml_text.h"

namespace shardwise {
namespace {

constexpr char kAzForm[] = "az://container/blob";
constexpr char kAzureVersion[] = "2021-08-06";

/// Formats a time for HTTP: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string http_date(std::time_t seconds) {
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto two = [](int number) { return std::to_string(100 + number).substr(1); };
  return std::string(kDays[parts.tm_wday]) + ", " + two(parts.tm_mday) + " " +
         kMonths[parts.tm_mon] + " " + std::to_string(1900 + parts.tm_year) + " " +
         two(parts.tm_hour) + ":" + two(parts.tm_min) + ":" + two(parts.tm_sec) + " GMT";
}

/// A container of a storage account.
struct Container {
  AzureAccount account;
  std::string name;
  std::string prefix;  ///< start of the container's URLs
  std::string key;     ///< name of the blob
};

/// True if the host is in a domain of Azure.
bool is_of_azure(const std::string& host) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{
          ".blob.core.windows.net", ".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net"},
      [&](std::string_view end) { return host.ends_with(end) && host.size() > end.size(); });
}

/// Parses the account, the container and the blob (or blob prefix) of a URL.
Container container_of(const std::string& url, bool may_be_start) {
  ObjectUrl parts = parse_object_url(url, kAzForm, may_be_start);
  AzureAccount account = find_azure_account();
  if (parts.bucket.find('.') == std::string::npos) {
    if (account.endpoint.empty()) {
      throw InvalidArgument(
          "the az: URL names no account", in_quotes(redacted_url(url)),
          "set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING, or write "
          "az://account.blob.core.windows.net/container/blob");
    }
    const std::string prefix = "az://" + parts.bucket + "/";
    return {std::move(account), std::move(parts.bucket), prefix, std::move(parts.key)};
  }
  // The URL names the account's host. Credentials of another account must not be sent to it.
  const std::string host = to_lower(parts.bucket);
  if (account.endpoint.empty() || parse_url(account.endpoint).host != host) {
    account = {.name = host.substr(0, host.find('.')),
               .endpoint = "https://" + host,
               .may_get_token = is_of_azure(host)};
  }
  const std::size_t slash = parts.key.find('/');
  if (slash == std::string::npos || slash == 0 ||
      (slash + 1 == parts.key.size() && !may_be_start)) {
    throw InvalidArgument("the az: URL is malformed",
                          in_quotes(redacted_url(url)) + " (the URL names no blob)",
                          "write az://account.blob.core.windows.net/container/blob");
  }
  std::string container = parts.key.substr(0, slash);
  const std::string prefix = "az://" + parts.bucket + "/" + container + "/";
  return {std::move(account), std::move(container), prefix, parts.key.substr(slash + 1)};
}

class AzFetcher : public StoreFetcher {
 public:
  explicit AzFetcher(const Fetchers::Options& options)
      : StoreFetcher(options), unsent_(unsent_headers(options)), tokens_(options) {}

  std::vector<std::string> list(const Fetcher::Request& request) override {
    const Container container = container_of(request.url, true);
    const std::string query =
        "comp=list&prefix=" + percent_encoded(container.key) + "&restype=container";
    return list_pages(request, [&](const std::string& page, std::vector<std::string>& urls) {
      const std::string marker = page.empty() ? "" : "&marker=" + percent_encoded(page);
      const std::string text = client_.get_text(
          target(container.account, "/" + container.name, query + marker, request), request);
      if (text.find("<EnumerationResults") == std::string::npos) throw_no_list(request.url);
      for (const std::string_view entry : xml_elements(text, "Blob")) {
        urls.push_back(container.prefix + blob_name(entry));
      }
      return xml_text(text, "NextMarker");
    });
  }

 private:
  /// Returns an entry's blob name. Azure percent-encodes names that XML cannot represent.
  static std::string blob_name(std::string_view entry) {
    const std::string name = xml_text(entry, "Name");
    const bool is_encoded = entry.find("<Name Encoded=\"true\"") != std::string_view::npos;
    return is_encoded ? percent_decoded(name).value_or(name) : name;
  }

  HttpTarget target_of(const Fetcher::Request& request) override {
    const Container container = container_of(request.url, false);
    return target(container.account,
                  "/" + container.name + "/" + percent_encoded(container.key, "/"), "", request);
  }

  /// Returns the target for `path` in the account. Each attempt gets fresh credentials.
  /// REQUIRES: `request` outlives the target.
  HttpTarget target(const AzureAccount& account, const std::string& path, const std::string& query,
                    const Fetcher::Request& request) {
    HttpTarget target{.url = account.endpoint + path};
    target.renew = [this, account, path, query, &request](const Refused& refused) {
      return target_now(account, path, query, refused, request);
    };
    return target;
  }

  HttpTarget target_now(const AzureAccount& account, const std::string& path, std::string query,
                        const Refused& refused, const Fetcher::Request& request) {
    HttpTarget target{.url = {}, .follows_redirects = false};
    target.headers = {std::string("x-ms-version: ") + kAzureVersion};
    target.login_remedy = "check the account's key or signature, and its permissions";
    if (!account.key.empty()) {
      const std::string full_path = parse_url(account.endpoint + path).path;
      target.sign = [account, full_path, query](const HttpQuery& asked) {
        const std::string date = http_date(std::time(nullptr));
        const std::string text =
            azure_string_to_sign(asked, account.name, full_path, query, date, kAzureVersion);
        const std::string key = base64_decoded(account.key, "key of the Azure account");
        return std::vector<std::string>{
            "x-ms-date: " + date,
            "Authorization: SharedKey " + account.name + ":" + base64(hmac_sha256(key, text))};
      };
    } else if (!account.sas.empty()) {
      query += (query.empty() ? "" : "&") + account.sas;
    } else if (!account.may_get_token) {
      target.login_remedy =
          "if you trust the host, name the account in AZURE_STORAGE_CONNECTION_STRING "
          "(BlobEndpoint=...); the request was anonymous, because the host is not Azure's";
    } else if (!keeps_secrets(account.endpoint)) {
      target.login_remedy =
          "use https for the account's endpoint; the request was anonymous, because the connection "
          "is not encrypted";
    } else if (const AccessToken token = tokens_.find(refused, request.cancel); token.are_there()) {
      target.headers.push_back("Authorization: Bearer " + token.text);
      target.credential = token.id();
      target.login_remedy = "check the permissions of " + token.source;
    } else {
      target.login_remedy =
          "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or the variables of a service "
          "principal; the request was anonymous, because no credentials were found";
    }
    target.login_remedy += unsent_;
    target.url = account.endpoint + path + (query.empty() ? "" : "?" + query);
    return target;
  }

  const std::string unsent_;
  AzureTokens tokens_;
};

}  // namespace

std::string azure_string_to_sign(const HttpQuery& request, const std::string& account,
                                 const std::string& path, const std::string& query,
                                 const std::string& date, const std::string& version) {
  const std::string range = request.range.empty() ? "" : "bytes=" + request.range;
  // Lines of the text: method; the content's encoding, language, length, MD5 and type; Date;
  // If-Modified-Since, If-Match, If-None-Match, If-Unmodified-Since; Range.
  std::string text = (request.head_only ? "HEAD" : "GET") + std::string(8, '\n') +
                     request.if_match + "\n\n\n" + range + "\n";
  text += "x-ms-date:" + date + "\nx-ms-version:" + version + "\n/" + account + path;
  std::map<std::string, std::string> parameters;
  for (std::string_view rest = query; !rest.empty();) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view part = rest.substr(0, end);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    parameters[to_lower(part.substr(0, equals))] =
        percent_decoded(value).value_or(std::string(value));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (const auto& [name, value] : parameters) text += "\n" + name + ":" + value;
  return text;
}

std::unique_ptr<Fetcher> make_az_fetcher(const Fetchers::Options& options) {
  return std::make_unique<AzFetcher>(options);
}

}  // namespace shardwise
