#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise {

/// Brings files of one or several URL schemes.
///
/// Threads: all calls are safe concurrently.
/// Errors of stat and fetch:
///   FetchError       the source refused, failed, lied about lengths, or went silent, for as long
///                    as the options allow; what the sink has by then is not the file.
///   NotFound         the server says that there is no such file (404, 410).
///   StaleIndex       the file is not the one that `validator` stands for.
///   Cancelled        `cancel` said so.
///   InvalidArgument  a malformed URL or range.
///   Unsupported      no fetcher is registered for the scheme; or a command, without
///                    Fetchers::Options::allow_pipe.
/// The texts name the URL without user, password and the values of its query, and no other secret.
class SHARDWISE_EXPORT Fetcher {
 public:
  /// A file as its source describes it.
  struct Stat {
    std::optional<std::uint64_t> size_bytes = {};  ///< nothing: it does not say
    /// Changes when the file does: what a redirect says of the file behind it (X-Linked-Etag); else
    /// a strong ETag; else Last-Modified as sent, with a weak ETag before it where there is one;
    /// empty: none of these.
    std::string validator = {};
    bool has_ranges = false;  ///< parts of it can be asked for
  };

  /// A half-open range of a file's bytes.
  struct Range {
    std::uint64_t begin = 0;
    std::optional<std::uint64_t> end = {};  ///< nothing: to the end of the file
  };

  /// Takes what is fetched, in order. Called on the thread that fetches.
  class SHARDWISE_EXPORT Sink {
   public:
    virtual ~Sink();
    /// An exception from here ends the fetch, and reaches the caller of fetch().
    virtual void write(std::string_view bytes) = 0;
    /// Drops all that was written, which comes again from the start. Returns false if the sink
    /// cannot do that; the fetch then fails.
    virtual bool restart() = 0;
  };

  /// One request: what to fetch, and what to hold to.
  struct Request {
    std::string url;
    Range range = {};
    /// If not empty: the file must (still) have this validator, or else no byte of it is delivered
    /// and the call throws StaleIndex. A strong ETag is sent (If-Match); others are compared with
    /// the answer's.
    std::string validator = {};
    /// Stops the fetch within about a tenth of a second, with Cancelled.
    CancelToken cancel = {};
    /// In place of Fetchers::Options::retry_for, if it is less.
    std::optional<std::chrono::milliseconds> retry_for = {};
  };

  virtual ~Fetcher();
  /// Asks for the file's size and validator without its bytes. The range is not looked at.
  virtual Stat stat(const Request& request) = 0;
  /// Gives every byte of the range to `sink`, each once (but for restart), and returns when all
  /// came: never fewer, never more. A range that goes beyond the file's end is a FetchError.
  virtual Stat fetch(const Request& request, Sink& sink) = 0;
  /// The URLs of all files whose URL begins with `request.url`, bytewise sorted. Only the URL and
  /// `cancel` are looked at.
  /// Errors: as fetch; Unsupported, also where this is not overridden: the scheme cannot list.
  virtual std::vector<std::string> list(const Request& request);
};

