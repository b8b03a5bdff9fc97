#include "base/mapped_read.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <new>

#include "base/fork.h"

namespace shardwise::detail {

// A fault (SIGBUS) in a mapping runs BusErrorHandler::handle() on the reading thread. The handler
// checks, in this order:
//
//   1. current_copy   the thread is in copy_mapped(), and the address in its range:
//                     siglongjmp back; copy_mapped() returns false
//   2. innermost ...  a MappedReadGuard of the thread has the address in its range:
//      outer_         zeros are mapped over the rest of the range; the read is repeated
//   3. otherwise      the fault is not ours: pass_on() to the handler before us, newest_previous
//
// Limits on the handler: it may interrupt any instruction, so it takes no lock and allocates
// nothing. It makes system calls, and calls the handler that it forwards to. Its variables are in
// static thread storage (tls_model initial-exec), where a thread's first access does not allocate.
// The compiler must not move reads of the mapping out of the code between setting and clearing
// current_copy or innermost; fence() prevents that.
//
// No object with a destructor may live between sigsetjmp and the end of copy_or_give_up(), because
// the jump skips destructors. The jump does not restore the signal mask, so the handler restores it
// first.
//
// Other code may install a handler at any time, so each use checks that ours is installed. If
// another handler is installed, take_place_of() adds it to the front of the list newest_previous ->
// before, under a mutex, and installs ours again. pass_on() removes the front of the list if that
// handler uninstalled itself. Nodes are never freed, because another thread may be about to call a
// node's handler. A thread in pass_on() detects by num_installed that our handler was installed
// again.

namespace {

/// The copy that a thread is making.
struct Copy {
  const char* begin;
  const char* end;
  sigjmp_buf give_up;
};

std::uintptr_t page_bytes;  // set before our handler can run

/// True if `fault` is in [begin, end). Some machines report only the address of the page, so every
/// address in the page of `begin` counts.
bool is_in(const char* fault, const char* begin, const char* end) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(fault);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  return at >= first - first % page_bytes && at < reinterpret_cast<std::uintptr_t>(end);
}

/// The current copy and the innermost guard of this thread. They are initial-exec, so that the
/// handler's access does not allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local Copy* current_copy = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local MappedReadGuard* innermost = nullptr;

/// Prevents the compiler from moving reads of a mapping past changes of variables that the handler
/// reads.
void fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

bool is_same(const struct sigaction& a, const struct sigaction& b) noexcept {
  return a.sa_handler == b.sa_handler && a.sa_flags == b.sa_flags;
}

struct sigaction action_now() noexcept {
  struct sigaction action {};
  ::sigaction(SIGBUS, nullptr, &action);
  return action;
}

void set_action(const struct sigaction& action) noexcept { ::sigaction(SIGBUS, &action, nullptr); }

void set_default_action() noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  set_action(action);
}

/// A handler that ours replaced. Never freed: another thread may be about to call it.
struct Previous {
  struct sigaction action;
  const Previous* before;  // the handler that ours had replaced earlier
};
std::atomic<const Previous*> newest_previous{nullptr};

std::atomic<std::uint64_t> num_installed{0};  // how often our handler was installed

