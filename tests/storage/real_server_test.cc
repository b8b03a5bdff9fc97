// Tests the fetchers with the distribution's nginx as server, over http and https. Also checks
// which system calls the fetchers make.

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>

#include "shardwise/storage/fetcher.h"
#include "storage/fetch_support.h"
#include "storage/nginx.h"
#include "storage/test_http_server.h"
#include "support/environment.h"
#include "support/process.h"
#include "support/spawned.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::same;
using test::StringSink;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// Writes a key and a self-signed certificate for localhost.
void write_certificate(const std::string& key_path, const std::string& certificate_path) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_RSA_gen(2048), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost");
  X509_add_ext(certificate.get(), names, -1);
  X509_EXTENSION_free(names);
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  const auto write = [](const std::string& path, auto&& put) {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    if (file == nullptr || put(file) != 1) throw std::runtime_error("cannot write " + path);
    std::fclose(file);
  };
  write(key_path, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  write(certificate_path, [&](std::FILE* file) { return PEM_write_X509(file, certificate.get()); });
}

/// Runs nginx with its own folder on two free ports.
class NginxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto program = test::find_program("nginx");
    if (!program)
      GTEST_SKIP() << "needs nginx (the package nginx-light); skipped because it is not in PATH";
    write_certificate(dir_ / "key.pem", dir_ / "cert.pem");
    port_ = test::free_port();
    do tls_port_ = test::free_port();
    while (tls_port_ == port_);
    const std::string port = std::to_string(port_), tls_port = std::to_string(tls_port_);
    test::write_file(dir_ / "users", "user:{PLAIN}sesame\n");
    server_ = std::make_unique<test::Nginx>(
        *program, dir_,
        "access_log " + (dir_ / "access.log") + ";\nsendfile on;\ngzip on;\ngzip_types *;\n",
        "listen 127.0.0.1:" + port + ";\nlisten 127.0.0.1:" + tls_port + " ssl;\nssl_certificate " +
            (dir_ / "cert.pem") + ";\nssl_certificate_key " + (dir_ / "key.pem") +
            ";\nlocation /private/ { auth_basic shards; auth_basic_user_file " + (dir_ / "users") +
            "; }\nlocation = /down { return 302 http://localhost:" + port +
            "/x.tar; }\nlocation = /up { return 302 https://localhost:" + tls_port + "/x.tar; }\n",
        tls_port_);
    options_.ca_file = dir_ / "cert.pem";
    for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"}) {
      environment_.unset(name);
    }
  }
  std::string url(const std::string& path) const {
    return "http://localhost:" + std::to_string(port_) + path;
  }
  std::string tls_url(const std::string& path) const {
    return "https://localhost:" + std::to_string(tls_port_) + path;
  }
  /// Returns the hash of the certificate's subject, which names its file in a folder of
  /// authorities.
  std::string subject_hash() const {
    std::FILE* const file = std::fopen((dir_ / "cert.pem").c_str(), "r");
    if (file == nullptr) throw std::runtime_error("no cert.pem");
    const std::unique_ptr<X509, void (*)(X509*)> certificate(
        PEM_read_X509(file, nullptr, nullptr, nullptr), X509_free);
    std::fclose(file);
    std::array<char, 16> text{};
    std::snprintf(text.data(), text.size(), "%08lx", X509_subject_name_hash(certificate.get()));
    return text.data();
  }
  std::string put(const std::string& name, std::string body) {
    std::filesystem::create_directories(
        std::filesystem::path(dir_ / ("www/" + name)).parent_path());
    test::write_file(dir_ / ("www/" + name), body);
    return body;
  }
  std::string fetched(const Fetcher::Request& request) const {
    StringSink sink;
    Fetchers(options_).fetch(request, sink);
    return sink.bytes;
  }

  test::TempDir dir_;
  test::Environment environment_;
  int port_ = 0, tls_port_ = 0;
  std::unique_ptr<test::Nginx> server_;
  Fetchers::Options options_ = test::quick_options();
};