/// The fetchers by scheme, one object for a program:
///
///   http, https  libcurl, connections kept alive. A transfer that is cut goes on where it was, by
///                Range and If-Range, if the server has ranges and a validator; else it starts
///                again, if the sink can. The environment's proxies are used (http_proxy, ...).
///   s3           the same, signed (AWS signature version 4); see S3Options. Needs libcurl 7.88.
///   gs, az, hf   the same, with credentials of the environment: Google Cloud Storage, Azure Blob
///                Storage (az://container/blob), the Hugging Face Hub
///                (hf://datasets/owner/name/path, hf://buckets/owner/name/path); docs/remote.md
///                says which.
///   file         file:///path, for tests and for files that a cache expands.
///   pipe         if allowed: the command's standard output. No shell: words are split at blanks;
///                '...' and "..." hold a word together, a backslash takes the next character as it
///                is (in '...' it is nothing special). It has no low-speed limit and no retries.
///
/// Copies share everything.
/// Threads: internally synchronised; one transfer a calling thread.
/// Processes: usable in a forked child, which opens connections of its own. No SIGPIPE is raised.
class SHARDWISE_EXPORT Fetchers {
 public:
  /// Where and as whom s3://bucket/key is read. What is empty comes from the environment (the AWS_*
  /// names below), and then from the profile in ~/.aws/config and ~/.aws/credentials (or the files
  /// that AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE name). The keys are those of the first
  /// that has some:
  ///
  ///   1. these options; 2. the environment, unless `profile` is given;
  ///   3. a web identity (AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN), unless `profile` is given;
  ///   4. the profile: a role to assume (role_arn, with source_profile, credential_source or
  ///      web_identity_token_file), SSO (the token that `aws sso login` left), keys, or
  ///      credential_process, a command that is run without a shell;
  ///   5. the service for containers (AWS_CONTAINER_CREDENTIALS_*); 6. that of EC2 (IMDSv2, unless
  ///      AWS_EC2_METADATA_DISABLED is "true").
  ///
  /// Keys that a service gave are kept, and asked for anew before they expire; all else is looked
  /// up for each fetch. Without any keys requests are not signed: public buckets can be read.
  struct S3Options {
    /// "https://minio.example:9000"; AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's services,
    /// its endpoint_url. Empty: AWS's own.
    std::string endpoint = {};
    /// AWS_REGION, AWS_DEFAULT_REGION; at last "us-east-1". If the server names another region for
    /// a bucket, that is asked. A server of your own may call its region as it likes: "RegionOne".
    std::string region = {};
    /// The bucket in the path (true) or in the host name (false). Nothing: as the profile's
    /// addressing_style says; else in the path where the endpoint is not AWS's own or the bucket's
    /// name does not fit a certificate for host names.
    std::optional<bool> path_style = {};
    std::string access_key_id = {};      ///< AWS_ACCESS_KEY_ID
    std::string secret_access_key = {};  ///< AWS_SECRET_ACCESS_KEY
    std::string session_token = {};      ///< AWS_SESSION_TOKEN
    /// A profile to take before the keys in the environment; AWS_PROFILE is looked at after them.
    std::string profile = {};
    bool anonymous = false;  ///< no keys are looked for, and nothing is signed
  };

