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

/// A forked child that runs `body`. `body` returns an error, or "" for success; an exception also
/// counts as an error. The child ends without running the parent's destructors or exit handlers.
/// Threads: one.
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
  /// Stops the child with SIGSTOP, and waits until it has stopped.
  void stop() const noexcept {
    send(SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }

  /// Waits until the child has ended. Returns the result of `body`. If the child ended in another
  /// way, the result is followed by "killed by signal N" or "exit status N".
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

/// Kills this child if the object exists for more than `seconds`, so that a hang fails the test.
/// Use it only in children.
class AtMost {
 public:
  explicit AtMost(unsigned seconds) { ::alarm(seconds); }
  ~AtMost() { ::alarm(0); }
  AtMost(const AtMost&) = delete;
  AtMost& operator=(const AtMost&) = delete;
};

/// A value in memory that this process and its forked children share.
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

/// True in builds whose sanitizer needs a resource that some tests take away: address space, or the
/// last descriptor.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// True if a forked child may find the sanitizer's allocator locked by another thread of the
/// parent. Such a child hangs when it allocates memory. LLVM 18 (llvm-project, pull request 75290)
/// and GCC 15 take these locks before a fork, which prevents this.
#if defined(__clang__) ? __clang_major__ < 18 : __GNUC__ < 15
inline constexpr bool kAllocatorMayBeLockedInChild = kSanitized;
#else
inline constexpr bool kAllocatorMayBeLockedInChild = false;
#endif

/// Runs `body` in a child, and waits for it. Changes of limits, the working directory and signals
/// then affect only the child.
inline std::string in_child(const std::function<std::string()>& body) { return Child(body).wait(); }

/// Lowers a soft limit of this process. Use it only in children.
inline void set_limit(int resource, rlim_t value) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  limit.rlim_cur = value;
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) {
    throw std::runtime_error("cannot set a limit");
  }
}

/// Returns the number of open descriptors of this process.
inline std::size_t num_open_descriptors() {
  std::size_t count = 0;
  DIR* entries = ::opendir("/proc/self/fd");
  while (::readdir(entries) != nullptr) ++count;
  ::closedir(entries);
  return count - 3;  // without ".", "..", and the directory's own descriptor
}

}  // namespace shardwise::test
