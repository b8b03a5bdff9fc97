#pragma once

#include <curl/curl.h>
#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/fork.h"
#include "shardwise/base/cancel.h"

namespace shardwise {

/// A libcurl easy handle, and the multi handle that performs its transfers and keeps its
/// connections open. curl_easy_perform() is not used, because it checks for cancellation only once
/// a second.
class CurlHandle {
 public:
  /// Errors: std::bad_alloc.
  CurlHandle();
  CURL* get() const noexcept { return easy_.get(); }
  /// Performs one transfer. Returns CURLE_ABORTED_BY_CALLBACK soon after `cancel` is cancelled.
  /// Information about the transfer can be read until finish() is called.
  CURLcode perform(const CancelToken& cancel) noexcept;
  void finish() noexcept;

 private:
  struct EasyDeleter {
    void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
  };
  struct MultiDeleter {
    void operator()(CURLM* handle) const noexcept { curl_multi_cleanup(handle); }
  };
  // Declared first, because it must outlive the easy handle.
  std::unique_ptr<CURLM, MultiDeleter> multi_;
  std::unique_ptr<CURL, EasyDeleter> easy_;
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

 private:
  struct Idle {
    explicit Idle(pid_t process) : pid(process) {}
    const pid_t pid;
    LongMutex mutex;  // LongMutex, because closing a connection may take long
    std::vector<CurlHandle> handles SHARDWISE_GUARDED_BY(mutex);
  };
  Idle& mine();

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
