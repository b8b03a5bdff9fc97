// Tests of fetching from Google, Azure and the Hugging Face Hub against a local server that
// imitates them. Signatures are compared with published vectors.

#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "base/text.h"
#include "base/url.h"
#include "storage/az_fetcher.h"
#include "storage/azure_account.h"
#include "storage/fetch_support.h"
#include "storage/google_tokens.h"
#include "storage/hf_fetcher.h"
#include "storage/http_answer.h"
#include "storage/iso_time.h"
#include "storage/signing.h"
#include "storage/test_http_server.h"
#include "storage/this_machine.h"
#include "support/environment.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_text;
using test::same;
using test::StringSink;
using test::TestHttpServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// The key of RFC 7515, appendix A.2.1, in PEM.
constexpr char kRfcKey[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQCh+BYK4uPJtGXO\n"
    "jS1lYmM2K5J9vinh8CR3/BYlzJChNuOL2TSXxbbqY913EeZ8dCn5VrD7io8ImtxL\n"
    "aYk8wTM/U+3QGbh3hCUv7JFP5IV3aVlL6kKA0ywPVb9ilE8TA5a8bpvfbr3SvaNn\n"
    "juygxmj3AbONv/s4yDQs4v5tJ/reSlpIdJed1LnPmt7Ex1sFhSwsD174pcF1A5L5\n"
    "ROjtZMEQxrZHYJqkeDrrnGya11UxMFBji4NmXG9veoKjlnAqH2QbgtPr8jkiGUkf\n"
    "toaHLFcW9Qr4NY2ai50Xw0Byj3+H2JoY2PyrZ62EWQwuz3WTOTY8BwNNb2BvniHg\n"
    "VFbK5emhAgMBAAECggEAEq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyW\n"
    "PEAeP88vLNO97IjlA7/GQ5sLKMgvfTeXZx9SE+7YwVol2NXOoAJe46sui395IW/G\n"
    "O+pWJ1O0BkTGoVEn2bKVRUCgu+GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzj\n"
    "kn439X0M/V51gfpRLI9JYanrC4D4qAdGcopV/0ZHHzQlBjudU2QvXt4ehNYTCBr6\n"
    "XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl/x/jTj3ccPDVZFD9pIuhLhBOneufuBiB\n"
    "4cS98l2SR/RQyGWSeWjnczT0QU91p1DhOVRuOopznQKBgQDgHMQQ60imZV1URk0K\n"
    "pLttoLhyt3SmqdEf/kgHePDdtzEafpAu+cS191R2JiuoF2yzWXnwFDcqGigp5BNr\n"
    "0AHQfD8/Lk8l1Mk09jxxCfui5nYooNyac8YFjm3vItzVCVDnEd3BbVWG8qf6deqE\n"
    "lMGAg+C2V0L4oNXnP7LZcPAZRwKBgQC5A8R+CZW2MvRTLLHzwZkUXV866cff7tx6\n"
    "kqa0finGG0KgeqlaZPxgCZnFp7AeAcCMtiynVlJ7vMVgePsLq6XtON4tB5kP9jAP\n"
    "rq3rbAOal78eUH5OcED6eNuCV8ixEu1eWcPNCS/l1OW1EnXUEoEHKl54Xrrz2uNw\n"
    "kgMTP1FZ1wKBgAcCn1dwJKufzBWQxWQp1vsM5fggqPN1qGb5y0MAk3g7/Ls5bkUp\n"
    "5u9SN0Ai3Ya6hNnvWJMb7sXQX6U/zyO2M/hTip7tUeh7CXgwo59dkpN75gJLVds2\n"
    "9+DAncu3KXU4f2Fa+7bLNrur53k8KwPOq2bbuTG69QtV7Jr5MR0AHWKNAoGBAIf/\n"
    "evpitUf+4JYbLpvNXWcY052Mpz22aR84mY3nh3F2LF2mjMJDpTg7FmuyPcVw6EcG\n"
    "yoAe9fa65iNqCq+jdw6PVNGo2hxfjSiZ8IIzHdsPXI89//pMjZcQK9r+CCoRjaZj\n"
    "OYiIDktVWZzmevJuv6WywUqd57LE3Zar3dLSIkx1AoGAIYd7DHOhrWvxkwPQsRM2\n"
    "tOgrjbcrfvtQJipd+DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd/QJQ3\n"
    "ydy5cY7YIBi87w93IKLEdfnbJtoOPLUW0ITrJReOgo1cq9SbsxYawBgfp/gh6A56\n"
    "03k2+ZQwVK0JKSHuLFkuQ3U=\n"
    "-----END PRIVATE KEY-----\n";

// The vector of RFC 7515, appendix A.2.1.
TEST(SigningTest, Rs256IsThatOfTheRfc) {
  EXPECT_EQ(
      signed_jwt(R"({"alg":"RS256"})",
                 "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n "
                 "\"http://example.com/is_root\":true}",
                 kRfcKey),
      "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
      "cGxlLmNvbS9pc19yb290Ijp0cnVlfQ."
      "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_"
      "O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_"
      "nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-"
      "eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0i"
      "gcN_IoypGlUPQGe77Rw");
  EXPECT_THAT(error_text([] { rs256("no key", "text", "key of the Google service account"); }),
              AllOf(HasSubstr("key of the Google service account"), HasSubstr("malformed")));
}

// The vectors of RFC 4231, test cases 1 and 2, and of RFC 4648, section 10.
TEST(SigningTest, HmacAndBase64AreThoseOfTheRfcs) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  for (const auto& [bytes, text] : std::map<std::string, std::string>{
           {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(base64(bytes), text);
    if (!text.empty()) {
      EXPECT_EQ(base64_decoded(text, "key"), bytes);
    }
  }
  EXPECT_EQ(base64_url("\xfb\xff\xfe\x01"), "-__-AQ");
  for (const char* text : {"", "Zg", "Z*==", "===="}) {
    EXPECT_THAT(error_text([&] { base64_decoded(text, "key"); }),
                HasSubstr("the key is malformed"));
  }
}

// The examples in "Authorize with Shared Key", Microsoft's reference of Azure Storage.
TEST(SigningTest, AzuresStringIsThatOfItsReference) {
  EXPECT_EQ(azure_string_to_sign({}, "myaccount", "/mycontainer",
                                 "restype=container&comp=metadata&timeout=20",
                                 "Fri, 26 Jun 2015 23:39:12 GMT", "2015-02-21"),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\n"
            "x-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container\n"
            "timeout:20");
  EXPECT_EQ(azure_string_to_sign({.head_only = true, .range = "5-9", .if_match = "\"v\""}, "a",
                                 "/a/c/b%20x", "", "D", "V"),
            "HEAD\n\n\n\n\n\n\n\n\"v\"\n\n\nbytes=5-9\nx-ms-date:D\nx-ms-version:V\n/a/a/c/b%20x");
}

TEST(HttpAnswerTest, TheNextPageIsTheOneThatLinkNames) {
  EXPECT_EQ(parse_next_link("<https://h/a?c=1>; rel=\"next\""), "https://h/a?c=1");
  EXPECT_EQ(parse_next_link("<https://h/b>; rel=\"prev\", <https://h/c>; rel=next"), "https://h/c");
  EXPECT_EQ(parse_next_link("<https://h/b>; rel=\"last\""), "");
  EXPECT_EQ(parse_next_link("rel=next; <"), "");
}

class CloudTest : public ::testing::Test {
 protected:
  CloudTest() {
    for (const char* name :
         {"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "AZURE_STORAGE_CONNECTION_STRING",
          "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_KEY",
          "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_TENANT_ID",
          "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "HF_TOKEN",
          "HF_TOKEN_PATH", "HF_HOME", "NETRC"}) {
      environment_.unset(name);
    }
    const std::string host = "127.0.0.1:" + std::to_string(server_.port());
    environment_.set("HOME", home_.path());
    environment_.set("STORAGE_EMULATOR_HOST", host);
    environment_.set("GCE_METADATA_HOST", host);
    environment_.set("AZURE_POD_IDENTITY_AUTHORITY_HOST", server_.url("/imds"));
    environment_.set("AZURE_AUTHORITY_HOST", server_.url("/login"));
    environment_.set("HF_ENDPOINT", server_.url("/hub"));
    server_.set_gate(
        [this](const test::LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
          last_ = request;
          const auto answer = answers_.find(request.method + " " + request.target);
          if (answer == answers_.end()) return std::nullopt;
          return answer->second;
        });
  }
  void answer(const std::string& request, const std::string& text, int status = 200) {
    answers_[request] = {status, text};
  }
  std::string fetched(const std::string& url) {
    StringSink sink;
    Fetchers(options_).fetch({.url = url}, sink);
    return sink.bytes;
  }
  std::vector<std::string> listed(const std::string& url) {
    return Fetchers(options_).list({.url = url});
  }
  std::string sent(const std::string& header) { return server_.requests().back().header(header); }

  test::TempDir home_;
  test::Environment environment_;
  std::map<std::string, std::pair<int, std::string>> answers_;
  test::LoggedRequest last_;  // used by one server thread at a time
  TestHttpServer server_;
  Fetchers::Options options_ = test::quick_options();
};

// A proxy could read the credentials, and would resolve "localhost" to its own machine.
TEST_F(CloudTest, NoProxyIsAskedForThisMachine) {
  const TestHttpServer proxy;
  for (const char* name : {"http_proxy", "all_proxy"}) environment_.set(name, proxy.url(""));
  for (const char* name : {"no_proxy", "NO_PROXY"}) environment_.unset(name);
  test::write_file(home_ / "token", "sesame");
  environment_.set("HF_TOKEN", "sesame");
  environment_.set("AZURE_STORAGE_CONNECTION_STRING",
                   "BlobEndpoint=" + server_.url("/acc") + ";SharedAccessSignature=sig=sesame");
  options_.s3.endpoint = server_.url("");
  options_.s3.access_key_id = "key";
  options_.s3.secret_access_key = "sesame";
  const std::string near = "http://localhost:" + std::to_string(server_.port()) + "/x.tar";
  for (const std::string& url :
       {server_.url("/x.tar"), near, std::string("hf://u/r/x.tar"), std::string("gs://b/x.tar"),
        std::string("az://box/x.tar"), std::string("s3://b/x.tar")}) {
    SCOPED_TRACE(url);
    options_.bearer_token_file = url.starts_with("http") ? home_ / "token" : "";
    options_.bearer_token_loopback = true;
    const std::size_t before = server_.requests().size();
    EXPECT_NE(error_text([&] { fetched(url); }), "");  // HTTP status 404
    EXPECT_GT(server_.requests().size(), before);
    EXPECT_THAT(proxy.requests(), IsEmpty());
  }
  // Requests to other machines do use the proxy.
  options_.bearer_token_file = "";
  EXPECT_NE(error_text([&] { fetched("http://shards.example.invalid/x.tar"); }), "");
  EXPECT_FALSE(proxy.requests().empty());
}

// A common mistake: the URL names a folder, but lacks the slash at its end.
TEST_F(CloudTest, AUrlThatNamesNoObjectSaysHowToNameAFolder) {
  environment_.set("AZURE_STORAGE_CONNECTION_STRING",
                   "BlobEndpoint=" + server_.url("/acc") + ";SharedAccessSignature=sig=sesame");
  options_.s3.endpoint = server_.url("");
  options_.s3.access_key_id = "key";
  options_.s3.secret_access_key = "sesame";
  for (const std::string folder :
       {"s3://b/train", "gs://b/d/train", "az://box/train", "hf://u/r/d/train"}) {
    EXPECT_THAT(error_text([&] { fetched(folder); }),
                AllOf(HasSubstr("HTTP status 404"),
                      HasSubstr("end the URL with a slash, '" + folder + "/'"),
                      HasSubstr("'" + folder + "/*.tar'")));
    EXPECT_THAT(error_text([&] { fetched(folder + ".tar"); }),
                AllOf(HasSubstr("HTTP status 404"), HasSubstr("check the URL")));
  }
  EXPECT_THAT(error_text([&] { fetched(server_.url("/d/train")); }), HasSubstr("check the URL"));
}

TEST_F(CloudTest, GoogleIsReadByTheTokenOfAServiceAccount) {
  std::string key(kRfcKey);
  for (std::size_t at = 0; (at = key.find('\n', at)) != std::string::npos; at += 2) {
    key.replace(at, 1, "\\n");
  }
  test::write_file(home_ / "sa.json",
                   R"({"type":"service_account","client_email":"me@x","private_key_id":"k",)"
                   R"("private_key":")" +
                       key + R"(","token_uri":")" + server_.url("/token") + "\"}");
  environment_.set("GOOGLE_APPLICATION_CREDENTIALS", home_ / "sa.json");
  answer("POST /token", R"({"access_token":"sesame","expires_in":3600})");
  server_.serve("/bucket/a%20b/x.tar", {.body = "here"});
  const Fetchers fetchers(options_);
  StringSink sink;
  for (int i = 0; i < 3; ++i) fetchers.fetch({.url = "gs://bucket/a b/x.tar"}, sink);
  EXPECT_EQ(sink.bytes, "hereherehere");
  EXPECT_EQ(sent("authorization"), "Bearer sesame");
  EXPECT_EQ(server_.count("POST", "/token"), 1) << "a token is kept";
  for (const test::LoggedRequest& request : server_.requests()) {
    if (request.method != "POST") continue;
    EXPECT_THAT(request.body, StartsWith("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3A"
                                         "jwt-bearer&assertion=" +
                                         base64_url(R"({"alg":"RS256","kid":"k","typ":"JWT"})")));
  }

  answer("GET /storage/v1/b/bucket/o?fields=items(name),nextPageToken&prefix=d%2F",
         R"({"items":[{"name":"d/b.tar"},{"name":"d/a.tar"}],"nextPageToken":"p/2"})");
  answer("GET /storage/v1/b/bucket/o?fields=items(name),nextPageToken&prefix=d%2F&pageToken=p%2F2",
         R"({"items":[{"name":"d/\u00e4.tar"}]})");
  EXPECT_EQ(listed("gs://bucket/d/"),
            (std::vector<std::string>{"gs://bucket/d/a.tar", "gs://bucket/d/b.tar",
                                      "gs://bucket/d/\xC3\xA4.tar"}));
}

TEST_F(CloudTest, GoogleGivesNewTokensToUsersAndMachines) {
  server_.serve("/bucket/x", {.body = "here"});
  EXPECT_EQ(fetched("gs://bucket/x"), "here");
  EXPECT_EQ(sent("authorization"), "") << "nobody asks";
  answer("GET /computeMetadata/v1/instance/service-accounts/default/token",
         R"({"access_token":"machine","expires_in":"3600"})");
  EXPECT_EQ(fetched("gs://bucket/x"), "here");
  EXPECT_EQ(sent("authorization"), "Bearer machine");

  std::filesystem::create_directories(home_ / ".config/gcloud");
  test::write_file(home_ / ".config/gcloud/application_default_credentials.json",
                   R"({"type":"authorized_user","client_id":"i","client_secret":"s&",)"
                   R"("refresh_token":"r","token_uri":")" +
                       server_.url("/token") + "\"}");
  answer("POST /token", R"({"access_token":"user","expires_in":0})");
  EXPECT_EQ(fetched("gs://bucket/x"), "here");
  EXPECT_EQ(sent("authorization"), "Bearer user");
  answer("GET /bucket/x", "", 403);
  EXPECT_THAT(error_text([&] { fetched("gs://bucket/x"); }),
              AllOf(HasSubstr("bucket's policy"), HasSubstr("Google credentials in '"),
                    Not(HasSubstr("s&"))));
}

