#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/fork.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/storage/fetcher.h"
#include "storage/az_fetcher.h"
#include "storage/file_fetcher.h"
#include "storage/gs_fetcher.h"
#include "storage/hf_fetcher.h"
#include "storage/http_fetcher.h"
#include "storage/pipe_fetcher.h"
#include "storage/retry_notes.h"
#include "storage/s3_fetcher.h"

namespace shardwise {
namespace {

[[noreturn]] void refuse_option(detail::Named option, std::string_view remedy) {
  throw InvalidOption("the option is not valid", spelled(option), remedy);
}

bool is_printable_line(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F; });
}

/// True for a header "Name: value" that does not change how the request itself is sent.
bool is_header(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name = to_lower(text.substr(0, colon));
  const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '_';
  });
  const bool is_ours = name == "host" || name == "range" || name == "if-range" ||
                       name == "if-match" || name == "accept-encoding" ||
                       name == "content-length" || name == "transfer-encoding";
  return is_name && !is_ours && is_printable_line(text) &&
         !trimmed(text.substr(std::min(colon + 1, text.size()))).empty();
}

/// Completes the options: files at "~", and the default of on_retry.
Fetchers::Options completed(Fetchers::Options options) {
  if (!options.on_retry) options.on_retry = detail::retry_hook();
  for (std::string* const file :
       {&options.ca_file, &options.bearer_token_file, &options.netrc_file}) {
    *file = at_home(std::move(*file));
  }
  return options;
}

/// A numeric option, its value, and the valid range. Times are in the option's unit.
struct NumberRange {
  detail::Named option;
  std::int64_t value;
  std::int64_t least;
  std::int64_t most;
  std::string_view remedy;
};

void check_numbers(const Fetchers::Options& options) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  constexpr std::int64_t kDay = milliseconds(hours(24)).count();
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  const NumberRange ranges[] = {
      {.option = "Fetchers::Options::connect_timeout",
       .value = options.connect_timeout.count(),
       .least = 1,
       .most = kDay,
       .remedy = "give 1 ms to 24 hours"},
      {.option = "Fetchers::Options::low_speed_time",
       .value = options.low_speed_time.count(),
       .least = 1,
       .most = kDay / 1000,
       .remedy = "give 1 second to 24 hours"},
      {.option = "Fetchers::Options::low_speed_bytes_per_second",
       .value = static_cast<std::int64_t>(options.low_speed_bytes_per_second),
       .least = 1,
       .most = 1'000'000'000,
       .remedy = "give 1 to 1,000,000,000"},
      {.option = "Fetchers::Options::retry_for",
       .value = options.retry_for.count(),
       .least = 0,
       .most = 30 * kDay,
       .remedy = "give 0 (one attempt) to 30 days"},
      {.option = "Fetchers::Options::max_retries",
       .value = options.max_retries,
       .least = 0,
       .most = kAny,
       .remedy = "give 0 or more"},
      {.option = "Fetchers::Options::max_redirects",
       .value = options.max_redirects,
       .least = 0,
       .most = kAny,
       .remedy = "give 0 or more"},
      {.option = "Fetchers::Options::retry_base_delay",
       .value = options.retry_base_delay.count(),
       .least = 0,
       .most = kDay,
       .remedy = "give 0 to 24 hours"},
      {.option = "Fetchers::Options::retry_max_delay",
       .value = options.retry_max_delay.count(),
       .least = 0,
       .most = kDay,
       .remedy = "give 0 to 24 hours"},
      {.option = "Fetchers::Options::max_connections_per_host",
       .value = options.max_connections_per_host,
       .least = 0,
       .most = kAny,
       .remedy = "give 0 (no limit) or more"},
      {.option = "Fetchers::Options::max_connections_per_shard",
       .value = options.max_connections_per_shard,
       .least = 1,
       .most = 64,
       .remedy = "give 1 to 64"},
  };
  for (const NumberRange& range : ranges) {
    if (range.value < range.least || range.value > range.most) {
      refuse_option(range.option, range.remedy);
    }
  }
}

