#include "fetch_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/lines.h"
#include "base/normal_path.h"
#include "base/text.h"
#include "base/url.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "shardwise/base/error.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/index/index.h"
#include "storage/retry_notes.h"

namespace shardwise::tools {
namespace {

constexpr const char* kFetchGroup = "Servers";

bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }

/// Adds a header, or the headers of a file "@file", one per line. Errors: wrong usage.
void add_headers(const std::string& given, std::vector<std::string>& headers) {
  if (!given.starts_with('@')) {
    headers.push_back(given);
    return;
  }
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;
  constexpr std::string_view kWhat = "the file of headers";
  const std::string path = at_home(given.substr(1));
  if (path.empty()) {
    throw CLI::ValidationError("--http-header", "no file name follows the @; write @FILE");
  }
  try {
    const std::string text = read_text(path, kMaxBytes, kWhat);
    for (const std::string_view line : lines_of(text, kWhat, name_of_text(path))) {
      if (!trimmed(line).empty()) headers.emplace_back(trimmed(line));
    }
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& e) {
    throw CLI::ValidationError("--http-header", e.what());
  }
}

bool is_url(const std::string& text) {
  const std::string scheme = text.substr(0, text.find("://"));
  return !scheme.empty() && scheme.size() < text.size() &&
         std::all_of(scheme.begin(), scheme.end(), is_letter_or_digit);
}

/// Parses "https://old/data=s3://bucket/data": splits at the first = that a URL follows. For a
/// single URL, `from` is empty (see fetching_of()).
/// Errors: wrong usage.
Fetchers::Options::Moved parse_moved(const std::string& given) {
  for (std::size_t at = 0; (at = given.find('=', at)) != std::string::npos; ++at) {
    const std::string to = given.substr(at + 1);
    if (is_url(to) && at > 0) return {given.substr(0, at), to};
  }
  if (is_url(given)) return {"", given};
  throw CLI::ValidationError(
      "--url-base",
      "the value is neither two URLs, OLD=NEW, nor one URL; write e.g. "
      "https://old/data=s3://bucket/data, or NEW alone to replace the folder of all shards");
}

/// Returns the common folder of all remote shards, or of an index that was fetched. Errors: wrong
/// usage.
std::string base_of(const Index& index) {
  if (std::string base = index.summary().url_base; !base.empty()) return base;
  if (!index.origin().empty()) return index.origin().substr(0, index.origin().rfind('/') + 1);
  if (!urls_of(index).empty()) {
    throw CLI::ValidationError(
        "--url-base",
        "NEW alone does not fit, because the index has shards at several hosts; "
        "write OLD=NEW for each host");
  }
  throw CLI::ValidationError("--url-base", "the index " + in_quotes(index.path()) +
                                               " has no shard at a URL; leave out "
                                               "--url-base");
}

/// Returns a given option that affects only http and https, or "". Headers of a store (x-amz-,
/// x-goog-) also affect that store.
std::string options_of_http(const Fetchers::Options& fetching) {
  const bool has_headers = std::ranges::any_of(fetching.headers, [](const std::string& header) {
    const std::string name = to_lower(header);
    return !name.starts_with("x-amz-") && !name.starts_with("x-goog-");
  });
  if (has_headers) return "--http-header";
  if (!fetching.bearer_token_file.empty()) return "--bearer-token-file";
  return fetching.netrc_file.empty() ? "" : "--netrc-file";
}

/// Returns the scheme of the URL from which a shard is fetched, after --url-base.
std::string scheme_today(const std::string& url, const Fetchers::Options& fetching) {
  for (const Fetchers::Options::Moved& move : fetching.moved) {
    if (move.from.empty() || rebased_url(url, move.from, move.to)) return scheme_of(move.to);
  }
  return scheme_of(url);
}

/// Parses the value of --retry-time. Errors: wrong usage.
std::chrono::milliseconds parse_retry_time(const std::string& given) {
  if (const auto time = parse_duration(given)) return *time;
  throw CLI::ValidationError(
      "--retry-for",
      in_quotes(given) + " is not a time; write a number with a unit, e.g. 30s, 15m or 2h, or 0");
}

}  // namespace

void say_what_is_tried_again(const std::string& url, const std::string& reason,
                             std::chrono::milliseconds left) {
  say("waiting", detail::retry_note(url, reason, left));
}

std::vector<std::string> urls_of(const Index& index) {
  std::vector<std::string> urls;
  for (std::uint64_t shard = 0; shard < index.num_shards(); ++shard) {
    throw_if_interrupted();
    Index::Shard info = index.shard(shard);
    // In an index that was fetched, a URL may be stored relative to that of the index.
    std::string& url = is_remote_url(info.url) ? info.url : info.path;
    if (is_remote_url(url)) urls.push_back(std::move(url));
  }
  return urls;
}

std::vector<std::string> urls_of(const MixedDataset& data) {
  std::vector<std::string> urls;
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    std::ranges::move(urls_of(data.part(part).index()), std::back_inserter(urls));
  }
  return urls;
}