// If the present time plus a huge lifetime overflowed, the token would count as expired, and each
// fetch would request a new one.
TEST(ServiceTimeTest, ATimeThatNoClockHasIsTheLatest) {
  const auto now = std::chrono::system_clock::now(), late = now + std::chrono::hours(24 * 36500);
  for (const char* never : {"9223372036854775807", "18446744073709551615", "1e300",
                            "\"9223372036854775807\"", "\"9000000000000000000\""}) {
    const AccessToken token = parse_access_token(
        R"({"access_token":"x","expires_in":)" + std::string(never) + "}", "a service");
    ASSERT_TRUE(token.expires) << never;
    EXPECT_GT(*token.expires, late) << never;
  }
  EXPECT_LE(*parse_access_token(R"({"access_token":"x","expires_in":-1e300})", "").expires, now);
  const auto soon = *parse_access_token(R"({"access_token":"x","expires_in":59.9})", "").expires;
  EXPECT_LT(soon, now + std::chrono::seconds(70));
  EXPECT_GT(soon, now + std::chrono::seconds(50));
  EXPECT_GT(parse_iso_time("9999-12-31T23:59:59Z"), late);
  EXPECT_LT(parse_iso_time("0001-01-01T00:00:00Z"), now);
  EXPECT_EQ(utc_text(std::chrono::system_clock::to_time_t(
                *parse_iso_time("2026-01-02T03:04:05.678+01:00"))),
            "2026-01-02T02:04:05Z");
  const auto utc = [](const std::string& zone) {
    return utc_text(
        std::chrono::system_clock::to_time_t(*parse_iso_time("2026-01-02T03:04:05" + zone)));
  };
  EXPECT_EQ(utc("+0530"), "2026-01-01T21:34:05Z");
  EXPECT_EQ(utc("-05:30"), "2026-01-02T08:34:05Z");
  EXPECT_EQ(utc("+05"), "2026-01-01T22:04:05Z");
  EXPECT_EQ(utc("Z"), "2026-01-02T03:04:05Z");
  EXPECT_EQ(utc(""), "2026-01-02T03:04:05Z");
}