void check_options(const Fetchers::Options& options) {
  check_numbers(options);
  for (const std::string* file :
       {&options.bearer_token_file, &options.netrc_file, &options.ca_file}) {
    static_cast<void>(c_path(*file));
  }
  if (!is_printable_line(options.user_agent)) {
    refuse_option("Fetchers::Options::user_agent", "give one printable line");
  }
  for (const std::string& header : options.headers) {
    if (!is_header(header)) {
      refuse_option("Fetchers::Options::headers",
                    "write each as 'Name: value', without Host and Range, which Shardwise sets");
    }
  }
  for (const Fetchers::Options::Moved& move : options.moved) {
    if (!is_remote_url(move.from) || scheme_of(move.to).empty()) {
      refuse_option("Fetchers::Options::moved",
                    "give two URLs, e.g. https://old/data and https://new/data");
    }
  }
}

}  // namespace

Fetcher::Sink::~Sink() = default;
Fetcher::~Fetcher() = default;

std::vector<std::string> Fetcher::list(const Request& request) {
  throw Unsupported(
      "URLs of this scheme cannot be listed", in_quotes(redacted_url(request.url)),
      "name the shards by a pattern, e.g. train-{000000..000146}.tar, or by a list (@list.txt)");
}

void Fetcher::fetch_parts(std::span<Part> parts) {
  for (Part& part : parts) {
    try {
      fetch(part.request, *part.sink);
      part.is_complete = true;
    } catch (const Cancelled&) {
      throw;
    } catch (const Error&) {  // the caller repeats the fetch
      return;
    }
  }
}

std::uint64_t Fetcher::max_gap_bytes() { return 0; }

struct Fetchers::Impl {
  explicit Impl(const Options& wanted) : options(wanted) {}

  std::shared_ptr<Fetcher> find(const std::string& scheme) const {
    const Lock lock(mutex);
    const auto found = by_scheme.find(scheme);
    return found == by_scheme.end() ? nullptr : found->second;
  }
  /// Returns the fetcher for the URL's scheme. Errors: as Fetchers::stat.
  std::shared_ptr<Fetcher> find_for(const std::string& url) const;
  /// Returns the URL of a file that moved; nullopt if it did not.
  std::optional<std::string> moved(const std::string& url) const;
  /// Returns the request with the file's current URL, after moves and the resolver.
  Fetcher::Request located(const Fetcher::Request& request) const;

  const Options options;
  mutable Mutex mutex;
  std::map<std::string, std::shared_ptr<Fetcher>> by_scheme SHARDWISE_GUARDED_BY(mutex);
};

std::shared_ptr<Fetcher> Fetchers::Impl::find_for(const std::string& url) const {
  const std::string scheme = is_command_url(url) ? "pipe" : scheme_of(url);
  if (scheme.empty()) {
    throw InvalidArgument("the text is not a URL", in_quotes(url),
                          "write scheme://host/path; local files are not fetched");
  }
  if (auto fetcher = find(scheme)) return fetcher;
  if (scheme == "pipe") {
    throw Unsupported(
        "a pipe: URL is a command, and commands are not run", in_quotes(redacted_url(url)),
        "if you wrote the URL yourself, set " + spelled("Fetchers::Options::allow_pipe"));
  }
  throw Unsupported("no fetcher is registered for the scheme " + in_quotes(scheme),
                    in_quotes(redacted_url(url)),
                    "use http, https, s3, gs, az, hf or file" +
                        if_there(", or add a fetcher (", "Fetchers::add", ")"));
}

std::optional<std::string> Fetchers::Impl::moved(const std::string& url) const {
  for (const Options::Moved& move : options.moved) {
    if (auto rebased = rebased_url(url, move.from, move.to)) return rebased;
  }
  return std::nullopt;
}

Fetcher::Request Fetchers::Impl::located(const Fetcher::Request& request) const {
  if (options.moved.empty() && !options.resolve) return request;
  Fetcher::Request today = request;
  std::string url = unsigned_url(request.url);  // without an old signature
  if (auto there = moved(url)) url = today.url = *std::move(there);
  if (!options.resolve) return today;
  today.url = options.resolve(url);
  if (scheme_of(today.url).empty() &&
      !is_command_url(today.url)) {  // the URL may contain a signature, so it is not quoted
    throw InvalidArgument(
        "the resolver returned no URL", "for " + in_quotes(redacted_url(url)),
        "return an absolute URL, e.g. https://host/data/0.tar or file:///data/0.tar");
  }
  return today;
}

