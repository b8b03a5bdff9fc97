#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/support.h"

namespace shardwise::test {

/// How a process ended.
struct Finished {
  int code = 0;  ///< the exit code, or 128 + the signal that killed it
  std::string out;
  std::string err;
  std::uint64_t peak_memory_bytes = 0;
};

/// A child process. Its standard output and standard error are written to files. Threads: one.
class Process {
 public:
  /// Starts `arguments[0]` with `input` as its standard input. `out_fd` and `err_fd`, if
  /// given, are its standard output and standard error.
  explicit Process(std::vector<std::string> arguments, const std::string& input = {},
                   int out_fd = -1, int err_fd = -1);
  /// Kills the child if it is still running.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const;
  pid_t pid() const noexcept { return pid_; }
  std::string err_so_far() const { return read_file(dir_ / "err"); }
  Finished wait();

 private:
  TempDir dir_;
  pid_t pid_ = -1;
};

/// Runs a program and waits for its end.
Finished run(std::vector<std::string> arguments, const std::string& input = {});

}  // namespace shardwise::test
