#include "storage/curl_pool.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <new>
#include <utility>

#include "base/fork.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

constexpr std::size_t kMaxIdle = 32;
constexpr int kCancelInterval = 50;  // milliseconds between checks for cancellation

/// Initialises libcurl, once per process and on one thread, as older versions of libcurl require.
void initialise_curl() {
  const ForkSection section;  // libcurl takes some milliseconds to initialise
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) {
    throw FetchError("cannot start libcurl", curl_easy_strerror(code),
                     "check the installation of libcurl");
  }
}

}  // namespace

CurlHandle::CurlHandle() : multi_(curl_multi_init()), easy_(curl_easy_init()) {
  if (!multi_ || !easy_) throw std::bad_alloc();
}

CURLcode CurlHandle::perform(const CancelToken& cancel) noexcept {
  if (curl_multi_add_handle(multi_.get(), easy_.get()) != CURLM_OK) return CURLE_OUT_OF_MEMORY;
  int running = 1;
  while (true) {
    if (curl_multi_perform(multi_.get(), &running) != CURLM_OK) return CURLE_FAILED_INIT;
    if (running == 0) break;
    if (cancel.is_cancelled()) return CURLE_ABORTED_BY_CALLBACK;
    if (curl_multi_poll(multi_.get(), nullptr, 0, kCancelInterval, nullptr) != CURLM_OK) {
      return CURLE_FAILED_INIT;
    }
  }
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg == CURLMSG_DONE) return message->data.result;
  }
  return CURLE_FAILED_INIT;
}

void CurlHandle::finish() noexcept { curl_multi_remove_handle(multi_.get(), easy_.get()); }

void CurlHeaders::add(const std::string& line) {
  curl_slist* longer = curl_slist_append(list_, line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  list_ = longer;
}

CurlPool::CurlPool() : idle_(nullptr) {
  initialise_curl();
  idle_ = new Idle(::getpid());
}

CurlPool::~CurlPool() {
  Idle* const idle = idle_.load();
  if (idle->pid == ::getpid()) delete idle;
}

CurlPool::Idle& CurlPool::mine() {
  Idle* idle = idle_.load(std::memory_order_acquire);
  const pid_t pid = ::getpid();
  if (idle->pid == pid) return *idle;
  // The parent's pool is leaked, because another thread of the parent may have locked its mutex.
  auto fresh = std::make_unique<Idle>(pid);
  if (idle_.compare_exchange_strong(idle, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();
  }
  return *idle;
}

CurlHandle CurlPool::take() {
  Idle& idle = mine();
  {
    const Lock lock(idle.mutex);
    if (!idle.handles.empty()) {
      // The last handle has the most recently used connections.
      CurlHandle handle = std::move(idle.handles.back());
      idle.handles.pop_back();
      return handle;
    }
  }
  return {};
}

void CurlPool::give_back(CurlHandle handle) noexcept {
  curl_easy_reset(handle.get());
  Idle* const idle = idle_.load(std::memory_order_acquire);
  // Taken before a fork in a callback: do not reuse it in the child.
  if (idle->pid != ::getpid()) return;
  const Lock lock(idle->mutex);
  if (idle->handles.size() >= kMaxIdle) return;
  try {
    idle->handles.push_back(std::move(handle));
  } catch (const std::bad_alloc&) {  // the handle is destroyed
  }
}

SigpipeGuard::SigpipeGuard() noexcept {
  sigset_t pending, pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  blocked_ = pthread_sigmask(SIG_BLOCK, &pipe, &before_) == 0;
}

SigpipeGuard::~SigpipeGuard() {
  if (!blocked_) return;
  if (!was_pending_) {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec at_once{};
    while (sigtimedwait(&pipe, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace shardwise