  /// How patient a fetch is, and what it may do.
  struct Options {
    std::chrono::milliseconds connect_timeout{10'000};
    /// A transfer with fewer bytes a second than this, for this long, is cut and tried again. The
    /// rate is an average over some seconds, in which the time that the sink takes counts too.
    std::uint64_t low_speed_bytes_per_second = 1024;
    std::chrono::seconds low_speed_time{30};

    /// How long an outage may last, at most 30 days. For so long after a failure that may pass, a
    /// fetch is tried again: the server answered 408, 429 or 5xx (but 501 and 505), its name was
    /// not found, or the connection was refused, reset, cut or too slow. New bytes start the time
    /// anew, unless they come slower than `low_speed_bytes_per_second`. 0: one attempt.
    ///
    /// What came wrong, as a proxy's page does, is fetched again under the same rule, until it
    /// comes wrong in the same way twice: then the source has nothing else. A host that has never
    /// answered is given 30 seconds at most where its name is not found, or it does not speak TLS:
    /// so a misspelt URL fails soon.
    std::chrono::milliseconds retry_for{std::chrono::minutes(15)};
    /// Attempts after one that delivered no new byte, at most, however much of the time is left.
    int max_retries = std::numeric_limits<int>::max();
    /// Retry n waits for a random time, evenly from [0, min(max, base * 2^n)], or for the server's
    /// Retry-After if that is longer, but never for longer than what is left of `retry_for`.
    std::chrono::milliseconds retry_base_delay{250};
    std::chrono::milliseconds retry_max_delay{20'000};
    /// Called once an outage of a host, when a fetch has failed some times: with its URL without
    /// secrets, the reason, and how long it is still tried again. On the threads that fetch.
    std::function<void(const std::string& url, const std::string& reason,
                       std::chrono::milliseconds left)>
        on_retry = nullptr;

    /// Redirects go to http and https only, never from https to http; credentials do not go along
    /// to another host, port or scheme.
    int max_redirects = 5;
    std::string user_agent = {};  ///< empty: "shardwise/<version>"
    /// The authorities to trust, in PEM, and no others. Empty: those that the environment names,
    /// and no others (CURL_CA_BUNDLE; else SSL_CERT_FILE and SSL_CERT_DIR), or this machine's.
    std::string ca_file = {};

    /// "Name: value": headers of every http and https request, as a token or the name of a tenant.
    /// As credentials they do not go along with a redirect to another host, port or scheme. But
    /// every host that a URL names gets them, also one that a descriptor, a list or an index names:
    /// give them only where you trust the authors of these. s3:// sends and signs those that begin
    /// with x-amz-, and gs:// sends those that begin with x-goog-; the other stores get none.
    std::vector<std::string> headers = {};
    /// A file whose first line is a token, which https requests then carry ("Authorization: Bearer
    /// ..."). It is read for each file that is fetched, so a renewed token is found. It is not sent
    /// over http: the request is InvalidArgument. Over https every host that a URL names gets it,
    /// as it gets `headers`.
    std::string bearer_token_file = {};
    /// The token is sent over http, too, to this machine ("localhost", "127.0.0.1", "[::1]"). Any
    /// user of this machine may listen there.
    bool bearer_token_loopback = false;
    /// Users and passwords by host, as curl and wget read them, for http and https URLs without a
    /// user. Empty: the file that the environment names (NETRC), or ~/.netrc, if it is there. It is
    /// not looked at where a header or a token says who asks.
    std::string netrc_file = {};
    /// Transfers that talk to one host at a time; others wait. 0: as many as there are.
    int max_connections_per_host = 0;
    /// Requests at a time for one shard of 32 MiB or more that goes into a cache, if its server
    /// gives parts of it and says its version (an ETag or Last-Modified). 1: one, for the whole.
    /// Never more than may talk to one host.
    int max_connections_per_shard = 4;
    S3Options s3 = {};
    /// Where files are today: a URL that begins with `from` is fetched from `to` and what follows
    /// `from`; the query of `to`, say a signature, comes last. The first that fits is taken. What
    /// lies below such a URL is listed below `to`, and given back as below `from`.
    struct Moved {
      std::string from, to;
    };
    std::vector<Moved> moved = {};
    /// Gives the URL from which a URL is fetched, say one that is signed anew; after `moved`.
    /// Called on the threads that fetch, before each fetch. What it throws reaches the caller. It
    /// is not asked where URLs are listed.
    std::function<std::string(const std::string& url)> resolve = nullptr;
    /// Lets fetch() run `pipe:command`. Only for URLs that you wrote yourself: whoever can choose
    /// the URL can execute arbitrary commands.
    bool allow_pipe = false;
  };

  /// Errors: InvalidArgument for options that are not valid.
  explicit Fetchers(const Options& options);
  Fetchers();
  ~Fetchers();
  Fetchers(const Fetchers&) noexcept;
  Fetchers& operator=(const Fetchers&) noexcept;

  /// Registers `fetcher` for URLs of this scheme, in place of the one that was registered.
  /// Errors: InvalidArgument if `scheme` is not valid (valid is "gs"), or `fetcher` is null.
  void add(const std::string& scheme, std::shared_ptr<Fetcher> fetcher);

  /// As they were given. Valid while this object or a copy of it lives.
  [[nodiscard]] const Options& options() const noexcept;

  /// True if a fetcher is registered for this scheme. For "pipe", true if pipes are allowed.
  [[nodiscard]] bool brings(const std::string& scheme) const;

  /// As Fetcher's. A plain path is InvalidArgument: it is read in place, not fetched.
  [[nodiscard]] Fetcher::Stat stat(const Fetcher::Request& request) const;
  Fetcher::Stat fetch(const Fetcher::Request& request, Fetcher::Sink& sink) const;
  [[nodiscard]] std::vector<std::string> list(const Fetcher::Request& request) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardwise
