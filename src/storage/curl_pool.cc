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
constexpr std::size_t kMaxIdleMultis = 4;

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

CurlMulti::CurlMulti() : multi_(curl_multi_init()) {
  if (!multi_) throw std::bad_alloc();
}

void CurlMulti::keep_connections(long max) noexcept {
  curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, max);
}

bool CurlMulti::add(CURL* easy) noexcept {
  has_new_ = true;
  return curl_multi_add_handle(multi_.get(), easy) == CURLM_OK;
}

std::optional<CurlMulti::Ended> CurlMulti::wait(std::chrono::milliseconds timeout) noexcept {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!has_failed_) {
    int number = 0;
    // libcurl gives a new transfer the connection of a transfer that has just ended.
    may_reuse_ = std::exchange(has_new_, false);
    has_failed_ = curl_multi_perform(multi_.get(), &number) != CURLM_OK;
    if (const auto ended = next_ended()) return ended;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    const int ms = static_cast<int>(left.count());
    if (curl_multi_poll(multi_.get(), nullptr, 0, ms, nullptr) != CURLM_OK) has_failed_ = true;
  }
  return std::nullopt;
}

std::optional<CurlMulti::Ended> CurlMulti::next_ended() noexcept {
  int number = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &number)) {
    if (message->msg != CURLMSG_DONE) continue;
    return Ended{message->easy_handle, message->data.result, !may_reuse_};
  }
  return std::nullopt;
}

void CurlMulti::remove(CURL* easy) noexcept { curl_multi_remove_handle(multi_.get(), easy); }

CurlHandle::CurlHandle() : easy_(curl_easy_init()) {
  if (!easy_) throw std::bad_alloc();
}

CURLcode CurlHandle::perform(const CancelToken& cancel) noexcept {
  if (!multi_.add(easy_.get())) return CURLE_OUT_OF_MEMORY;
  while (!multi_.has_failed()) {
    if (const auto ended = multi_.wait(kCancelInterval)) return ended->code;
    if (cancel.is_cancelled()) return CURLE_ABORTED_BY_CALLBACK;
  }
  return CURLE_FAILED_INIT;
}

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

template <class Handle>
Handle CurlPool::take_from(std::vector<Handle> Idle::*idle) {
  Idle& mine = this->mine();
  {
    const Lock lock(mine.mutex);
    std::vector<Handle>& handles = mine.*idle;
    if (!handles.empty()) {
      // The last handle has the most recently used connections.
      Handle handle = std::move(handles.back());
      handles.pop_back();
      return handle;
    }
  }
  return {};
}

template <class Handle>
void CurlPool::give_to(std::vector<Handle> Idle::*idle, std::size_t max, Handle handle) noexcept {
  Idle* const mine = idle_.load(std::memory_order_acquire);
  // The handle was taken before a callback forked. Do not reuse it in the child.
  if (mine->pid != ::getpid()) return;
  const Lock lock(mine->mutex);
  std::vector<Handle>& handles = mine->*idle;
  if (handles.size() >= max) return;
  try {
    handles.push_back(std::move(handle));
  } catch (const std::bad_alloc&) {  // the handle is destroyed
  }
}

CurlHandle CurlPool::take() { return take_from(&Idle::handles); }

void CurlPool::give_back(CurlHandle handle) noexcept {
  curl_easy_reset(handle.get());
  give_to(&Idle::handles, kMaxIdle, std::move(handle));
}

CurlMulti CurlPool::take_multi() { return take_from(&Idle::multis); }

void CurlPool::give_back(CurlMulti multi) noexcept {
  give_to(&Idle::multis, kMaxIdleMultis, std::move(multi));
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
