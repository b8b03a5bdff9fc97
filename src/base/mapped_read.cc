#include "shardwise/base/mapped_read.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace shardwise {
namespace {

/// A copy that a thread is in.
struct Copy {
  const char* begin;
  const char* end;
  sigjmp_buf give_up;
};

std::uintptr_t page_bytes;  // set before our handler can run

/// True if `fault` is an address in [begin, end), or its page's where the machine tells no more.
bool is_in(const char* fault, const char* begin, const char* end) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(fault);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  return at >= first - first % page_bytes && at < reinterpret_cast<std::uintptr_t>(end);
}

/// Of this thread. The handler must find them without allocating: hence in the static block.
[[gnu::tls_model("initial-exec")]] constinit thread_local Copy* current_copy = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local MappedReadGuard* innermost = nullptr;

struct sigaction previous;  // before ours; written once, before ours can run

/// Keeps the compiler from moving reads of a mapping past what the handler looks at.
void fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

void set_default_action() noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGBUS, &action, nullptr);
}

/// What would have happened without our handler.
void pass_on(int signal, siginfo_t* info, void* context) noexcept {
  const bool is_fault = info->si_code > 0;  // otherwise a process sent it
  const bool has_handler = (previous.sa_flags & SA_SIGINFO) != 0 ||
                           (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  if (!has_handler) {
    if (previous.sa_handler == SIG_IGN && !is_fault) return;
    set_default_action();
    if (!is_fault) ::raise(signal);
    return;  // a fault happens again, and now ends the process
  }
  if ((previous.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) set_default_action();
  sigset_t blocked = previous.sa_mask;
  if ((previous.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, SIGBUS);
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

/// The handler.
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
      // The mask as it was at the fault: the jump does not restore it.
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

bool install() noexcept {
  page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = BusErrorHandler::handle;
  // On the thread's own signal stack where it has one, as runtimes with small stacks demand.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, nullptr, &previous);
  return ::sigaction(SIGBUS, &action, nullptr) == 0;
}

void require_handler() noexcept { [[maybe_unused]] static const bool installed = install(); }

/// Nothing here needs a destructor: the handler jumps out of it.
bool copy_or_give_up(Copy& copy, void* to) noexcept {
  Copy* const outer = current_copy;
  if (sigsetjmp(copy.give_up, 0) != 0) {
    current_copy = outer;
    return false;
  }
  current_copy = &copy;
  fence();
  std::memcpy(to, copy.begin, static_cast<std::size_t>(copy.end - copy.begin));
  fence();
  current_copy = outer;
  return true;
}

}  // namespace

bool copy_mapped(void* to, const void* from, std::size_t size) noexcept {
  if (size == 0) return true;
  require_handler();
  const auto* const begin = static_cast<const char*>(from);
  Copy copy;
  copy.begin = begin;
  copy.end = begin + size;
  return copy_or_give_up(copy, to);
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
  // A system call and nothing else: safe in a handler. It takes whole pages.
  if (::mmap(const_cast<char*>(page), static_cast<std::size_t>(end_ - page), PROT_READ,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
    return false;
  }
  damaged_.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace shardwise
