#pragma once

#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "support/sanitizers.h"

namespace shardwise::test {

/// A forked child. `body` returns what is wrong, "" if nothing is; so does an exception that leaves
/// it. The child ends without running destructors or handlers of the parent's. One thread.
class Child {
 public:
  explicit Child(const std::function<std::string()>& body) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("no child");
    if (pid_ == 0) {
      ::close(ends[0]);
      std::string text;
      try {
        text = body();
      } catch (const std::exception& e) {
        text = std::string("threw: ") + e.what();
      }
      const bool told =
          ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      ::_exit(told ? 0 : 1);
    }
    ::close(ends[1]);
    read_end_ = ends[0];
  }
  ~Child() {
    if (pid_ > 0) {
      kill();
      wait();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() const noexcept { send(SIGKILL); }
  void send(int signal) const noexcept { ::kill(pid_, signal); }
  pid_t pid() const noexcept { return pid_; }
  /// Stops it, and returns once it has stopped.
  void stop() const noexcept {
    send(SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }

  /// What `body` said; "killed by signal N" or "exit status N" if it did not come to its end.
  std::string wait() {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(read_end_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(read_end_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFSIGNALED(status)) return text + "killed by signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
      return text + "exit status " + std::to_string(WEXITSTATUS(status));
    return text;
  }

 private:
  pid_t pid_ = -1;
  int read_end_ = -1;
};

/// Ends a child that hangs, so that it fails instead. For children.
class AtMost {
 public:
  explicit AtMost(unsigned seconds) { ::alarm(seconds); }
  ~AtMost() { ::alarm(0); }
  AtMost(const AtMost&) = delete;
  AtMost& operator=(const AtMost&) = delete;
};

/// Memory that a process shares with those it forks.
template <class T>
class Shared {
 public:
  Shared()
      : value_(new (::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0)) T()) {}
  ~Shared() { ::munmap(value_, sizeof(T)); }
  T* operator->() const { return value_; }

 private:
  T* value_;
};

/// True in builds whose sanitizer needs what a test takes away: address space, or the last
/// descriptor.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// True where a child that is forked beside threads may find the sanitizer's allocator locked by
/// one of them, and waits for ever when it allocates. LLVM 18 takes these locks before a fork
/// (llvm-project, pull request 75290), and so does GCC 15.
#if defined(__clang__) ? __clang_major__ < 18 : __GNUC__ < 15
inline constexpr bool kAllocatorMayBeLockedInChild = kSanitized;
#else
inline constexpr bool kAllocatorMayBeLockedInChild = false;
#endif

/// Runs `body` in a child to its end, so that limits, the working directory and signals stay there.
inline std::string in_child(const std::function<std::string()>& body) { return Child(body).wait(); }

/// Lowers a soft limit of this process: for children.
inline void set_limit(int resource, rlim_t value) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  limit.rlim_cur = value;
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) {
    throw std::runtime_error("cannot set a limit");
  }
}

/// Descriptors that this process has open.
inline std::size_t num_open_descriptors() {
  std::size_t count = 0;
  DIR* entries = ::opendir("/proc/self/fd");
  while (::readdir(entries) != nullptr) ++count;
  ::closedir(entries);
  return count - 3;  // ".", "..", and the directory itself
}

}  // namespace shardwise::test
