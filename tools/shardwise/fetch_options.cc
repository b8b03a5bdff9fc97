#include "fetch_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/ascii.h"
#include "base/text.h"
#include "options.h"
#include "output.h"

namespace shardwise::tools {
namespace {

constexpr const char* kFetchGroup = "Servers";

bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }

/// A header, or with an @ in front the file that holds one a line. Errors: wrong usage.
void add_headers(const std::string& given, std::vector<std::string>& headers) {
  if (!given.starts_with('@')) {
    headers.push_back(given);
    return;
  }
  std::ifstream file(given.substr(1));
  for (std::string line; std::getline(file, line);) {
    if (!trimmed(line).empty()) headers.emplace_back(trimmed(line));
  }
  if (!file.eof()) {
    throw CLI::ValidationError("--http-header",
                               "cannot read the file " + in_quotes(given.substr(1)));
  }
}

/// "https://old/data=s3://bucket/data"; the = is the first with a URL behind it.
/// Errors: wrong usage.
Fetchers::Options::Moved parse_moved(const std::string& given) {
  for (std::size_t at = 0; (at = given.find('=', at)) != std::string::npos; ++at) {
    const std::string to = given.substr(at + 1);
    const std::string scheme = to.substr(0, to.find("://"));
    const bool is_url = !scheme.empty() && scheme.size() < to.size() &&
                        std::all_of(scheme.begin(), scheme.end(), is_letter_or_digit);
    if (is_url && at > 0) return {given.substr(0, at), to};
  }
  throw CLI::ValidationError("--url-base",
                             "write OLD=NEW, two URLs, as https://old/data=s3://bucket/data");
}

/// Errors: wrong usage.
std::chrono::milliseconds parse_retry_time(const std::string& given) {
  if (const auto time = parse_duration(given)) return *time;
  throw CLI::ValidationError("--retry-for", in_quotes(given) +
                                                " is not a time: write a number with a unit, as "
                                                "30s, 15m or 2h, or 0");
}

/// "15 min", "1 h 40 min", "20 s".
std::string shown_time(std::chrono::milliseconds time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  if (seconds < 100) return fmt::format("{} s", seconds);
  const auto minutes = (seconds + 59) / 60;
  if (minutes < 100) return fmt::format("{} min", minutes);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

}  // namespace

void say_what_is_tried_again(const std::string& url, const std::string& reason,
                             std::chrono::milliseconds left) {
  say("waiting", fmt::format("{} cannot be fetched now ({}); it is tried again, for {} at most "
                             "(--retry-for)",
                             in_quotes(url), reason, shown_time(left)));
}

bool is_quiet(const CLI::App& command) {
  const CLI::Option* const quiet = command.get_option_no_throw("--quiet");
  return quiet != nullptr && quiet->count() > 0;
}

void add_fetch_options(CLI::App& command, Fetchers::Options& fetching) {
  fetching.on_retry = [&command](const std::string& url, const std::string& reason,
                                 std::chrono::milliseconds left) {
    if (!is_quiet(command)) say_what_is_tried_again(url, reason, left);
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--http-header",
          [&fetching](const std::vector<std::string>& all) {
            for (const std::string& given : all) add_headers(given, fetching.headers);
          },
          "a header of every http and https request, 'Name: value', or @FILE with one a line, "
          "which "
          "lists of processes do not show; may be given several times")
      ->type_name("HEADER")
      ->allow_extra_args(false)
      ->group(kFetchGroup);
  command
      .add_option("--bearer-token-file", fetching.bearer_token_file,
                  "file whose first line is the bearer token of https requests; it is read again "
                  "for each shard")
      ->type_name("FILE")
      ->group(kFetchGroup);
  command
      .add_option("--netrc-file", fetching.netrc_file,
                  "file with users and passwords by host; without it, the one that NETRC names, or "
                  "`~/.netrc`")
      ->type_name("FILE")
      ->group(kFetchGroup);
  command
      .add_option("--ca-file", fetching.ca_file,
                  "certificates of the authorities to trust, in PEM, in place of this machine's")
      ->type_name("FILE")
      ->group(kFetchGroup);
  command
      .add_option_function<std::vector<std::string>>(
          "--url-base",
          [&fetching](const std::vector<std::string>& all) {
            for (const std::string& given : all) fetching.moved.push_back(parse_moved(given));
          },
          "URLs that begin with OLD are fetched from NEW: a mirror, another scheme, or the same "
          "with "
          "a fresh signature (NEW?SIGNATURE); may be given several times")
      ->type_name("OLD=NEW")
      ->allow_extra_args(false)
      ->group(kFetchGroup);
  command
      .add_option_function<std::string>(
          "--retry-for",
          [&fetching](const std::string& given) { fetching.retry_for = parse_retry_time(given); },
          "how long a fetch is tried again while a server is away, refuses for now, or sends what "
          "is wrong, as 30s, 15m or 2h; 0: one try")
      ->type_name("DURATION")
      ->default_str("15m")
      ->group(kFetchGroup);
  command
      .add_option("--host-connections", fetching.max_connections_per_host,
                  "most transfers that talk to one host at a time; 0: no limit")
      ->type_name("N")
      ->default_str("0")
      ->check(kWholeNumber)
      ->group(kFetchGroup);
  command
      .add_option("--shard-connections", fetching.max_connections_per_shard,
                  "requests at a time for one large shard that goes into the cache; 1: one for all "
                  "of it")
      ->type_name("N")
      ->default_str("4")
      ->check(kWholeNumber)
      ->group(kFetchGroup);
  command
      .add_flag("--no-sign-request", fetching.s3.anonymous,
                "read s3:// without keys, as public buckets are read; none are looked for")
      ->group(kFetchGroup);
  command
      .add_flag("--allow-pipe", fetching.allow_pipe,
                "allow URLs that begin with pipe:, and run their commands, without a shell")
      ->group(kFetchGroup);
}

}  // namespace shardwise::tools