// Specified in https://google.aip.dev/auth/4117.
TEST_F(CloudTest, GoogleIsReadByTheTokenOfAnotherProvider) {
  server_.serve("/bucket/x", {.body = "here"});
  environment_.set("GOOGLE_APPLICATION_CREDENTIALS", home_ / "c.json");
  const auto account = [&](const std::string& source, const std::string& more = "") {
    test::write_file(
        home_ / "c.json",
        R"({"type":"external_account","audience":"//iam/pools/p/providers/q",)"
        R"("subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":")" +
            server_.url("/sts") + R"(","credential_source":)" + source + more + "}");
  };
  const std::string file = home_ / "token";
  answer("POST /sts", R"({"access_token":"federated","expires_in":3600})");

  test::write_file(file, "\xEF\xBB\xBFheader.body.sig/\n");
  account(R"({"file":")" + file + "\"}");
  EXPECT_EQ(fetched("gs://bucket/x"), "here");
  EXPECT_EQ(sent("authorization"), "Bearer federated");
  const auto body_of = [&](const std::string& target) {
    std::string body;
    for (const auto& request : server_.requests()) {
      if (request.target == target) body = request.body;
    }
    return body;
  };
  EXPECT_EQ(body_of("/sts"),
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&"
            "requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token&"
            "audience=%2F%2Fiam%2Fpools%2Fp%2Fproviders%2Fq&scope=https%3A%2F%2Fwww.googleapis.com"
            "%2Fauth%2Fdevstorage.read_only&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-"
            "type%3Ajwt&subject_token=header.body.sig%2F");

  test::write_file(file, R"({"id":"from json"})");
  account(R"({"file":")" + file + R"(","format":{"type":"json","subject_token_field_name":"id"}})");
  EXPECT_EQ(fetched("gs://bucket/x"), "here");
  EXPECT_THAT(body_of("/sts"), HasSubstr("&subject_token=from%20json"));

  answer("GET /identity", R"({"value":"from url"})");
  answer("POST /impersonate",
         R"({"accessToken":"impersonated","expireTime":"2099-01-02T03:04:05Z"})");
  account(R"({"url":")" + server_.url("/identity") +
              R"(","headers":{"Metadata":"True"},)"
              R"("format":{"type":"json","subject_token_field_name":"value"}})",
          R"(,"service_account_impersonation_url":")" + server_.url("/impersonate") +
              R"(","service_account_impersonation":{"token_lifetime_seconds":900},)"
              R"("client_id":"i","client_secret":"s")");
  EXPECT_EQ(fetched("gs://bucket/x"), "here");
  EXPECT_EQ(sent("authorization"), "Bearer impersonated");
  EXPECT_THAT(body_of("/sts"), AllOf(HasSubstr("subject_token=from%20url"),
                                     HasSubstr("scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2F"
                                               "cloud-platform&")));
  for (const auto& request : server_.requests()) {
    if (request.target == "/identity") {
      EXPECT_EQ(request.header("metadata"), "True");
    }
    if (request.target == "/impersonate") {
      EXPECT_EQ(request.header("authorization"), "Bearer federated");
      EXPECT_EQ(request.body,
                R"({"lifetime":"900s","scope":["https://www.googleapis.com/auth/devstorage.read_)"
                R"(only"]})");
    }
  }
  EXPECT_EQ(server_.requests().back().header("authorization"), "Bearer impersonated");
}

