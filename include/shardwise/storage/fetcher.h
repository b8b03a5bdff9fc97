#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise {

/// Fetches files of one or several URL schemes.
///
/// Threads: all calls are safe concurrently.
/// Errors of stat and fetch:
///   FetchError       the source refused, failed, stated wrong lengths or stopped responding, for
///                    as long as the options allow; what the sink received is not the file
///   NotFound         the server says that there is no such file (404, 410)
///   StaleIndex       the file does not have the version `validator`
///   Cancelled        `cancel` is cancelled
///   InvalidArgument  the URL or range is malformed
///   Unsupported      no fetcher is registered for the scheme, or the URL is a command and
///                    Fetchers::Options::allow_pipe is false
/// Error texts contain no secrets: no user, password or values of the query of a URL.
class SHARDWISE_EXPORT Fetcher {
 public:
  /// Properties of a file, as stated by its source.
  struct Stat {
    std::optional<std::uint64_t> size_bytes = {};  ///< empty if the source does not say
    /// A text that changes when the file changes; empty if the source states none. It is the first
    /// of these that the source states: X-Linked-Etag of a redirect; a strong ETag; Last-Modified,
    /// preceded by the weak ETag if there is one.
    std::string validator = {};
    bool has_ranges = false;  ///< true if byte ranges can be requested
  };

  /// A half-open range of a file's bytes.
  struct Range {
    std::uint64_t begin = 0;
    std::optional<std::uint64_t> end = {};  ///< empty means the end of the file
  };

  /// Receives the fetched bytes in order. Threads: called on the fetching thread.
  class SHARDWISE_EXPORT Sink {
   public:
    virtual ~Sink();
    /// Receives bytes. An exception ends the fetch, and is thrown by fetch().
    virtual void write(std::string_view bytes) = 0;
    /// Discards everything written so far, because the fetch starts again. Returns false if the
    /// sink cannot discard it; the fetch then fails.
    virtual bool restart() = 0;
  };

  /// One request: the bytes to fetch, and conditions.
  struct Request {
    std::string url;
    Range range = {};
    /// If not empty, the file must still have this validator. Otherwise fetch() throws StaleIndex
    /// and delivers no byte. A strong ETag is sent to the server (If-Match). Any other validator is
    /// compared with the response.
    std::string validator = {};
    /// Makes the fetch throw Cancelled within about a tenth of a second.
    CancelToken cancel = {};
    /// Overrides Fetchers::Options::retry_for if it is smaller.
    std::optional<std::chrono::milliseconds> retry_for = {};
  };

  virtual ~Fetcher();
  /// Requests size and validator of the file without its content. The range is ignored.
  virtual Stat stat(const Request& request) = 0;
  /// Passes every byte of the range to `sink`, exactly once unless the sink is restarted, and
  /// returns after the last byte. A range that ends beyond the end of the file is a FetchError.
  virtual Stat fetch(const Request& request, Sink& sink) = 0;

  /// One of the ranges that fetch_parts() fetches.
  struct Part {
    Request request;           ///< its range has an end
    Sink* sink = nullptr;      ///< receives the bytes
    bool is_complete = false;  ///< set by fetch_parts() if all bytes have arrived
  };
  /// Fetches ranges of one or several files, several at a time if the source can. Each range gets
  /// one attempt. The caller repeats parts that are not complete with fetch(), which retries and
  /// reports errors. The sink of such a part may have received its first bytes.
  /// The default implementation calls fetch() for one part after another, until a call fails.
  /// Errors: Cancelled; errors of the sinks.
  virtual void fetch_parts(std::span<Part> parts);
  /// Returns how many bytes the source sends in the time that another request takes. Two ranges
  /// with a smaller gap are fetched faster as one. 0 means unknown; this is the default.
  virtual std::uint64_t max_gap_bytes();
  /// Returns the URLs of all files that start with `request.url`, sorted bytewise. Only `url` and
  /// `cancel` of the request are used.
  /// Errors: those of fetch(). InvalidArgument if there are more than 10 million files.
  ///   Unsupported if the scheme cannot list. The default implementation always throws Unsupported.
  virtual std::vector<std::string> list(const Request& request);
};

/// The fetchers of all URL schemes. A program needs only one object:
///
///   http, https  libcurl with persistent connections. An interrupted transfer continues by Range
///                and If-Range if the server has ranges and a validator. Otherwise it starts again,
///                if the sink can. Proxies come from the environment (http_proxy, ...).
///   s3           http with signed requests (AWS signature version 4), see S3Options; needs
///                libcurl 7.88
///   gs, az, hf   http with credentials from the environment: Google Cloud Storage, Azure Blob
///                Storage (az://container/blob), Hugging Face Hub (hf://datasets/owner/name/path,
///                hf://buckets/owner/name/path); docs/remote.md lists the credentials
///   file         file:///path, for tests, and for files that a cache expands
///   pipe         if allowed, the standard output of a command. No shell is used: words are split
///                at blanks; '...' and "..." quote; a backslash escapes the next character, except
///                in '...'. There is no low-speed limit, and no retries.
///
/// Copies share all state.
/// Threads: internally synchronised. Each transfer runs on the thread that calls.
/// Processes: usable in a forked child, which opens its own connections. No SIGPIPE is raised.
class SHARDWISE_EXPORT Fetchers {
 public:
  /// Access to s3://bucket/key. The value of an empty option is taken from the environment (the
  /// AWS_* variables below), or else from the profile. Profiles are read from ~/.aws/config and
  /// ~/.aws/credentials, or from AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE. Keys are taken
  /// from the first of these sources that has keys:
  ///
  ///     1. these options
  ///     2. the environment, unless `profile` is given
  ///     3. a web identity (AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN), unless `profile` is
  ///        given
  ///     4. the profile: a role to assume (role_arn, with source_profile, credential_source or
  ///        web_identity_token_file), SSO (the token of `aws sso login`), keys, or
  ///        credential_process, a command that is run without a shell
  ///     5. the service for containers (AWS_CONTAINER_CREDENTIALS_*)
  ///     6. the service of EC2 (IMDSv2), unless AWS_EC2_METADATA_DISABLED is "true"
  ///
  /// Keys from a service are cached and renewed before they expire. All other settings are read
  /// again for each fetch. Without keys, requests are not signed; public buckets accept such
  /// requests.
  struct S3Options {
    /// E.g. "https://minio.example:9000". Default, the first that is set: AWS_ENDPOINT_URL_S3,
    /// AWS_ENDPOINT_URL, the profile's `services`, the profile's endpoint_url, AWS itself.
    std::string endpoint = {};
    /// Default, the first that is set: AWS_REGION, AWS_DEFAULT_REGION, the profile's region,
    /// "us-east-1". If the server names another region for a bucket, that region is used. Private
    /// servers may use any name, e.g. "RegionOne".
    std::string region = {};
    /// True puts the bucket in the path of the URL, false in the host name. If empty, the profile's
    /// addressing_style decides. If that is not set, the bucket is in the path if the endpoint is
    /// not AWS, or if AWS's certificate would not match a host name with this bucket.
    std::optional<bool> path_style = {};
    std::string access_key_id = {};      ///< default: AWS_ACCESS_KEY_ID
    std::string secret_access_key = {};  ///< default: AWS_SECRET_ACCESS_KEY
    std::string session_token = {};      ///< default: AWS_SESSION_TOKEN
    /// A profile whose keys take precedence over keys in the environment. Keys in the environment
    /// take precedence over AWS_PROFILE.
    std::string profile = {};
    bool anonymous = false;  ///< use no keys, and sign no request
  };

