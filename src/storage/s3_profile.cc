#include "storage/s3_profile.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string_view>

#include "base/ascii.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "storage/environment.h"

namespace shardwise {
namespace {

using Settings = std::map<std::string, std::string>;

std::string first_of(std::initializer_list<std::string> values) {
  for (const std::string& value : values) {
    if (!value.empty()) return value;
  }
  return {};
}

/// Adds what stands under [section] of the file at `path`, if there is one. True if the section is
/// there. Indented lines belong to nested settings, which are not read.
bool read_section(const std::string& path, const std::string& section, Settings& settings) {
  std::ifstream file(path);
  bool is_inside = false, is_there = false;
  for (std::string line; std::getline(file, line);) {
    const std::string_view text = trimmed(line);
    if (text.empty() || text[0] == '#' || text[0] == ';') continue;
    if (text[0] == '[') {
      is_inside = trimmed(text.substr(1, text.find(']') - 1)) == section;
      is_there |= is_inside;
      continue;
    }
    const std::size_t equals = text.find('=');
    if (!is_inside || equals == std::string::npos || line[0] == ' ' || line[0] == '\t') continue;
    settings.emplace(trimmed(text.substr(0, equals)), trimmed(text.substr(equals + 1)));
  }
  return is_there;
}

std::string home_file(const char* name) {
  const std::string home = environment("HOME");
  return home.empty() ? std::string() : home + "/.aws/" + name;
}

/// Reads a profile's settings from the two files, credentials first.
Settings read_profile(const std::string& name, bool must_be_there) {
  const std::string credentials =
      first_of({environment("AWS_SHARED_CREDENTIALS_FILE"), home_file("credentials")});
  const std::string config = first_of({environment("AWS_CONFIG_FILE"), home_file("config")});
  Settings settings;
  bool is_there = read_section(credentials, name, settings);
  is_there |= read_section(config, name == "default" ? name : "profile " + name, settings);
  if (!is_there && must_be_there) {
    throw InvalidArgument(
        "the S3 profile does not exist", in_quotes(name),
        "name one that is in " + in_quotes(credentials) + " or " + in_quotes(config));
  }
  return settings;
}

void require_pair(const S3Access& access) {
  if (access.access_key_id.empty() == access.secret_access_key.empty()) return;
  throw InvalidArgument("one of the two S3 keys is missing", access.source,
                        "give both the access key id and the secret access key, or neither");
}

}  // namespace

S3Access resolve_s3_access(const Fetchers::S3Options& options) {
  const std::string profile = first_of({options.profile, environment("AWS_PROFILE"), "default"});
  const bool is_named = !options.profile.empty() || !environment("AWS_PROFILE").empty();
  Settings settings = read_profile(profile, is_named);

  S3Access access;
  const auto take = [&](std::string id, std::string secret, std::string token,
                        const std::string& source) {
    if (!access.access_key_id.empty() || (id.empty() && secret.empty())) return;
    access.access_key_id = std::move(id);
    access.secret_access_key = std::move(secret);
    access.session_token = std::move(token);
    access.source = source;
    require_pair(access);
  };
  take(options.access_key_id, options.secret_access_key, options.session_token,
       "Fetchers::S3Options");
  if (options.profile.empty()) {
    take(environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
         environment("AWS_SESSION_TOKEN"), "the environment");
  }
  take(settings["aws_access_key_id"], settings["aws_secret_access_key"],
       settings["aws_session_token"], "the profile " + in_quotes(profile));

  access.region = first_of({options.region, environment("AWS_REGION"),
                            environment("AWS_DEFAULT_REGION"), settings["region"], "us-east-1"});
  access.endpoint = first_of({options.endpoint, environment("AWS_ENDPOINT_URL_S3"),
                              environment("AWS_ENDPOINT_URL"), settings["endpoint_url"]});
  return access;
}

}  // namespace shardwise
