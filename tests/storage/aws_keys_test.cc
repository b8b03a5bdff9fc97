#include "storage/aws_keys.h"

#include <gmock/gmock.h>
#include <openssl/evp.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "base/text.h"
#include "storage/aws_environment.h"
#include "storage/fetch_support.h"
#include "storage/late_server.h"
#include "storage/machine_service.h"
#include "storage/test_http_server.h"
#include "storage/xml_text.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_text;
using test::TestHttpServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string iso_text(std::chrono::seconds from_now) {
  return utc_text(std::chrono::duration_cast<std::chrono::seconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count() +
                  from_now.count());
}

std::string sts_answer(const std::string& name, std::chrono::seconds lasts) {
  return "<R><Credentials><AccessKeyId>" + name + "</AccessKeyId><SecretAccessKey>s&amp;" + name +
         "</SecretAccessKey><SessionToken>t-" + name + "</SessionToken><Expiration>" +
         iso_text(lasts) + "</Expiration></Credentials></R>";
}

std::string json_answer(const std::string& name, std::chrono::seconds lasts,
                        const std::string& token_name = "Token") {
  return R"({"Version":1,"Code":"Success","AccessKeyId":")" + name + R"(","SecretAccessKey":"s-)" +
         name + R"(",")" + token_name + R"(":"t-)" + name + R"(","Expiration":")" +
         iso_text(lasts) + "\"}";
}

constexpr std::chrono::hours kLong{1};

class AwsKeysTest : public ::testing::Test {
 protected:
  AwsKeysTest() {
    options_.s3.region = "eu-test-1";
    environment_.set("AWS_ENDPOINT_URL_STS", server_.url("/sts"));
    environment_.set("AWS_ENDPOINT_URL_SSO", server_.url("/sso/"));
    environment_.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", server_.url("/imds"));
    server_.set_gate(
        [this](const test::LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
          last_ = request;
          ++num_asked_;
          const auto answer = answers_.find(request.method + " " + request.target);
          if (answer == answers_.end()) return std::nullopt;
          return answer->second();
        });
  }
  void answer(const std::string& request, const std::string& text, int status = 200) {
    answers_[request] = [text, status] { return std::pair(status, text); };
  }
  void config(const std::string& text) { test::write_file(environment_.home() / "config", text); }
  /// Returns the file in which the AWS command line stores a session's token.
  std::string sso_file(const std::string& session) const {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_Digest(session.data(), session.size(), digest, &size, EVP_sha1(), nullptr);
    const std::string folder = environment_.home() / ".aws/sso/cache";
    std::filesystem::create_directories(folder);
    return folder + "/" + hex({reinterpret_cast<const char*>(digest), size}) + ".json";
  }
  static std::string shown(const AwsKeys& keys) {
    return keys.access_key_id + "|" + keys.secret_access_key + "|" + keys.session_token + "|" +
           keys.source;
  }
  std::string found() { return shown(AwsKeyChain(options_).find({}, {})); }

  test::AwsEnvironment environment_;
  std::map<std::string, std::function<std::pair<int, std::string>()>> answers_;
  test::LoggedRequest last_;  // like answers_ and num_asked_, used by one server thread at a time
  std::atomic<int> num_asked_{0};
  TestHttpServer server_;
  Fetchers::Options options_ = test::quick_options();
};