TEST_F(CloudTest, AnExternalAccountOfGooglesThatCannotBeReadIsAnError) {
  environment_.set("GOOGLE_APPLICATION_CREDENTIALS", home_ / "c.json");
  const auto text = [&](const std::string& source, const std::string& token_url) {
    test::write_file(home_ / "c.json",
                     R"({"type":"external_account","audience":"a","subject_token_type":"t",)"
                     R"("token_url":")" +
                         token_url + R"(","credential_source":)" + source + "}");
    return error_text([&] { fetched("gs://bucket/x"); });
  };
  const std::string sts = server_.url("/sts");
  EXPECT_THAT(text(R"({"environment_id":"aws1","url":"http://x"})", sts),
              AllOf(HasSubstr("external account"), HasSubstr("not supported: '")));
  EXPECT_THAT(text(R"({"executable":{"command":"x"}})", sts),
              AllOf(HasSubstr("not supported: '" + (home_ / "c.json") + "'"),
                    HasSubstr("credential_source")));
  EXPECT_THAT(text(R"({"file":"/none"})", sts), HasSubstr("no token: '/none'"));
  EXPECT_THAT(text(R"({"file":"/none"})", "http://elsewhere.example/sts"),
              HasSubstr("without encryption: 'http://elsewhere.example/sts'"));
  EXPECT_EQ(server_.requests().size(), 0U);
}