TEST_F(NginxTest, FilesAndRangesComeOverHttpAndHttps) {
  const std::string body = put("x.tar", test::some_bytes(3'000'000));
  put("a b'.txt", std::string(10'000, 'x'));
  for (const std::string& whole : {url("/x.tar"), tls_url("/x.tar"), url("/up")}) {
    EXPECT_TRUE(same(fetched({.url = whole}), body)) << whole;
    EXPECT_TRUE(same(fetched({.url = whole, .range = {7, 1'000'000}}), body.substr(7, 999'993)));
    EXPECT_EQ(fetched({.url = whole, .range = {3'000'000, std::nullopt}}), "");
    const Fetcher::Stat file = Fetchers(options_).stat({.url = whole});
    EXPECT_EQ(file.size_bytes, body.size());
    EXPECT_TRUE(file.has_ranges);
    EXPECT_EQ(file.validator.front(), '"');
    EXPECT_TRUE(same(fetched({.url = whole, .validator = file.validator}), body));
  }
  EXPECT_EQ(fetched({.url = url("/a b'.txt")}).size(), 10'000U);  // and is not compressed with gzip
}

TEST_F(NginxTest, AFileThatWasReplacedIsStale) {
  put("x.tar", "old");
  const Fetcher::Stat file = Fetchers(options_).stat({.url = url("/x.tar")});
  put("x.tar", "newer");
  EXPECT_EQ(error_code([&] { fetched({.url = url("/x.tar"), .validator = file.validator}); }),
            ErrorCode::kStaleIndex);
}

// Fault under test: tests/faults.md 10.
TEST_F(NginxTest, Row10_WhatIsNotThereOrNotAllowedIsAnError) {
  put("private/x.tar", "secret");
  EXPECT_THAT(error_text([&] { fetched({.url = url("/none.tar")}); }),
              AllOf(HasSubstr("HTTP status 404, after 1 attempt"), HasSubstr("URL")));
  EXPECT_THAT(error_text([&] { fetched({.url = url("/private/x.tar")}); }),
              AllOf(HasSubstr("HTTP status 401, after 1 attempt"),
                    HasSubstr("password or signature"), HasSubstr("Fetchers::Options: moved")));
  const std::string rest = "@localhost:" + std::to_string(port_) + "/private/x.tar";
  EXPECT_EQ(fetched({.url = "http://user:sesame" + rest}), "secret");
  EXPECT_THAT(error_text([&] { fetched({.url = "http://user:wrong" + rest}); }),
              AllOf(HasSubstr("HTTP status 401"), HasSubstr("the user"), HasSubstr("the password"),
                    ::testing::Not(HasSubstr("wrong"))));
}

// Fault under test: tests/faults.md 14.
TEST_F(NginxTest, Row14_NoRedirectLeavesEncryption) {
  put("x.tar", "plain");
  EXPECT_EQ(fetched({.url = url("/down")}), "plain");
  EXPECT_THAT(
      error_text([&] { fetched({.url = tls_url("/down")}); }),
      AllOf(HasSubstr("redirected to 'http://localhost:" + std::to_string(port_) + "/x.tar'"),
            HasSubstr("not encrypted"), HasSubstr("redirecting URL")));
}

TEST_F(NginxTest, CertificatesAreChecked) {
  put("x.tar", "here");
  const std::string by_address = "https://127.0.0.1:" + std::to_string(tls_port_) + "/x.tar";
  EXPECT_EQ(error_code([&] { fetched({.url = by_address}); }), ErrorCode::kFetch);
  options_.ca_file = "";
  EXPECT_THAT(error_text([&] { fetched({.url = tls_url("/x.tar")}); }),
              AllOf(HasSubstr(", after 1 attempt"),
                    AnyOf(HasSubstr("own authority"), HasSubstr("ca-certificates")),
                    HasSubstr("(SSL_CERT_FILE, Fetchers::Options::ca_file)")));
  options_.ca_file = dir_ / "none.pem";
  EXPECT_THAT(error_text([&] { fetched({.url = tls_url("/x.tar")}); }),
              HasSubstr("check Fetchers::Options::ca_file, which is '" + (dir_ / "none.pem")));
}

TEST_F(NginxTest, TheEnvironmentNamesAuthorities) {
  put("x.tar", "here");
  options_.ca_file = "";
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    test::Environment environment;
    environment.set(name, dir_ / "cert.pem");
    EXPECT_EQ(fetched({.url = tls_url("/x.tar")}), "here") << name;
    environment.set(name, dir_ / "none.pem");
    EXPECT_THAT(error_text([&] { fetched({.url = tls_url("/x.tar")}); }),
                HasSubstr("check " + std::string(name) + ", which is '" + (dir_ / "none.pem")));
  }

  // The folder has a link to each certificate, which is named after the hash of the subject.
  const std::string folder = dir_ / "authorities";
  std::filesystem::create_directory(folder);
  environment_.set("SSL_CERT_DIR", folder);
  EXPECT_THAT(error_text([&] { fetched({.url = tls_url("/x.tar")}); }),
              HasSubstr("add the authority to '" + folder + "' (SSL_CERT_DIR)"));
  std::filesystem::create_symlink(dir_ / "cert.pem", folder + "/" + subject_hash() + ".0");
  EXPECT_EQ(fetched({.url = tls_url("/x.tar")}), "here");
}

TEST_F(NginxTest, OnlyAuthoritiesThatAreNamedAreTrusted) {
  put("x.tar", "here");
  write_certificate(dir_ / "other-key.pem", dir_ / "other.pem");
  const std::string folder = dir_ / "authorities";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(dir_ / "cert.pem", folder + "/" + subject_hash() + ".0");
  environment_.set("SSL_CERT_DIR", folder);
  options_.ca_file = dir_ / "other.pem";
  EXPECT_THAT(error_text([&] { fetched({.url = tls_url("/x.tar")}); }),
              HasSubstr("add the authority to '" + (dir_ / "other.pem") +
                        "' (Fetchers::Options::ca_file)"));
}

// faults.md 43: whatever the URL contains, fetching over http starts no program.
TEST(StraceTest, Row43_NoProgramIsRunForHttp) {
  const auto strace = test::find_program("strace");
  if (!strace) GTEST_SKIP() << "needs strace; skipped because it is not in PATH";
  if (test::kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because their leak check does not "
                    "run under strace";
  const test::TempDir dir;
  test::TestHttpServer server;
  server.serve("/x.tar", {.body = test::some_bytes(500'000), .cut_after = 200'000});
  server.serve("/away", {.redirect_to = "/x.tar"});
  server.serve("/file", {.redirect_to = "file:///etc/passwd"});
  const std::string sentinel = dir / "sentinel";
  std::vector<std::string> arguments = {*strace, "-f", "-qq", "-e", "trace=execve,execveat",
                                        // Leak detection does not work in a traced process.
                                        "-E", "ASAN_OPTIONS=detect_leaks=0", "-o", dir / "trace",
                                        SHARDWISE_FETCH_PROGRAM, dir / "out"};
  for (const std::string tail : {"/x.tar", "/away", "/file", "/none"}) {
    arguments.push_back(server.url(tail));
  }
  for (const std::string& odd :
       {"/';touch " + sentinel + ";'", "/$(touch " + sentinel + ")", "/`touch " + sentinel + "`",
        "/|touch " + sentinel, "/\n touch " + sentinel}) {
    arguments.push_back(server.url(odd));
  }
  arguments.push_back("pipe:touch " + sentinel);
  arguments.push_back("http://localhost:" + std::to_string(server.port()) + "/x.tar");
  const int code = test::Spawned(arguments).wait();
  const std::string trace =
      std::filesystem::exists(dir / "trace") ? test::read_file(dir / "trace") : "";
  if (trace.find("exec") == std::string::npos)
    GTEST_SKIP() << "needs strace; skipped because it is not allowed to trace here";
  EXPECT_EQ(code, 0);
  std::istringstream lines(trace);
  std::vector<std::string> execs;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("exec") != std::string::npos) execs.push_back(line);
  }
  // Only the program itself was executed.
  EXPECT_THAT(execs, ::testing::ElementsAre(HasSubstr("fetch_program")));
  EXPECT_FALSE(std::filesystem::exists(sentinel));
  EXPECT_GE(server.gets("/x.tar"), 9);
}

}  // namespace
}  // namespace shardwise