Fetchers::Fetchers() : Fetchers(Options{}) {}

Fetchers::Fetchers(const Options& given) : impl_(std::make_shared<Impl>(completed(given))) {
  const Options& options = impl_->options;
  check_options(options);
  const std::shared_ptr<Fetcher> http = make_http_fetcher(options);
  impl_->by_scheme = {{"http", http},
                      {"https", http},
                      {"s3", make_s3_fetcher(options)},
                      {"gs", make_gs_fetcher(options)},
                      {"az", make_az_fetcher(options)},
                      {"hf", make_hf_fetcher(options)},
                      {"file", make_file_fetcher()}};
  if (options.allow_pipe) impl_->by_scheme["pipe"] = make_pipe_fetcher();
}

Fetchers::~Fetchers() = default;
Fetchers::Fetchers(const Fetchers&) noexcept = default;
Fetchers& Fetchers::operator=(const Fetchers&) noexcept = default;

void Fetchers::add(const std::string& scheme, std::shared_ptr<Fetcher> fetcher) {
  if (scheme.empty() || scheme_of(scheme + ":") != scheme || fetcher == nullptr) {
    throw InvalidArgument("cannot add a fetcher", "scheme " + in_quotes(scheme),
                          "give a scheme in lower case, e.g. \"gs\", and a fetcher");
  }
  const Lock lock(impl_->mutex);
  impl_->by_scheme[scheme] = std::move(fetcher);
}

const Fetchers::Options& Fetchers::options() const noexcept { return impl_->options; }

bool Fetchers::brings(const std::string& scheme) const { return impl_->find(scheme) != nullptr; }

Fetcher::Stat Fetchers::stat(const Fetcher::Request& request) const {
  const Fetcher::Request today = impl_->located(request);
  return impl_->find_for(today.url)->stat(today);
}

Fetcher::Stat Fetchers::fetch(const Fetcher::Request& request, Fetcher::Sink& sink) const {
  const Fetcher::Request today = impl_->located(request);
  return impl_->find_for(today.url)->fetch(today, sink);
}

void Fetchers::fetch_parts(std::span<Fetcher::Part> parts) const {
  // Several fetchers are unusual: shards are usually in one store.
  std::map<std::shared_ptr<Fetcher>, std::vector<std::size_t>> by_fetcher;
  std::vector<Fetcher::Request> asked(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    try {
      asked[i] = impl_->located(parts[i].request);
      by_fetcher[impl_->find_for(asked[i].url)].push_back(i);
    } catch (const Cancelled&) {
      throw;
    } catch (const Error&) {  // fetch() throws the error
    }
  }
  for (const auto& [fetcher, numbers] : by_fetcher) {
    std::vector<Fetcher::Part> mine;
    mine.reserve(numbers.size());
    for (const std::size_t i : numbers) {
      mine.push_back({.request = std::move(asked[i]), .sink = parts[i].sink});
    }
    fetcher->fetch_parts(mine);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      parts[numbers[i]].is_complete = mine[i].is_complete;
    }
  }
}

std::uint64_t Fetchers::max_gap_bytes(const std::string& url) const {
  const std::string moved = impl_->moved(url).value_or(url);
  const auto fetcher = impl_->find(scheme_of(moved));
  return fetcher ? fetcher->max_gap_bytes() : 0;
}

std::vector<std::string> Fetchers::list(const Fetcher::Request& request) const {
  for (const Options::Moved& move : impl_->options.moved) {
    const auto today = rebased_url(request.url, move.from, move.to);
    if (!today) continue;
    Fetcher::Request moved = request;
    moved.url = *today;
    std::vector<std::string> urls = impl_->find_for(*today)->list(moved);
    for (std::string& url : urls) url = rebased_url(url, move.to, move.from).value_or(url);
    return urls;
  }
  return impl_->find_for(request.url)->list(request);
}

}  // namespace shardwise