TEST_F(CloudTest, AMachinesServiceThatStumblesDoesNotMakeRequestsAnonymous) {
  server_.serve("/bucket/x", {.body = "here"});
  const std::string path = "/computeMetadata/v1/instance/service-accounts/default/token";
  const Fetchers fetchers(options_);
  StringSink sink;
  answer("GET " + path, "", 503);
  EXPECT_THAT(error_text([&] { fetchers.fetch({.url = "gs://bucket/x"}, sink); }),
              HasSubstr("(HTTP status 503, after 3 attempts)"));
  EXPECT_EQ(server_.count("GET", "/bucket/x"), 0);
  answer("GET " + path, R"({"access_token":"machine","expires_in":"3600"})");
  fetchers.fetch({.url = "gs://bucket/x"}, sink);
  EXPECT_EQ(sent("authorization"), "Bearer machine");
}

TEST_F(CloudTest, NoTokenGoesToAnotherMachineWithoutEncryption) {
  environment_.set("STORAGE_EMULATOR_HOST", "http://127.invalid");
  options_.max_retries = 0;
  EXPECT_THAT(error_text([&] { fetched("gs://bucket/x"); }), HasSubstr("cannot fetch: "));
  EXPECT_EQ(server_.requests().size(), 0U) << "no token is asked for";
}

TEST_F(CloudTest, GoogleCredentialsThatAreNotReadAreErrors) {
  environment_.set("GOOGLE_APPLICATION_CREDENTIALS", home_ / "none.json");
  EXPECT_THAT(error_text([&] { fetched("gs://bucket/x"); }),
              AllOf(HasSubstr("cannot read"), HasSubstr("Google credentials: '")));
  environment_.set("GOOGLE_APPLICATION_CREDENTIALS", home_ / "c.json");
  test::write_file(home_ / "c.json", R"({"type":"gdch_service_account"})");
  EXPECT_THAT(error_text([&] { fetched("gs://bucket/x"); }),
              AllOf(HasSubstr("Google credentials"), HasSubstr("not supported: '")));
  test::write_file(home_ / "c.json", R"({"type":"external_account"})");
  EXPECT_THAT(error_text([&] { fetched("gs://bucket/x"); }), HasSubstr("has no token_url)"));
  test::write_file(home_ / "c.json", R"({"type":"service_account","client_email":"x"})");
  EXPECT_THAT(error_text([&] { fetched("gs://bucket/x"); }), HasSubstr("has no private_key)"));
  test::write_file(home_ / "c.json",
                   R"({"type":"authorized_user","client_id":"i","client_secret":"s",)"
                   R"("refresh_token":"r","token_uri":")" +
                       server_.url("/token") + "\"}");
  answer("POST /token", "{}");
  EXPECT_THAT(error_text([&] { fetched("gs://bucket/x"); }),
              AllOf(HasSubstr("no token"), HasSubstr("Google credentials in '")));
}

TEST_F(CloudTest, AzureIsReadByASharedKey) {
  const std::string key = base64("a key of thirty-two bytes ......");
  environment_.set(
      "AZURE_STORAGE_CONNECTION_STRING",
      "AccountName=acc;AccountKey=" + key + ";BlobEndpoint=" + server_.url("/acc/") + ";");
  server_.serve("/acc/box/a%20b.tar", {.body = "0123456789"});
  StringSink sink;
  Fetchers(options_).fetch({.url = "az://box/a b.tar", .range = {2, 5}, .validator = "\"v1\""},
                           sink);
  EXPECT_EQ(sink.bytes, "234");
  const test::LoggedRequest request = server_.requests().back();
  const std::string text =
      azure_string_to_sign({.range = "2-4", .if_match = "\"v1\""}, "acc", "/acc/box/a%20b.tar", "",
                           request.header("x-ms-date"), request.header("x-ms-version"));
  EXPECT_EQ(request.header("authorization"),
            "SharedKey acc:" + base64(hmac_sha256("a key of thirty-two bytes ......", text)));

  answer(
      "GET /acc/box?comp=list&prefix=d%2F&restype=container",
      "<EnumerationResults><Blobs><Blob><Name>d/b.tar</Name></Blob><Blob>"
      "<Name Encoded=\"true\">d/%EF%BF%BE.tar</Name></Blob></Blobs><NextMarker>m&amp;</NextMarker>"
      "</EnumerationResults>");
  answer("GET /acc/box?comp=list&prefix=d%2F&restype=container&marker=m%26",
         "<EnumerationResults><Blobs><Blob><Name>d/a&amp;.tar</Name></Blob></Blobs><NextMarker/>"
         "</EnumerationResults>");
  EXPECT_EQ(listed("az://box/d/"),
            (std::vector<std::string>{"az://box/d/a&.tar", "az://box/d/b.tar",
                                      "az://box/d/\xEF\xBF\xBE.tar"}));
  answer("GET /acc/box/x", "", 403);
  EXPECT_THAT(error_text([&] { fetched("az://box/x"); }),
              AllOf(HasSubstr("account's key"), Not(HasSubstr(key))));
}

