#include "storage/aws_profile.h"

#include <string_view>

#include "base/ascii.h"
#include "base/lines.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "storage/environment.h"
#include "storage/token_file.h"

namespace shardwise {
namespace {

/// Adds what stands under [section] of the file at `path`, if there is one. True if the section is
/// there. Indented lines belong to nested settings, which are not read.
bool read_section(const std::string& path, const std::string& section, AwsSettings& settings) {
  constexpr std::string_view kWhat = "the AWS configuration";
  const std::string file = find_text(path, kWhat).value_or("");
  bool is_inside = false, is_there = false;
  for (const std::string_view line : lines_of(file, kWhat, in_quotes(path))) {
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

std::string aws_file(const char* variable, const char* name) {
  const std::string named = environment(variable);
  const std::string home = environment("HOME");
  return !named.empty() || home.empty() ? named : home + "/.aws/" + name;
}

std::string config_file() { return aws_file("AWS_CONFIG_FILE", "config"); }

}  // namespace

AwsSettings read_aws_profile(const std::string& name, bool must_be_there) {
  const std::string credentials = aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const std::string config = config_file();
  AwsSettings settings;
  bool is_there = read_section(credentials, name, settings);
  is_there |= read_section(config, name == "default" ? name : "profile " + name, settings);
  if (!is_there && must_be_there) {
    throw InvalidArgument(
        "the S3 profile does not exist", in_quotes(name),
        "name one that is in " + in_quotes(credentials) + " or " + in_quotes(config));
  }
  return settings;
}

AwsSettings read_sso_session(const std::string& name) {
  AwsSettings settings;
  if (read_section(config_file(), "sso-session " + name, settings)) return settings;
  throw InvalidArgument("the SSO session does not exist", in_quotes(name),
                        "write [sso-session " + name + "] in " + in_quotes(config_file()));
}

std::string aws_profile_name(const std::string& named) {
  if (!named.empty()) return named;
  const std::string profile = environment("AWS_PROFILE");
  return profile.empty() ? "default" : profile;
}

}  // namespace shardwise