TEST_F(AwsKeysTest, AWebIdentityOfTheEnvironmentIsTakenToSts) {
  environment_.set("AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
  environment_.set("AWS_WEB_IDENTITY_TOKEN_FILE", environment_.home() / "token");
  test::write_file(environment_.home() / "token", "header.body.signature\n");
  answer("POST /sts/", sts_answer("WEB", kLong));
  EXPECT_EQ(found(), "WEB|s&WEB|t-WEB|the role 'arn:aws:iam::1:role/r'");
  EXPECT_EQ(last_.body,
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3A"
            "role%2Fr&RoleSessionName=shardwise&WebIdentityToken=header.body.signature");
  EXPECT_EQ(last_.header("authorization"), "");

  answer("POST /sts/", "<E><Code>AccessDenied</Code></E>", 403);
  EXPECT_THAT(error_text([&] { found(); }),
              AllOf(HasSubstr("HTTP status 403, AccessDenied"), HasSubstr("trust policy"),
                    HasSubstr("'arn:aws:iam::1:role/r'"), Not(HasSubstr("header.body"))));
}

TEST_F(AwsKeysTest, AFileThatWindowsWroteIsReadOrNamed) {
  const std::string keys = "[default]\r\naws_access_key_id = A\r\naws_secret_access_key = s\r\n";
  config("\xEF\xBB\xBF" + keys);
  EXPECT_EQ(found(), "A|s||the profile 'default'");
  std::string wide = "\xFF\xFE";
  for (const char c : keys) wide += {c, '\0'};
  config(wide);
  EXPECT_THAT(
      error_text([&] { found(); }),
      AllOf(HasSubstr("UTF-16 or UTF-32"), HasSubstr("'" + environment_.home() / "config" + "'"),
            HasSubstr("save it as UTF-8")));
}

TEST_F(AwsKeysTest, ARoleIsAssumedByTheKeysOfItsSource) {
  config(
      "[profile work]\nrole_arn = arn:r\nsource_profile = base\nexternal_id = e\n"
      "role_session_name = me\nduration_seconds = 900\n[profile base]\naws_access_key_id = BASE\n"
      "aws_secret_access_key = b\naws_session_token = bt\n");
  options_.s3.profile = "work";
  answer("POST /sts/", sts_answer("ROLE", kLong));
  EXPECT_EQ(found(), "ROLE|s&ROLE|t-ROLE|the role 'arn:r'");
  EXPECT_EQ(last_.body,
            "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Ar&RoleSessionName=me&"
            "ExternalId=e&DurationSeconds=900");
  EXPECT_THAT(last_.header("authorization"),
              AllOf(HasSubstr("Credential=BASE/"), HasSubstr("/eu-test-1/sts/aws4_request")));
  EXPECT_EQ(last_.header("x-amz-security-token"), "bt");
}

TEST_F(AwsKeysTest, AProfilesOwnServiceGivesTheKeysOfItsRole) {
  environment_.unset("AWS_ENDPOINT_URL_STS");
  config(
      "[profile work]\nrole_arn = arn:r\nsource_profile = base\nservices = lab\n"
      "[profile base]\naws_access_key_id = BASE\naws_secret_access_key = b\n"
      "[services lab]\nsts =\n  endpoint_url = " +
      server_.url("/lab/") + "\n");
  options_.s3.profile = "work";
  answer("POST /lab/", sts_answer("ROLE", kLong));
  EXPECT_EQ(found(), "ROLE|s&ROLE|t-ROLE|the role 'arn:r'");
}

TEST_F(AwsKeysTest, RolesThatNobodyCanAssumeAreErrors) {
  const auto text_of = [&](const std::string& text) {
    config(text);
    options_.s3.profile = "a";
    return error_text([&] { found(); });
  };
  EXPECT_THAT(
      text_of("[profile a]\nrole_arn=r\n"),
      AllOf(HasSubstr("no credentials"), HasSubstr("S3 profile: 'a'"), HasSubstr("source_profile"),
            HasSubstr("credential_source"), HasSubstr("web_identity_token_file")));
  EXPECT_THAT(text_of("[profile a]\nrole_arn=r\nsource_profile=b\n[profile b]\nrole_arn=r\n"
                      "source_profile=a\n"),
              AllOf(HasSubstr("S3 profile"), HasSubstr("cycle")));
  EXPECT_THAT(text_of("[profile a]\nrole_arn=r\nsource_profile=none\n"),
              AllOf(HasSubstr("S3 profile"), HasSubstr("not exist"), HasSubstr("'none'")));
  EXPECT_THAT(text_of("[profile a]\nrole_arn=r\nmfa_serial=m\n"), HasSubstr("(mfa_serial): 'a'"));
  EXPECT_THAT(text_of("[profile a]\nrole_arn=r\ncredential_source=Environment\n"),
              HasSubstr("check its credential_source"));
  EXPECT_EQ(num_asked_, 0);
}

TEST_F(AwsKeysTest, SsoTakesTheTokenThatTheLoginLeft) {
  config(
      "[profile p]\nsso_session = my-sso\nsso_account_id = 123\nsso_role_name = reader\n"
      "[sso-session my-sso]\nsso_start_url = https://x\nsso_region = eu-test-1\n");
  environment_.set("AWS_PROFILE", "p");
  EXPECT_THAT(error_text([&] { found(); }), AllOf(HasSubstr("no SSO token"), HasSubstr("'my-sso'"),
                                                  HasSubstr("run `aws sso login`")));
  const std::string path = sso_file("my-sso");
  const auto login = [&](std::chrono::seconds lasts) {
    test::write_file(path, R"({"accessToken":"sesame","expiresAt":")" + iso_text(lasts) + "\"}");
  };
  login(std::chrono::seconds(-10));
  EXPECT_THAT(error_text([&] { found(); }), HasSubstr("expired: 'my-sso'"));
  login(kLong);
  answer("GET /sso/federation/credentials?account_id=123&role_name=reader",
         R"({"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"s","sessionToken":"t",)"
         R"("expiration":4102444800000}})");
  EXPECT_EQ(found(), "SSO|s|t|SSO (role 'reader')");
  EXPECT_EQ(last_.header("x-amz-sso_bearer_token"), "sesame");
}