TEST_F(CloudTest, AzureIsReadByASignatureOrAToken) {
  environment_.set(
      "AZURE_STORAGE_CONNECTION_STRING",
      "BlobEndpoint=" + server_.url("/acc") + ";SharedAccessSignature=?sv=1&sig=sesame");
  server_.serve("/acc/box/x.tar", {.body = "here"});
  EXPECT_EQ(fetched("az://box/x.tar"), "here");
  EXPECT_EQ(server_.requests().back().target, "/acc/box/x.tar?sv=1&sig=sesame");

  environment_.set("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint=" + server_.url("/acc"));
  EXPECT_EQ(fetched("az://box/x.tar"), "here");
  EXPECT_EQ(sent("authorization"), "") << "nobody asks";
  answer(
      "GET /imds/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2F"
      "storage.azure.com%2F",
      R"({"access_token":"machine","expires_in":"3600"})");
  EXPECT_EQ(fetched("az://box/x.tar"), "here");
  EXPECT_EQ(sent("authorization"), "Bearer machine");

  environment_.set("AZURE_TENANT_ID", "t");
  environment_.set("AZURE_CLIENT_ID", "c");
  environment_.set("AZURE_CLIENT_SECRET", "s/");
  answer("POST /login/t/oauth2/v2.0/token", R"({"access_token":"principal","expires_in":3600})");
  EXPECT_EQ(fetched("az://box/x.tar"), "here");
  EXPECT_EQ(sent("authorization"), "Bearer principal");
}

TEST_F(CloudTest, PartsThatCannotBeSignedAreLeftToFetch) {
  environment_.set("AZURE_STORAGE_CONNECTION_STRING",
                   "AccountName=acc;AccountKey=%;BlobEndpoint=" + server_.url("/acc"));
  server_.serve("/acc/box/x.tar", {.body = "here"});
  server_.serve("/y.tar", {.body = "there"});
  StringSink sinks[2];
  Fetcher::Part parts[] = {
      {.request = {.url = "az://box/x.tar", .range = {0, 4}, .validator = "\"v1\""},
       .sink = &sinks[0]},
      {.request = {.url = server_.url("/y.tar"), .range = {0, 5}, .validator = "\"v1\""},
       .sink = &sinks[1]}};
  Fetchers(options_).fetch_parts(parts);
  EXPECT_FALSE(parts[0].is_complete);
  EXPECT_TRUE(parts[1].is_complete);
  EXPECT_EQ(sinks[1].bytes, "there");
  EXPECT_THAT(error_text([&] { fetched("az://box/x.tar"); }), HasSubstr("Azure account"));
}

TEST_F(CloudTest, AzuresRefusalOfAnotherClockIsNamed) {
  environment_.set("AZURE_STORAGE_CONNECTION_STRING",
                   "AccountName=acc;AccountKey=c2VzYW1l;BlobEndpoint=" + server_.url("/acc"));
  server_.serve("/acc/box/x",
                {.statuses = {403}, .extra_headers = "Date: Sat, 03 Feb 2001 04:05:06 GMT\r\n"});
  EXPECT_THAT(error_text([&] { fetched("az://box/x"); }),
              AllOf(HasSubstr("clock"), HasSubstr("at 20"), HasSubstr("2001-02-03T04:05:06Z")));
}

TEST_F(CloudTest, AzuresCredentialsStayWithTheAccountsHost) {
  options_.max_retries = 0;
  // The host's first label equals the account's name, but it is not the account's host.
  environment_.set("AZURE_STORAGE_ACCOUNT", "127");
  environment_.set("AZURE_STORAGE_KEY", "%");
  EXPECT_THAT(error_text([&] { fetched("az://127.0.0.1/box/x.tar"); }),
              AllOf(HasSubstr("cannot fetch: "), Not(HasSubstr("key of the Azure account"))));
  EXPECT_THAT(error_text([&] { fetched("az://127.blob.core.windows.net/box/x.tar"); }),
              AllOf(HasSubstr("Azure account"), HasSubstr("malformed")));

  environment_.set("AZURE_TENANT_ID", "t");
  environment_.set("AZURE_CLIENT_ID", "c");
  environment_.set("AZURE_CLIENT_SECRET", "s");
  answer("POST /login/t/oauth2/v2.0/token", R"({"access_token":"sesame","expires_in":3600})");
  EXPECT_THAT(error_text([&] { fetched("az://127.0.0.1/box/x.tar"); }),
              HasSubstr("cannot fetch: "));
  EXPECT_EQ(server_.count("POST", "/login/t/oauth2/v2.0/token"), 0) << "no token is asked for";

  // The endpoint's host gets the credentials, even if its first label is not the account's name.
  environment_.set("AZURE_STORAGE_CONNECTION_STRING",
                   "BlobEndpoint=" + server_.url("/acc") + ";SharedAccessSignature=sig=sesame");
  server_.serve("/acc/box/x.tar", {.body = "here"});
  EXPECT_EQ(fetched("az://127.0.0.1/box/x.tar"), "here");
  EXPECT_EQ(server_.requests().back().target, "/acc/box/x.tar?sig=sesame");
}

TEST(ThisMachineTest, ANameThatLooksLikeItsNumberIsAnother) {
  for (const char* host : {"localhost", "[::1]", "127.0.0.1", "127.1"}) {
    EXPECT_TRUE(is_this_machine(host)) << host;
  }
  for (const char* host : {"127.example.com", "127.0.0.1.nip.io", "128.0.0.1", "localhost.com"}) {
    EXPECT_FALSE(is_this_machine(host)) << host;
  }
}

