#include "storage/aws_sso_token.h"

#include <openssl/evp.h>

#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/private_file.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "storage/environment.h"
#include "storage/fetch_failure.h"
#include "storage/iso_time.h"
#include "storage/json_text.h"
#include "storage/this_machine.h"
#include "storage/token_file.h"

namespace shardwise {
namespace {

using std::chrono::system_clock;

/// A token is renewed when its remaining lifetime falls below this.
constexpr std::chrono::minutes kRenewBefore{5};
/// If several processes renew the same token at once, the service accepts only one of them. The
/// other processes wait this long for the file that the accepted one writes.
constexpr std::chrono::seconds kOthersRenewWithin{3};
constexpr std::chrono::milliseconds kLookForRenewal{50};

std::string sha1_hex(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1) {
    throw InvalidArgument("sha1 is turned off in this system's libcrypto", "",
                          "enable sha1 in OpenSSL's configuration, because SSO needs it");
  }
  return hex({reinterpret_cast<const char*>(digest.data()), size});
}

/// An SSO session's token file, as read from the cache of the AWS tools.
struct SsoToken {
  std::string path;
  nlohmann::json all;

  static SsoToken read(const std::string& name) {
    SsoToken token{environment("HOME") + "/.aws/sso/cache/" + sha1_hex(name) + ".json", {}};
    const std::string text = find_text(token.path, "the token of the SSO session").value_or("");
    token.all = nlohmann::json::parse(text, nullptr, false);
    return token;
  }
  std::string text(const char* name) const { return json_text(all, name); }
  bool is_there() const { return !text("accessToken").empty(); }
  /// True if field `name` is a time more than `longer_than` in the future.
  bool lasts(const char* name, std::chrono::seconds longer_than = {}) const {
    const auto end = parse_iso_time(text(name));
    return end && *end > system_clock::now() + longer_than;
  }
  bool can_be_renewed() const {
    return !text("refreshToken").empty() && !text("clientId").empty() &&
           !text("clientSecret").empty() && lasts("registrationExpiresAt");
  }
  /// Writes the token back to its file. If the write fails, the next user of the token renews it
  /// again.
  void keep() const noexcept {
    try {
      AtomicFile file(path);
      make_private(file.file());
      file.file().write_at(0, all.dump());
      file.commit();
    } catch (const std::exception&) {
    }
  }
};

/// Renews the token. Errors: FetchError; Cancelled.
void renew(SsoToken& token, HttpClient& client, const std::string& oidc,
           const CancelToken& cancel) {
  const HttpTarget target{.url = oidc + "/token",
                          .headers = {"Content-Type: application/json"},
                          .is_aws = true,
                          .follows_redirects = false};
  require_keeps_secrets(target.url, "AWS_ENDPOINT_URL_SSO_OIDC, AWS_ENDPOINT_URL");
  const nlohmann::json asked = {{"clientId", token.text("clientId")},
                                {"clientSecret", token.text("clientSecret")},
                                {"grantType", "refresh_token"},
                                {"refreshToken", token.text("refreshToken")}};
  const auto [result, text] = client.ask_for_text(target, {.method = "POST", .body = asked.dump()},
                                                  {.url = target.url, .cancel = cancel});
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const std::string access = json_text(json, "accessToken");
  if (!result.has_file() || access.empty()) {
    throw_fetch_error(
        target.url,
        "the SSO token was not renewed: HTTP status " + std::to_string(result.answer.status),
        "run `aws sso login`");
  }
  const auto end = time_from_now(json_count(json, "expiresIn").value_or(0));
  token.all["accessToken"] = access;
  token.all["expiresAt"] = utc_text(system_clock::to_time_t(end));
  if (std::string next = json_text(json, "refreshToken"); !next.empty()) {
    token.all["refreshToken"] = std::move(next);
  }
}

/// Waits for the token that another process is writing; nullopt if it does not appear in time. Call
/// this after the service refused a renewal, because the other process may have renewed first and
/// so invalidated the refresh token.
/// Errors: Cancelled.
std::optional<SsoToken> await_renewal(const std::string& name, const CancelToken& cancel) {
  const auto end = std::chrono::steady_clock::now() + kOthersRenewWithin;
  for (;;) {
    SsoToken token = SsoToken::read(name);
    if (token.lasts("expiresAt")) return token;
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    cancel.throw_if_cancelled();
    std::this_thread::sleep_for(kLookForRenewal);
  }
}

[[noreturn]] void throw_no_token(const SsoToken& token, const std::string& name) {
  throw InvalidArgument(token.is_there() ? "the SSO token has expired" : "there is no SSO token",
                        in_quotes(name) + " (" + in_quotes(token.path) + ")",
                        "run `aws sso login`");
}

}  // namespace

std::string find_sso_token(HttpClient& client, const std::string& name, const std::string& oidc,
                           const CancelToken& cancel) {
  SsoToken token = SsoToken::read(name);
  if (!token.is_there()) throw_no_token(token, name);
  if (token.lasts("expiresAt", kRenewBefore)) return token.text("accessToken");
  if (oidc.empty() || !token.can_be_renewed()) {
    if (!token.lasts("expiresAt")) throw_no_token(token, name);
    return token.text("accessToken");
  }
  try {
    renew(token, client, oidc, cancel);
    token.keep();
  } catch (const FetchError&) {
    auto theirs = await_renewal(name, cancel);
    if (!theirs) throw;
    token = *std::move(theirs);
  }
  return token.text("accessToken");
}

}  // namespace shardwise