TEST_F(AwsKeysTest, TheTokenOfAnSsoSessionIsRenewedAndWrittenBack) {
  config(
      "[profile p]\nsso_session = s\nsso_account_id = 123\nsso_role_name = reader\n"
      "[sso-session s]\nsso_start_url = https://x\nsso_region = eu-test-1\n");
  environment_.set("AWS_PROFILE", "p");
  environment_.set("AWS_ENDPOINT_URL_SSO_OIDC", server_.url("/oidc"));
  const auto login = [&](std::chrono::seconds lasts, std::chrono::seconds registered = kLong) {
    test::write_file(sso_file("s"), R"({"startUrl":"https://x","accessToken":"old","expiresAt":")" +
                                        iso_text(lasts) +
                                        R"(","clientId":"i","clientSecret":"c&","refreshToken":)"
                                        R"("first","registrationExpiresAt":")" +
                                        iso_text(registered) + "\"}");
  };
  std::string asked, token;
  const auto keys = [&] {
    answers_["GET /sso/federation/credentials?account_id=123&role_name=reader"] = [&] {
      token = last_.header("x-amz-sso_bearer_token");
      return std::pair(
          200, std::string(R"({"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"s",)"
                           R"("sessionToken":"t","expiration":4102444800000}})"));
    };
    found();
    return token;
  };
  const auto renewals = [&](const std::string& text, int status = 200) {
    asked.clear();
    answers_["POST /oidc/token"] = [&, text, status] {
      asked = last_.body;
      return std::pair(status, text);
    };
  };
  renewals(
      R"({"accessToken":"new","tokenType":"Bearer","expiresIn":28800,"refreshToken":"second"})");
  login(std::chrono::hours(1));
  EXPECT_EQ(keys(), "old");
  EXPECT_EQ(asked, "") << "it lasts";
  for (const int lasts : {-10, 100}) {
    login(std::chrono::seconds(lasts));
    EXPECT_EQ(keys(), "new");
    EXPECT_EQ(asked, R"({"clientId":"i","clientSecret":"c&","grantType":"refresh_token",)"
                     R"("refreshToken":"first"})");
  }
  const std::string written = test::read_file(sso_file("s"));
  EXPECT_THAT(written, AllOf(HasSubstr(R"("accessToken":"new")"), HasSubstr("\"second\""),
                             HasSubstr(R"("startUrl":"https://x")"), Not(HasSubstr("first"))));
  EXPECT_EQ(std::filesystem::status(sso_file("s")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  asked.clear();
  EXPECT_EQ(keys(), "new");
  EXPECT_EQ(asked, "") << "what was written lasts";

  renewals(R"({"error":"invalid_grant","error_description":"first"})", 400);
  login(std::chrono::seconds(100));
  EXPECT_EQ(keys(), "old") << "it is used to its end";
  login(std::chrono::seconds(-10));
  EXPECT_THAT(
      error_text([&] { found(); }),
      AllOf(HasSubstr("SSO token"), HasSubstr("HTTP status 400)"), HasSubstr("run `aws sso login`"),
            Not(HasSubstr("first")), Not(HasSubstr("c&"))));
  answers_["POST /oidc/token"] = [&] {  // another process renewed the token first
    test::write_file(sso_file("s"), R"({"accessToken":"theirs","expiresAt":")" +
                                        iso_text(std::chrono::hours(1)) + "\"}");
    return std::pair(400, std::string(R"({"error":"invalid_grant"})"));
  };
  EXPECT_EQ(keys(), "theirs");

  // The service refuses this process shortly before the faster process writes its new token.
  std::jthread faster;
  login(std::chrono::seconds(-10));
  answers_["POST /oidc/token"] = [&] {
    faster = std::jthread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      test::write_file(sso_file("s"), R"({"accessToken":"later","expiresAt":")" +
                                          iso_text(std::chrono::hours(1)) + "\"}");
    });
    return std::pair(400, std::string(R"({"error":"invalid_grant"})"));
  };
  EXPECT_EQ(keys(), "later");
  faster.join();

  // Lifetimes by which services state that a token never expires.
  for (const char* never : {"9223372036854775807", "1e300", "\"9223372036854775807\""}) {
    renewals(R"({"accessToken":"new","expiresIn":)" + std::string(never) + "}");
    login(std::chrono::seconds(-10));
    EXPECT_EQ(keys(), "new");
    asked.clear();
    EXPECT_EQ(keys(), "new");
    EXPECT_EQ(asked, "") << never;
  }

  renewals(R"({"accessToken":"new","expiresIn":28800})");
  login(std::chrono::seconds(-10), std::chrono::seconds(-5));
  EXPECT_THAT(error_text([&] { found(); }), HasSubstr("expired: 's'"));
  EXPECT_EQ(asked, "") << "the registration has ended";
}

