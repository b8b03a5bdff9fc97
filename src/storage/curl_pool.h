#pragma once

#include <curl/curl.h>
#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fork.h"
#include "shardwise/base/cancel.h"

namespace shardwise {

/// Interval between checks for cancellation.
inline constexpr std::chrono::milliseconds kCancelInterval{50};

struct CurlDeleter {
  void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
};
using CurlEasy = std::unique_ptr<CURL, CurlDeleter>;

/// A libcurl multi handle: performs transfers on the calling thread, and keeps their connections
/// open. curl_easy_perform() is not used, because it checks for cancellation only once a second.
/// Threads: one at a time.
class CurlMulti {
 public:
  /// Errors: std::bad_alloc.
  CurlMulti();
  /// Keeps up to `max` connections open. By default libcurl closes most of them when their
  /// transfers are removed.
  void keep_connections(long max) noexcept;

  struct Ended {
    CURL* easy = nullptr;
    CURLcode code = CURLE_OK;
    /// True if certainly no other transfer has taken over this transfer's connection.
    bool has_idle_connection = false;
  };
  /// Starts a transfer. Returns false if libcurl cannot start it.
  /// REQUIRES: `easy` outlives the transfer, which ends with remove().
  bool add(CURL* easy) noexcept;
  /// Performs the transfers until one has ended, or `timeout` has passed, or libcurl fails. Returns
  /// the transfer that ended. Information about it can be read until remove() is called.
  std::optional<Ended> wait(std::chrono::milliseconds timeout) noexcept;
  /// Returns another transfer that ended during the last wait().
  std::optional<Ended> next_ended() noexcept;
  void remove(CURL* easy) noexcept;
  /// True if libcurl failed. No transfer will end any more.
  bool has_failed() const noexcept { return has_failed_; }

 private:
  struct Deleter {
    void operator()(CURLM* handle) const noexcept { curl_multi_cleanup(handle); }
  };
  std::unique_ptr<CURLM, Deleter> multi_;
  bool has_failed_ = false;
  bool has_new_ = false;    // a transfer was added, and has no connection yet
  bool may_reuse_ = false;  // the last wait() gave a transfer a connection
};

/// A libcurl easy handle, and the multi handle that performs its transfers.
class CurlHandle {
 public:
  /// Errors: std::bad_alloc.
  CurlHandle();
  CURL* get() const noexcept { return easy_.get(); }
  /// Performs one transfer. Returns CURLE_ABORTED_BY_CALLBACK soon after `cancel` is cancelled.
  /// Information about the transfer can be read until finish() is called.
  CURLcode perform(const CancelToken& cancel) noexcept;
  void finish() noexcept { multi_.remove(easy_.get()); }

 private:
  CurlMulti multi_;  // first member, because it must outlive the easy handle
  CurlEasy easy_;
};

/// A list of extra request headers.
class CurlHeaders {
 public:
  CurlHeaders() = default;
  ~CurlHeaders() { curl_slist_free_all(list_); }
  CurlHeaders(const CurlHeaders&) = delete;
  CurlHeaders& operator=(const CurlHeaders&) = delete;
  void add(const std::string& line);
  curl_slist* get() const noexcept { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

/// A pool of idle libcurl handles with open connections, reused by later transfers.
///
/// Threads: internally synchronised.
/// Processes: a forked child starts with an empty pool. It never uses its parent's handles, because
///   it would write to the parent's connections.
class CurlPool {
 public:
  CurlPool();
  ~CurlPool();
  CurlPool(const CurlPool&) = delete;
  CurlPool& operator=(const CurlPool&) = delete;

  /// Returns a handle whose options are reset to the defaults.
  CurlHandle take();
  void give_back(CurlHandle handle) noexcept;
  /// Returns a handle for several concurrent transfers.
  CurlMulti take_multi();
  void give_back(CurlMulti multi) noexcept;

 private:
  struct Idle {
    explicit Idle(pid_t process) : pid(process) {}
    const pid_t pid;
    LongMutex mutex;  // LongMutex, because closing a connection may take long
    std::vector<CurlHandle> handles SHARDWISE_GUARDED_BY(mutex);
    std::vector<CurlMulti> multis SHARDWISE_GUARDED_BY(mutex);
  };
  Idle& mine();
  template <class Handle>
  Handle take_from(std::vector<Handle> Idle::*idle);
  template <class Handle>
  void give_to(std::vector<Handle> Idle::*idle, std::size_t max, Handle handle) noexcept;

  std::atomic<Idle*> idle_;
};

/// Blocks SIGPIPE for the calling thread during its lifetime, because TLS libraries write to closed
/// connections.
class [[nodiscard]] SigpipeGuard {
 public:
  SigpipeGuard() noexcept;
  ~SigpipeGuard();
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  bool was_pending_ = false;
  bool blocked_ = false;
  sigset_t before_{};
};

}  // namespace shardwise