void check_servers(const Fetchers::Options& fetching,
                   const std::function<std::vector<std::string>()>& urls_of_shards, bool quiet) {
  const std::string unused = options_of_http(fetching);
  if (fetching.moved.empty() && unused.empty()) return;
  const std::vector<std::string> urls = urls_of_shards();
  for (const Fetchers::Options::Moved& move : fetching.moved) {
    const bool fits = move.from.empty() || std::ranges::any_of(urls, [&](const std::string& url) {
                        return rebased_url(url, move.from, move.to).has_value();
                      });
    if (fits) continue;
    throw CLI::ValidationError(
        "--url-base", "no shard's URL begins with OLD, " + in_quotes(redacted_url(move.from)) +
                          (urls.empty() ? "; leave out --url-base, because all shards are local"
                                        : "; correct OLD: the first shard is " +
                                              in_quotes(redacted_url(urls.front()))));
  }
  const bool is_unused =
      !unused.empty() && !urls.empty() && std::ranges::none_of(urls, [&](const std::string& url) {
        return scheme_today(url, fetching).starts_with("http");
      });
  if (is_unused && !quiet) {
    say("note", unused +
                    " has no effect, because no shard is fetched over http or https: the first "
                    "shard is " +
                    in_quotes(redacted_url(urls.front())));
  }
}

void check_servers(const Fetchers::Options& fetching, const Index& data, bool quiet) {
  check_servers(
      fetching, [&] { return urls_of(data); }, quiet);
}

void check_servers(const Fetchers::Options& fetching, const MixedDataset& data, bool quiet) {
  check_servers(
      fetching, [&] { return urls_of(data); }, quiet);
}

bool is_quiet(const CLI::App& command) {
  const CLI::Option* const quiet = command.get_option_no_throw("--quiet");
  return quiet != nullptr && quiet->count() > 0;
}

Fetchers::Options fetching_of(Fetchers::Options fetching, const std::string& index) {
  std::optional<std::string> base;
  for (Fetchers::Options::Moved& move : fetching.moved) {
    if (!move.from.empty()) continue;
    if (index.empty()) {
      throw CLI::ValidationError("--url-base",
                                 "NEW alone needs one existing index, not a SOURCE "
                                 "or --mix; write OLD=NEW");
    }
    if (!base) base = base_of(*Index::open(index));
    move.from = *base;
  }
  return fetching;
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
          "header 'Name: value' of every http and https request; s3:// gets only headers "
          "x-amz-*, gs:// only x-goog-*; @FILE reads one header per line of the file, so that "
          "process lists do not show it; may be given several times")
      ->type_name("HEADER")
      ->allow_extra_args(false)
      ->group(kFetchGroup);
  command
      .add_option(
          "--bearer-token-file", fetching.bearer_token_file,
          "file whose first line is the bearer token of https requests; the file is read again "
          "for each shard")
      ->type_name("FILE")
      ->group(kFetchGroup);
  command
      .add_flag("--bearer-token-loopback", fetching.bearer_token_loopback,
                "send the bearer token also over http without TLS to a server on this machine, "
                "where any user may listen")
      ->group(kFetchGroup);
  command
      .add_option("--netrc-file", fetching.netrc_file,
                  "file with users and passwords by host (default: $NETRC, or `~/.netrc`)")
      ->type_name("FILE")
      ->group(kFetchGroup);
  command
      .add_option("--ca-file", fetching.ca_file,
                  "PEM file of the certificate authorities to trust (default: those of this "
                  "machine)")
      ->type_name("FILE")
      ->group(kFetchGroup);
  command
      .add_option_function<std::vector<std::string>>(
          "--url-base",
          [&fetching](const std::vector<std::string>& all) {
            for (const std::string& given : all) fetching.moved.push_back(parse_moved(given));
          },
          "replace OLD, the beginning of URLs, by NEW, e.g. a mirror, or the same URL with a new "
          "signature (NEW?SIGNATURE); at least one shard must match OLD; NEW alone replaces the "
          "folder of all shards; may be given several times")
      ->type_name("[OLD=]NEW")
      ->allow_extra_args(false)
      ->group(kFetchGroup);
  command
      .add_option_function<std::string>(
          "--retry-for",
          [&fetching](const std::string& given) { fetching.retry_for = parse_retry_time(given); },
          "how long to retry a fetch after a temporary failure or wrong content, e.g. 30s, 15m "
          "or 2h; the time starts again when new bytes arrive; 0 means one attempt")
      ->type_name("DURATION")
      ->default_str("15m")
      ->group(kFetchGroup);
  command
      .add_option("--host-connections", fetching.max_connections_per_host,
                  "maximum number of transfers from one host at a time; 0 means no limit")
      ->type_name("N")
      ->default_str("0")
      ->transform(kWholeNumber)
      ->group(kFetchGroup);
  command
      .add_option(
          "--shard-connections", fetching.max_connections_per_shard,
          "maximum number of simultaneous requests for one shard of at least 32 MiB that is "
          "fetched into the cache; 1 means one request for the whole shard")
      ->type_name("N")
      ->default_str("4")
      ->transform(kWholeNumber)
      ->group(kFetchGroup);
  command
      .add_flag("--no-sign-request", fetching.s3.anonymous,
                "read s3:// URLs without credentials, as public buckets allow")
      ->group(kFetchGroup);
  command
      .add_flag("--allow-pipe", fetching.allow_pipe,
                "run the commands of pipe: URLs, without a shell")
      ->group(kFetchGroup);
}

}  // namespace shardwise::tools