/// Set while a thread runs a handler to which we forwarded. The handler may leave by a jump, so
/// this object cannot be cleared reliably. It is out of date if `when` differs from num_installed,
/// because our handler was then installed again.
struct Passing {
  std::uint64_t when = ~std::uint64_t{0};  // num_installed at that time
  const Previous* next = nullptr;          // the handler to forward to if that handler calls ours
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Passing passing_on{};

void install_ours() noexcept;

/// Calls a handler as the kernel does.
void call_as_kernel(const struct sigaction& action, int signal, siginfo_t* info,
                    void* context) noexcept {
  sigset_t blocked = action.sa_mask;
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, SIGBUS);
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Handles the signal as if our handler were not installed.
void pass_on(int signal, siginfo_t* info, void* context) noexcept {
  const bool is_fault = info->si_code > 0;  // otherwise a process has sent the signal
  const bool is_nested = passing_on.when == num_installed.load();
  const Previous* const to =
      is_nested ? passing_on.next : newest_previous.load(std::memory_order_acquire);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  if (to != nullptr) action = to->action;
  const bool has_handler = (action.sa_flags & SA_SIGINFO) != 0 ||
                           (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
  if (!has_handler) {
    if (action.sa_handler == SIG_IGN && !is_fault) return;
    set_default_action();
    if (!is_fault) ::raise(signal);
    return;  // the fault then occurs again, and ends the process
  }
  const bool is_for_once = (action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0;
  if (is_for_once) set_default_action();
  if (is_nested || to->before == nullptr) {  // installed before ours, so it never calls ours
    call_as_kernel(action, signal, info, context);
    return;
  }
  // A handler that was installed after ours may call ours in turn. Or it may report the fault,
  // restore the previous handler and return, so that the fault repeats. That handler is installed
  // during the call. If another handler is installed afterwards, it has uninstalled itself.
  if (!is_for_once) set_action(action);
  passing_on = {num_installed.load(), to->before};
  call_as_kernel(action, signal, info, context);
  passing_on = {};
  if (is_for_once) return;
  if (is_same(action_now(), action)) return install_ours();
  const Previous* expected = to;
  newest_previous.compare_exchange_strong(expected, to->before, std::memory_order_acq_rel);
}

}  // namespace

/// The SIGBUS handler.
struct BusErrorHandler {
  static void handle(int signal, siginfo_t* info, void* context);
};

void BusErrorHandler::handle(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto* const fault = static_cast<const char*>(info->si_addr);
  if (info->si_code > 0) {
    Copy* const copy = current_copy;
    if (copy != nullptr && is_in(fault, copy->begin, copy->end)) {
      errno = saved_errno;
      // Restores the signal mask at the time of the fault, because the jump does not restore it.
      ::pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
      siglongjmp(copy->give_up, 1);
    }
    for (MappedReadGuard* guard = innermost; guard != nullptr; guard = guard->outer_) {
      if (guard->mend(fault)) {
        errno = saved_errno;
        return;
      }
    }
  }
  pass_on(signal, info, context);
  errno = saved_errno;
}

namespace {

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == BusErrorHandler::handle;
}

void install_ours() noexcept {
  struct sigaction action {};
  action.sa_sigaction = BusErrorHandler::handle;
  // SA_ONSTACK: the handler runs on the thread's alternate signal stack if it has one, as runtimes
  // with small stacks require.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ++num_installed;
  set_action(action);
}

/// Records `found` as the handler to forward to, and installs ours.
void take_place_of(const struct sigaction& found) noexcept {
  static constinit Mutex mutex;
  const Lock lock(mutex);
  if (is_ours(action_now())) return;  // another thread has already installed ours
  page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const Previous* const last = newest_previous.load(std::memory_order_relaxed);
  if (last == nullptr || !is_same(last->action, found)) {
    auto* const previous = new (std::nothrow) Previous{found, last};
    if (previous == nullptr) return;
    newest_previous.store(previous, std::memory_order_release);
  }
  install_ours();
}

/// Installs our handler if another handler is installed. Called at each use, because other code may
/// install handlers at any time.
void require_handler() noexcept {
  const struct sigaction found = action_now();
  if (!is_ours(found)) take_place_of(found);
}

/// Calls require_handler() at most once per tick of the kernel's clock in each thread.
void require_handler_lately() noexcept {
  static constinit thread_local timespec looked{};
  static constinit thread_local std::uint64_t process = 0;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  if (now.tv_nsec == looked.tv_nsec && now.tv_sec == looked.tv_sec &&
      process == process_generation()) {
    return;
  }
  require_handler();
  looked = now;
  process = process_generation();
}

/// The handler jumps out of this function, so no object here has a destructor.
bool copy_or_give_up(Copy& copy, std::span<const MappedCopy> all) noexcept {
  Copy* const outer = current_copy;
  if (sigsetjmp(copy.give_up, 0) != 0) {
    current_copy = outer;
    return false;
  }
  current_copy = &copy;
  for (const MappedCopy& one : all) {
    if (one.size == 0) continue;
    copy.begin = static_cast<const char*>(one.from);
    copy.end = copy.begin + one.size;
    fence();
    std::memcpy(one.to, one.from, one.size);
    fence();
  }
  current_copy = outer;
  return true;
}

}  // namespace

bool copy_mapped(std::span<const MappedCopy> copies, Look look) noexcept {
  look == Look::kAlways ? require_handler() : require_handler_lately();
  Copy copy;
  copy.begin = copy.end = nullptr;
  return copy_or_give_up(copy, copies);
}

bool copy_mapped(void* to, const void* from, std::size_t size, Look look) noexcept {
  if (size == 0) return true;
  const MappedCopy one{to, from, size};
  return copy_mapped(std::span(&one, 1), look);
}

MappedReadGuard::MappedReadGuard(const void* address, std::size_t size) noexcept
    : begin_(static_cast<const char*>(address)), end_(begin_ + size), outer_(innermost) {
  require_handler();
  innermost = this;
  fence();
}

MappedReadGuard::~MappedReadGuard() {
  fence();
  innermost = outer_;
}

bool MappedReadGuard::damaged() const noexcept {
  fence();
  return damaged_.load(std::memory_order_relaxed);
}

bool MappedReadGuard::mend(const char* fault) noexcept {
  if (!is_in(fault, begin_, end_)) return false;
  const char* page = fault - reinterpret_cast<std::uintptr_t>(fault) % page_bytes;
  // A single system call, which a signal handler may make. It maps whole pages.
  if (::mmap(const_cast<char*>(page), static_cast<std::size_t>(end_ - page), PROT_READ,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
    return false;
  }
  damaged_.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace shardwise::detail