TEST_F(AwsKeysTest, AContainersServiceIsAskedWithItsToken) {
  environment_.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server_.url("/ecs"));
  environment_.set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "first");
  answer("GET /ecs", json_answer("ECS", kLong));
  EXPECT_EQ(found(), "ECS|s-ECS|t-ECS|the container's service");
  EXPECT_EQ(last_.header("authorization"), "first");
  test::write_file(environment_.home() / "token", "second\n");
  environment_.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", environment_.home() / "token");
  found();
  EXPECT_EQ(last_.header("authorization"), "second");
  answer("GET /ecs", "<html>");
  EXPECT_THAT(error_text([&] { found(); }),
              AllOf(HasSubstr("container's service"), HasSubstr("not JSON")));
  answer("GET /ecs", "{}");
  EXPECT_THAT(error_text([&] { found(); }), HasSubstr("the response has no keys"));
  environment_.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.example/");
  EXPECT_THAT(error_text([&] { found(); }),
              AllOf(HasSubstr("container credentials"), HasSubstr("not trusted")));
}

TEST_F(AwsKeysTest, TheMachinesServiceComesLast) {
  EXPECT_EQ(found(), "|||") << "it is turned off";
  EXPECT_EQ(num_asked_, 0);
  environment_.set("AWS_EC2_METADATA_DISABLED", "false");
  EXPECT_EQ(found(), "|||") << "it does not answer";
  answer("PUT /imds/latest/api/token", "sesame");
  EXPECT_EQ(found(), "|||") << "it has no role";
  answer("GET /imds/latest/meta-data/iam/security-credentials/", "role\n");
  answer("GET /imds/latest/meta-data/iam/security-credentials/role", json_answer("EC2", kLong));
  EXPECT_EQ(found(), "EC2|s-EC2|t-EC2|the machine's service");
  EXPECT_EQ(last_.header("x-aws-ec2-metadata-token"), "sesame");
  config("[default]\naws_access_key_id = FILE\naws_secret_access_key = s\n");
  EXPECT_EQ(found(), "FILE|s||the profile 'default'");
}

TEST_F(AwsKeysTest, AMachinesServiceThatTheEnvironmentPromisesAndIsAwayIsAnError) {
  environment_.set("AWS_EC2_METADATA_DISABLED", "false");
  const test::LateServer closed;
  environment_.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", closed.url(""));
  EXPECT_THAT(error_text([&] { found(); }),
              AllOf(HasSubstr("this machine's credentials"),
                    HasSubstr("AWS_EC2_METADATA_SERVICE_ENDPOINT"), HasSubstr(closed.url(""))));
  MachineService service(options_);
  EXPECT_EQ(service.ask({.url = closed.url("")}, {}, "", {}), std::nullopt)
      << "nothing promises it";
}

TEST_F(AwsKeysTest, ACommandPrintsKeys) {
  test::write_file(environment_.home() / "keys.json", json_answer("RUN", kLong, "SessionToken"));
  config("[default]\ncredential_process = cat \"" + (environment_.home() / "keys.json") + "\"\n");
  EXPECT_EQ(found(), "RUN|s-RUN|t-RUN|credential_process");
  config("[default]\ncredential_process = false\n");
  EXPECT_THAT(error_text([&] { found(); }), HasSubstr("status 1"));
}

TEST_F(AwsKeysTest, KeysOfAServiceAreKeptAndRenewedBeforeTheyExpire) {
  environment_.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server_.url("/ecs"));
  AwsKeyChain chain(options_);
  answer("GET /ecs", json_answer("ONE", kLong));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(chain.find({}, {}).access_key_id, "ONE");
  EXPECT_EQ(num_asked_, 1);

  answer("GET /ecs", json_answer("TWO", std::chrono::seconds(-1)));
  EXPECT_EQ(chain.find("ONE", {}).access_key_id, "TWO") << "the server refused the first";
  answer("GET /ecs", json_answer("THREE", kLong));
  EXPECT_EQ(chain.find({}, {}).access_key_id, "THREE") << "the second had expired";
  EXPECT_EQ(num_asked_, 3);
  EXPECT_EQ(chain.find("ONE", {}).access_key_id, "THREE") << "what is refused is no longer kept";
  EXPECT_EQ(num_asked_, 3);
}