  /// Timeouts, retries, credentials and limits of fetches.
  struct Options {
    std::chrono::milliseconds connect_timeout{10'000};
    /// A transfer that is slower than this for `low_speed_time` is aborted and retried. The rate is
    /// an average over some seconds. Time that the sink takes counts, too.
    std::uint64_t low_speed_bytes_per_second = 1024;
    std::chrono::seconds low_speed_time{30};

    /// How long a fetch is retried after a transient failure, at most 30 days. 0 means a single
    /// attempt. Transient failures are HTTP 408, 429 and 5xx (except 501 and 505), unknown host
    /// names, and connections that are refused, reset, cut or too slow. When new bytes arrive, the
    /// time starts again, unless they are slower than `low_speed_bytes_per_second`.
    ///
    /// Wrong content, e.g. a proxy's error page, is also retried, until the same wrong content
    /// arrives twice. A host that has never answered is retried for at most 30 seconds if its name
    /// is unknown or it does not speak TLS. A misspelt URL therefore fails soon.
    std::chrono::milliseconds retry_for{std::chrono::minutes(15)};
    /// The largest number of consecutive retries that deliver no new byte. `retry_for` applies,
    /// too.
    int max_retries = std::numeric_limits<int>::max();
    /// Retry n waits for a random time, uniform in [0, min(max, base * 2^n)], or for the server's
    /// Retry-After if that is longer. It never waits beyond the end of `retry_for`.
    std::chrono::milliseconds retry_base_delay{250};
    std::chrono::milliseconds retry_max_delay{20'000};
    /// Called once per outage of a host, after several failures of a fetch. `url` has no secrets.
    /// `left` is the remaining time for retries.
    /// Threads: called on the fetching threads.
    std::function<void(const std::string& url, const std::string& reason,
                       std::chrono::milliseconds left)>
        on_retry = nullptr;

    /// The largest number of redirects of a request. Redirects to other schemes than http and
    /// https, or from https to http, are refused. Credentials are not forwarded to another host,
    /// port or scheme.
    int max_redirects = 5;
    std::string user_agent = {};  ///< default: "shardwise/<version>"
    /// A PEM file with the only certificate authorities to trust. Default: CURL_CA_BUNDLE, else
    /// SSL_CERT_FILE and SSL_CERT_DIR, else this machine's authorities.
    std::string ca_file = {};

    /// Headers "Name: value" for every http and https request, e.g. a token or the name of a
    /// tenant. For s3 URLs only headers x-amz-* are sent and signed, for gs URLs only x-goog-*. For
    /// az and hf URLs no header is sent.
    /// Security: headers are not forwarded to another host, port or scheme. But every host that a
    ///   URL names receives them, even if the URL comes from a descriptor, a list or an index. Use
    ///   them only if you trust the authors of these files.
    std::vector<std::string> headers = {};
    /// A file whose first line is a bearer token for https requests ("Authorization: Bearer ...").
    /// The file is read again for each fetch, so a renewed token is used. A request over http
    /// throws InvalidArgument.
    /// Security: every host that an https URL names receives the token, like `headers`.
    std::string bearer_token_file = {};
    /// Send the token to this machine ("localhost", "127.0.0.1", "[::1]") even over http.
    /// Security: any user of this machine can listen on a port and receive the token.
    bool bearer_token_loopback = false;
    /// A netrc file with users and passwords by host, as for curl and wget. It is used for http and
    /// https URLs without a user, unless a header or a bearer token already authenticates. Default:
    /// the file named by NETRC, else ~/.netrc if it exists.
    std::string netrc_file = {};
    /// Largest number of concurrent transfers per host; further transfers wait. 0 means unlimited.
    int max_connections_per_host = 0;
    /// Number of concurrent requests for parts of one shard that is fetched into a cache. They are
    /// used for shards of at least 32 MiB, if the server supports ranges and states a version (ETag
    /// or Last-Modified). 1 means one request for the whole shard. The limit
    /// max_connections_per_host applies, too.
    int max_connections_per_shard = 4;
    S3Options s3 = {};
    /// A mapping of URL prefixes. A URL that begins with `from` is fetched from `to` plus the rest
    /// of the URL. The query of `to`, e.g. a signature, is appended. The first matching entry
    /// applies. Listing such a URL lists below `to`, and returns URLs below `from`.
    struct Moved {
      std::string from, to;
    };
    std::vector<Moved> moved = {};
    /// Maps a URL to the URL that is fetched instead, e.g. a newly signed one. Called before each
    /// fetch, with the result of `moved`; not called for listings. The caller of the fetch gets its
    /// exceptions.
    /// Threads: called on the fetching threads.
    std::function<std::string(const std::string& url)> resolve = nullptr;
    /// Allow fetch() to run `pipe:command`.
    /// Security: a person who can choose the URL can run arbitrary commands. Allow it only for URLs
    ///   that you wrote yourself.
    bool allow_pipe = false;
  };

  /// Errors: InvalidArgument for invalid options.
  explicit Fetchers(const Options& options);
  Fetchers();
  ~Fetchers();
  Fetchers(const Fetchers&) noexcept;
  Fetchers& operator=(const Fetchers&) noexcept;

  /// Registers `fetcher` for URLs of this scheme. It replaces the earlier fetcher of the scheme.
  /// Errors: InvalidArgument if `scheme` is malformed (write "gs", not "gs://"), or `fetcher` is
  ///   null.
  void add(const std::string& scheme, std::shared_ptr<Fetcher> fetcher);

  /// The options passed to the constructor. Valid while this object or a copy of it lives.
  [[nodiscard]] const Options& options() const noexcept;

  /// True if a fetcher is registered for this scheme. For "pipe", true if allow_pipe is set.
  [[nodiscard]] bool brings(const std::string& scheme) const;

  /// These work as in Fetcher. A plain path is InvalidArgument, because local files are read in
  /// place.
  [[nodiscard]] Fetcher::Stat stat(const Fetcher::Request& request) const;
  Fetcher::Stat fetch(const Fetcher::Request& request, Fetcher::Sink& sink) const;
  /// Parts without a fetcher, or with a malformed URL, are left incomplete.
  void fetch_parts(std::span<Fetcher::Part> parts) const;
  [[nodiscard]] std::uint64_t max_gap_bytes(const std::string& url) const;
  [[nodiscard]] std::vector<std::string> list(const Fetcher::Request& request) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardwise
