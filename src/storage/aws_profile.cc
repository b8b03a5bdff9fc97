#include "storage/aws_profile.h"

#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "base/lines.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "storage/environment.h"
#include "storage/token_file.h"

namespace shardwise {
namespace {

constexpr std::string_view kWhat = "the file of AWS profiles";

/// True for the header [kind name], or [name] if `kind` is empty. The default profile may be
/// written as [default], in any case and without "profile".
bool is_section(std::string_view header, std::string_view kind, std::string_view name) {
  const bool is_profile = kind.empty() || kind == "profile";
  const auto is_name = [&](std::string_view text) {
    return text == name || (is_profile && name == "default" && to_lower(text) == name);
  };
  if (kind.empty() || (is_profile && name == "default" && is_name(header))) return is_name(header);
  if (!to_lower(header).starts_with(kind)) return false;
  std::string_view rest = header.substr(kind.size());
  if (rest.empty() || (rest[0] != ' ' && rest[0] != '\t')) return false;
  rest = trimmed(rest);
  const bool is_quoted =
      rest.size() >= 2 && (rest[0] == '"' || rest[0] == '\'') && rest.back() == rest.front();
  return is_name(is_quoted ? rest.substr(1, rest.size() - 2) : rest);
}

/// Adds the settings of one section of the file at `path`. Returns true if the file has the
/// section.
///
/// The syntax is that of Amazon's tools (Python's configparser): names in any case, "=" or ":", and
/// indented lines. A line that is indented deeper than the previous setting belongs to that
/// setting: "endpoint_url" below "s3 =" becomes "s3.endpoint_url".
/// Errors: InvalidArgument for a line that is not "name = value". Messages never quote a line,
///   because it may contain a key.
bool read_section(const std::string& path, std::string_view kind, const std::string& name,
                  AwsSettings& settings) {
  const std::string all = find_text(path, kWhat).value_or("");
  bool is_inside = false, is_there = false;
  std::string before;  // name of the setting that deeper indented lines belong to; may be empty
  bool is_group = false;
  std::size_t indent_before = 0, number = 0;
  for (const std::string_view line : lines_of(all, kWhat, in_quotes(path))) {
    ++number;
    const std::string_view text = trimmed(line);
    if (text.empty() || text[0] == '#' || text[0] == ';') continue;
    const std::size_t indent = line.find_first_not_of(" \t");
    const bool belongs = !before.empty() && indent > indent_before;
    if (!belongs && text[0] == '[') {
      is_inside = is_section(trimmed(text.substr(1, text.find(']') - 1)), kind, name);
      is_there |= is_inside;
      before.clear();
      continue;
    }
    const std::size_t mark = text.find_first_of(belongs ? "=" : "=:");
    if (mark == std::string::npos && !belongs && is_inside) {
      throw InvalidArgument("a line of the S3 profile is malformed",
                            in_quotes(path) + ", line " + std::to_string(number),
                            "write it as name = value");
    }
    if (mark == std::string::npos) continue;
    std::string setting = to_lower(trimmed(text.substr(0, mark)));
    const std::string_view value = trimmed(text.substr(mark + 1));
    if (is_inside && belongs && is_group) settings.emplace(before + "." + setting, value);
    if (is_inside && !belongs) settings.emplace(setting, value);
    if (belongs) continue;
    before = std::move(setting);
    indent_before = indent;
    is_group = value.empty();
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
  bool is_there = read_section(credentials, "", name, settings);
  is_there |= read_section(config, "profile", name, settings);
  if (!is_there && must_be_there) {
    throw InvalidArgument(
        "the S3 profile does not exist", in_quotes(name),
        "name a profile of " + in_quotes(credentials) + " or " + in_quotes(config));
  }
  const auto services = settings.find("services");
  if (services == settings.end()) return settings;
  AwsSettings of_services;
  if (!read_section(config, "services", services->second, of_services)) {
    throw InvalidArgument("the services section of the S3 profile does not exist",
                          in_quotes(services->second) + ", in the profile " + in_quotes(name),
                          "write [services " + services->second + "] in " + in_quotes(config));
  }
  for (auto& [setting, value] : of_services) settings.emplace("services." + setting, value);
  return settings;
}

std::string setting(const AwsSettings& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? std::string() : found->second;
}

std::string aws_region(const std::string& named, const AwsSettings& profile) {
  for (std::string region : {named, environment("AWS_REGION"), environment("AWS_DEFAULT_REGION"),
                             setting(profile, "region")}) {
    if (!region.empty()) return region;
  }
  return "us-east-1";
}

std::string aws_endpoint(const AwsSettings& profile, const std::string& service) {
  constexpr const char* kIgnored = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS";
  const std::string ignored = environment(kIgnored).empty()
                                  ? setting(profile, "ignore_configured_endpoint_urls")
                                  : environment(kIgnored);
  if (to_lower(ignored) == "true") return {};
  std::string variable = "AWS_ENDPOINT_URL_";
  for (const char c : service) variable += is_lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
  for (std::string url : {environment(variable.c_str()), environment("AWS_ENDPOINT_URL"),
                          setting(profile, "services." + service + ".endpoint_url"),
                          setting(profile, "endpoint_url")}) {
    while (url.ends_with('/')) url.pop_back();
    if (!url.empty()) return url;
  }
  return {};
}

AwsSettings read_sso_session(const std::string& name) {
  AwsSettings settings;
  if (read_section(config_file(), "sso-session", name, settings)) return settings;
  throw InvalidArgument("the SSO session does not exist", in_quotes(name),
                        "write [sso-session " + name + "] in " + in_quotes(config_file()));
}

std::string aws_profile_name(const std::string& named) {
  if (!named.empty()) return named;
  const std::string profile = environment("AWS_PROFILE");
  return profile.empty() ? "default" : profile;
}

}  // namespace shardwise