TEST_F(AwsKeysTest, AServiceThatIsAwayDoesNotTakeKeysThatAreStillValid) {
  environment_.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server_.url("/ecs"));
  AwsKeyChain chain(options_);
  // The keys have expired, so each use renews them.
  answer("GET /ecs", json_answer("ONE", std::chrono::seconds(-1)));
  EXPECT_EQ(chain.find({}, {}).access_key_id, "ONE");
  answer("GET /ecs", "", 404);
  EXPECT_THAT(error_text([&] { chain.find({}, {}); }), HasSubstr("(HTTP status 404)"));
  // The keys are valid for an hour and were not refused, so the service is not asked again.
  answer("GET /ecs", json_answer("TWO", kLong));
  EXPECT_EQ(chain.find({}, {}).access_key_id, "TWO");
  answer("GET /ecs", "", 404);
  EXPECT_EQ(chain.find({}, {}).access_key_id, "TWO");
}

TEST_F(AwsKeysTest, ManyThreadsAskOnce) {
  environment_.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server_.url("/ecs"));
  answer("GET /ecs", json_answer("ONE", kLong));
  AwsKeyChain chain(options_);
  std::atomic<int> num_right{0};
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      if (chain.find({}, {}).access_key_id == "ONE") ++num_right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_right, 8);
  EXPECT_EQ(num_asked_, 1);
}

// A long run in which the session's token expires between two attempts.
TEST_F(AwsKeysTest, AFetchGoesOnWithNewKeysWhenTheServerSaysThatTheOldOnesExpired) {
  environment_.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server_.url("/ecs"));
  options_.s3.endpoint = server_.url("");
  int num_keys = 0;
  answers_["GET /ecs"] = [&] {
    return std::pair(200, json_answer("KEY" + std::to_string(++num_keys), kLong));
  };
  answers_["GET /bucket/x"] = [&]() -> std::pair<int, std::string> {
    const bool is_new = last_.header("authorization").find("KEY2/") != std::string::npos;
    if (is_new) return {200, "here"};
    return {400, "<Error><Code>ExpiredToken</Code></Error>"};
  };
  const Fetchers fetchers(options_);
  test::StringSink sink;
  fetchers.fetch({.url = "s3://bucket/x"}, sink);
  EXPECT_EQ(sink.bytes, "here");
  fetchers.fetch({.url = "s3://bucket/x"}, sink);
  EXPECT_EQ(num_keys, 2);

  // After the refusal of KEY2, two temporary failures must not cause another request for keys.
  int num_failures = 0;
  answers_["GET /bucket/x"] = [&]() -> std::pair<int, std::string> {
    const bool is_old = last_.header("authorization").find("KEY2/") != std::string::npos;
    if (is_old) return {400, "<Error><Code>ExpiredToken</Code></Error>"};
    if (++num_failures <= 2) return {503, ""};
    return {200, "here"};
  };
  fetchers.fetch({.url = "s3://bucket/x"}, sink);
  EXPECT_EQ(num_keys, 3);

  answers_["GET /bucket/x"] = [&]() -> std::pair<int, std::string> {
    return {400, "<Error><Code>ExpiredToken</Code></Error>"};
  };
  EXPECT_THAT(error_text([&] { fetchers.fetch({.url = "s3://bucket/x"}, sink); }),
              AllOf(HasSubstr("HTTP status 400, ExpiredToken"), HasSubstr("after 2 attempts")));
}

TEST(XmlTextTest, WhatStandsBetweenTagsIsResolved) {
  EXPECT_EQ(xml_text("<a><Key>x &amp; y&lt;&#x41;&#228;</Key></a>", "Key"), "x & y<A\xC3\xA4");
  EXPECT_EQ(xml_text("<KeyCount>3</KeyCount><Key n=\"1\">x</Key>", "Key"), "x");
  EXPECT_EQ(xml_text("<Key/><Key>x</Key>", "Key"), "");
  EXPECT_EQ(xml_text("<Key>cut", "Key"), "");
  EXPECT_EQ(xml_text("a & b <Key>&none; &#xFFFFFF; &</Key>", "Key"), "&none; &#xFFFFFF; &");
  EXPECT_EQ(xml_elements("<k>1</k><k></k><kk>2</kk><k>3</k>", "k"),
            (std::vector<std::string_view>{"1", "", "3"}));
}

}  // namespace
}  // namespace shardwise