TEST_F(CloudTest, AzureNeedsAnAccount) {
  EXPECT_THAT(error_text([&] { fetched("az://box/x.tar"); }),
              AllOf(HasSubstr("no account"), HasSubstr("'az://box/x.tar'"),
                    HasSubstr("AZURE_STORAGE_ACCOUNT")));
  environment_.set("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=sesame");
  EXPECT_THAT(error_text([&] { find_azure_account(); }),
              AllOf(HasSubstr("connection string of Azure"), HasSubstr("malformed"),
                    Not(HasSubstr("sesame"))));
  environment_.set("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey=k");
  EXPECT_EQ(find_azure_account().endpoint, "https://a.blob.core.windows.net");
  environment_.unset("AZURE_STORAGE_CONNECTION_STRING");
  environment_.set("AZURE_STORAGE_ACCOUNT", "b");
  EXPECT_EQ(find_azure_account().endpoint, "https://b.blob.core.windows.net");
  EXPECT_THAT(error_text([&] { fetched("az://b.blob.core.windows.net/box"); }),
              HasSubstr("names no blob"));
}

TEST_F(CloudTest, TheHubIsReadByItsTokenWhichStaysWithTheHub) {
  TestHttpServer elsewhere;
  elsewhere.serve("/blob", {.body = "here"});
  server_.serve("/hub/datasets/o/n/resolve/main/d/a%20b.tar",
                {.redirect_to = elsewhere.url("/blob")});
  EXPECT_EQ(fetched("hf://datasets/o/n/d/a b.tar"), "here");
  EXPECT_EQ(sent("authorization"), "");
  environment_.set("HF_TOKEN", "sesame\n");
  EXPECT_EQ(fetched("hf://datasets/o/n/d/a b.tar"), "here");
  EXPECT_EQ(sent("authorization"), "Bearer sesame");
  EXPECT_EQ(elsewhere.requests().back().header("authorization"), "");
  environment_.set("HF_TOKEN", "");
  std::filesystem::create_directories(home_ / ".cache/huggingface");
  test::write_file(home_ / ".cache/huggingface/token", "kept\n");
  EXPECT_EQ(fetched("hf://datasets/o/n/d/a b.tar"), "here");
  EXPECT_EQ(sent("authorization"), "Bearer kept");
  answer("GET /hub/o/n/resolve/refs%2Fpr%2F1/x", "", 401);
  EXPECT_THAT(error_text([&] { fetched("hf://o/n@refs%2Fpr%2F1/x"); }),
              AllOf(HasSubstr("check the token"), Not(HasSubstr("kept"))));
}

