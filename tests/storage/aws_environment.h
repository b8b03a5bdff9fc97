#pragma once

#include "support/environment.h"
#include "support/support.h"

namespace shardwise::test {

/// An environment without AWS settings, with an empty home directory and without EC2's metadata
/// service. Threads: one.
class AwsEnvironment : public Environment {
 public:
  AwsEnvironment() {
    for (const char* name : {"AWS_ACCESS_KEY_ID",
                             "AWS_SECRET_ACCESS_KEY",
                             "AWS_SESSION_TOKEN",
                             "AWS_REGION",
                             "AWS_DEFAULT_REGION",
                             "AWS_ENDPOINT_URL_S3",
                             "AWS_ENDPOINT_URL_STS",
                             "AWS_ENDPOINT_URL_SSO",
                             "AWS_ENDPOINT_URL_SSO_OIDC",
                             "AWS_ENDPOINT_URL",
                             "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                             "AWS_PROFILE",
                             "AWS_ROLE_ARN",
                             "AWS_ROLE_SESSION_NAME",
                             "AWS_WEB_IDENTITY_TOKEN_FILE",
                             "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                             "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                             "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                             "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                             "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                             "AWS_CA_BUNDLE"}) {
      unset(name);
    }
    set("AWS_EC2_METADATA_DISABLED", "true");
    set("HOME", home_.path());
    set("AWS_SHARED_CREDENTIALS_FILE", home_ / "credentials");
    set("AWS_CONFIG_FILE", home_ / "config");
  }
  const TempDir& home() const { return home_; }

 private:
  TempDir home_;
};

}  // namespace shardwise::test
