#include "storage/authorities.h"

#include <array>

#include "support/environment.h"
#include "support/support.h"

namespace shardwise {
namespace {

class AuthoritiesTest : public ::testing::Test {
 protected:
  AuthoritiesTest() {
    for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"}) {
      environment_.unset(name);
    }
  }
  Authorities found(const BuiltInAuthorities& built_in) const {
    const std::array places = {first_.c_str(), second_.c_str()};
    return find_authorities("", built_in, places);
  }

  test::TempDir dir_;
  test::Environment environment_;
  const std::string first_ = dir_ / "first.pem", second_ = dir_ / "second.pem";
};

TEST_F(AuthoritiesTest, ThoseThatLibcurlKnowsAreItsOwnBusiness) {
  test::write_file(first_, "");
  test::write_file(dir_ / "own.pem", "");
  EXPECT_TRUE(found({.file = dir_ / "own.pem"}).are_built_in);
  EXPECT_TRUE(found({.folder = dir_.path()}).are_built_in);
  EXPECT_FALSE(found({.file = dir_ / "own.pem"}).are_none());
}

TEST_F(AuthoritiesTest, WhereItKnowsNoneThePlacesOfTheDistributionsAreLookedAt) {
  EXPECT_TRUE(found({}).are_none());
  test::write_file(second_, "");
  EXPECT_EQ(found({}).file, second_);
  test::write_file(first_, "");
  EXPECT_EQ(found({}).file, first_);
  EXPECT_EQ(found({.file = dir_ / "none.pem", .folder = dir_ / "none"}).file, first_);
  EXPECT_EQ(found({}).setting, "") << "nobody named it";
}

TEST_F(AuthoritiesTest, TheEnvironmentComesBeforeBoth) {
  test::write_file(first_, "");
  const BuiltInAuthorities built_in{.file = first_};
  environment_.set("SSL_CERT_DIR", "/folder");
  EXPECT_EQ(found(built_in).folder, "/folder");
  EXPECT_EQ(found(built_in).file, "");
  EXPECT_EQ(found(built_in).setting, "SSL_CERT_DIR");
  EXPECT_FALSE(found(built_in).are_built_in);

  environment_.set("SSL_CERT_FILE", "/file.pem");
  EXPECT_EQ(found(built_in).file, "/file.pem");
  EXPECT_EQ(found(built_in).folder, "/folder");
  EXPECT_EQ(found(built_in).setting, "SSL_CERT_FILE");

  environment_.set("CURL_CA_BUNDLE", "/bundle.pem");
  EXPECT_EQ(found(built_in).file, "/bundle.pem");
  EXPECT_EQ(found(built_in).folder, "");
  EXPECT_EQ(found(built_in).setting, "CURL_CA_BUNDLE");

  const Authorities given = find_authorities("/given.pem");
  EXPECT_EQ(given.file, "/given.pem");
  EXPECT_EQ(given.folder, "");
}

TEST_F(AuthoritiesTest, AnEmptyVariableIsNone) {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"}) {
    environment_.set(name, "");
  }
  EXPECT_TRUE(found({}).are_none());
}

}  // namespace
}  // namespace shardwise