// Each node of a CDN may have its own ETag, so the version is the one that the Hub names.
TEST_F(CloudTest, TheHubsVersionIsThatOfItsRedirectAndNotOfTheNode) {
  const std::string body = test::some_bytes(300'000);
  TestHttpServer cdn;
  cdn.serve("/blob", {.body = body, .has_many_nodes = true});
  for (const std::string header : {"X-Linked-Etag: \"sha\"\r\n", "X-Xet-Hash: sha\r\n",
                                   "X-Xet-Hash: x\r\nX-Linked-Etag: \"sha\"\r\n"}) {
    SCOPED_TRACE(header);
    server_.serve("/hub/datasets/o/n/resolve/main/x.tar",
                  {.extra_headers = header, .redirect_to = "/hub/cache/x"});
    server_.serve("/hub/cache/x", {.redirect_to = cdn.url("/blob")});
    const Fetchers fetchers(options_);
    const std::string url = "hf://datasets/o/n/x.tar";
    const Fetcher::Stat file = fetchers.stat({.url = url});
    EXPECT_EQ(file.validator, "\"sha\"");
    EXPECT_EQ(file.size_bytes, body.size());
    StringSink whole;
    EXPECT_EQ(fetchers.fetch({.url = url, .validator = "\"sha\""}, whole).validator, "\"sha\"");
    EXPECT_TRUE(same(whole.bytes, body));
    EXPECT_EQ(cdn.requests().back().header("if-match"), "");
    StringSink part;
    fetchers.fetch({.url = url, .range = {10, 20}, .validator = "\"sha\""}, part);
    EXPECT_EQ(part.bytes, body.substr(10, 10));
    EXPECT_THAT(error_text([&] { fetchers.fetch({.url = url, .validator = "\"old\""}, part); }),
                AllOf(HasSubstr("changed at its source: 'hf://datasets/o/n/x.tar'"),
                      HasSubstr("'\"old\"' before"), HasSubstr("'\"sha\"' now"),
                      HasSubstr("`shardwise index`")));
  }
}

TEST_F(CloudTest, WhatTheHubNamesTheVersionOfGoesOnAtAnotherNode) {
  const std::string body = test::some_bytes(300'000);
  TestHttpServer cdn;
  cdn.serve("/blob", {.body = body, .has_many_nodes = true, .cut_after = 200'000, .num_cuts = 1});
  server_.serve("/hub/o/n/resolve/main/x",
                {.extra_headers = "X-Linked-Etag: \"sha\"\r\n", .redirect_to = cdn.url("/blob")});
  StringSink sink(false);
  Fetchers(options_).fetch({.url = "hf://o/n/x"}, sink);
  EXPECT_TRUE(same(sink.bytes, body));
  EXPECT_EQ(cdn.requests().back().header("range"), "bytes=200000-");
  EXPECT_EQ(cdn.requests().back().header("if-range"), "");
  // If the redirect names another version, the fetch fails. Parts of two versions are not combined.
  cdn.serve("/blob", {.body = body, .has_many_nodes = true, .cut_after = 200'000, .num_cuts = 1});
  int count = 0;
  server_.serve("/hub/o/n/resolve/main/x",
                {.redirect_to = cdn.url("/blob"), .before_get = [&](test::ServedFile& file) {
                   file.extra_headers = "X-Linked-Etag: \"" + std::to_string(++count) + "\"\r\n";
                 }});
  StringSink other(false);
  EXPECT_THAT(error_text([&] { Fetchers(options_).fetch({.url = "hf://o/n/x"}, other); }),
              HasSubstr("changed while"));
}

TEST_F(CloudTest, BucketsOfTheHubHaveNoRevisions) {
  server_.serve("/hub/buckets/o/n/resolve/d%2Fa%20b.tar", {.body = "here"});
  EXPECT_EQ(fetched("hf://buckets/o/n/d/a b.tar"), "here");
  server_.serve("/hub/api/buckets/o/n/tree/d%2Fe", {.body = R"([
      {"type":"file","path":"d/e/x.tar","size":4,"xetHash":"h"}, {"type":"directory","path":"d/e/f"}
    ])"});
  EXPECT_EQ(listed("hf://buckets/o/n/d/e/"),
            std::vector<std::string>{"hf://buckets/o/n/d/e/x.tar"});
  server_.serve("/hub/api/buckets/o/n/tree", {.body = R"([{"type":"file","path":"x.tar"}])"});
  EXPECT_EQ(listed("hf://buckets/o/n/"), std::vector<std::string>{"hf://buckets/o/n/x.tar"});
  EXPECT_THAT(
      error_text([&] { fetched("hf://buckets/o/n@v1/x.tar"); }),
      AllOf(HasSubstr("(a bucket has no revisions)"), HasSubstr("hf://buckets/owner/name/path")));
}

TEST_F(CloudTest, TokensAreNotSentWithoutEncryption) {
  environment_.set("HF_TOKEN", "sesame");
  environment_.set("AZURE_TENANT_ID", "tenant");
  environment_.set("AZURE_CLIENT_ID", "client");
  environment_.set("AZURE_CLIENT_SECRET", "sesame");
  environment_.set("AZURE_AUTHORITY_HOST", "http://login.example.invalid");
  environment_.set("AZURE_STORAGE_ACCOUNT", "account");
  EXPECT_THAT(error_text([&] { fetched("az://box/x.tar"); }),
              AllOf(HasSubstr("token"), HasSubstr("without encryption"),
                    HasSubstr("AZURE_AUTHORITY_HOST")));
  const std::string address = server_.url("");
  for (const std::string host : {"127.0.0.1", "0.0.0.0"}) {
    // Both addresses lead to this server, but only 127.0.0.1 is known to be this machine.
    std::string url = address;
    url.replace(url.find("127.0.0.1"), 9, host);
    environment_.set("HF_ENDPOINT", url + "/hub");
    server_.serve("/hub/datasets/o/n/resolve/main/x", {.body = "here"});
    EXPECT_EQ(fetched("hf://datasets/o/n/x"), "here");
    EXPECT_EQ(sent("authorization"), host == "127.0.0.1" ? "Bearer sesame" : "");
  }
}

TEST_F(CloudTest, TheHubListsPageByPage) {
  const std::string first = "/hub/api/datasets/o/n/tree/main/d";
  server_.serve(first,
                {.body = R"([{"type":"directory","path":"d/e"},)"
                         R"({"type":"file","path":"d/e/b.tar"},)"
                         R"({"type":"file","path":"d/x.tar"}])",
                 .extra_headers = "Link: <" + server_.url("/hub/next") + ">; rel=\"next\"\r\n"});
  server_.serve("/hub/next", {.body = R"([{"type":"file","path":"d/a.tar"}])"});
  EXPECT_EQ(listed("hf://datasets/o/n/d/"),
            (std::vector<std::string>{"hf://datasets/o/n/d/a.tar", "hf://datasets/o/n/d/e/b.tar",
                                      "hf://datasets/o/n/d/x.tar"}));
  EXPECT_EQ(listed("hf://datasets/o/n/d/e"),
            std::vector<std::string>{"hf://datasets/o/n/d/e/b.tar"});
  server_.serve(
      first, {.body = "[]", .extra_headers = "Link: <http://evil.example/next>; rel=\"next\"\r\n"});
  EXPECT_THAT(error_text([&] { listed("hf://datasets/o/n/d/"); }), HasSubstr("send a list"));
}

TEST(HubPathTest, MalformedUrlsAreRefused) {
  const HubPath path = parse_hub_path("hf://datasets/o/n@v1.0/a/b.tar");
  EXPECT_EQ(path.kind, "datasets");
  EXPECT_EQ(path.repository, "o/n");
  EXPECT_EQ(path.revision, "v1.0");
  EXPECT_EQ(path.path, "a/b.tar");
  EXPECT_EQ(parse_hub_path("hf://kernels/o/n/a").kind, "kernels");
  EXPECT_EQ(parse_hub_path("hf://datasets/o/n@refs/pr/1/a/b").revision, "refs/pr/1");
  EXPECT_EQ(parse_hub_path("hf://datasets/o/n@refs/convert/parquet/a/b").path, "a/b");
  EXPECT_EQ(parse_hub_path("hf://datasets/o/n@refs%2Fpr%2F1/a/b").revision, "refs/pr/1");
  for (const char* url : {"hf:o/n/x", "hf://", "hf://o", "hf://datasets/o/n", "hf://o/n/",
                          "hf://datasets/../n/x", "hf://o/n@/x", "hf://o/n@%zz/x"}) {
    EXPECT_THAT(error_text([&] { parse_hub_path(url); }),
                HasSubstr("write hf://datasets/owner/name[@revision]/path"))
        << url;
  }
}

}  // namespace
}  // namespace shardwise
