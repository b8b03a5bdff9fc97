#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise_program.h"

namespace shardwise::test {

/// A terminal of a given width whose screen is a string.
class Terminal {
 public:
  explicit Terminal(unsigned short columns = 80) : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    char name[64];
    if (::ptsname_r(master_, name, sizeof name) != 0) return;
    slave_ = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    ::ioctl(slave_, TIOCSWINSZ, &size);
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    if (slave_ >= 0) ::close(slave_);
    if (master_ >= 0) ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool is_open() const { return slave_ >= 0; }
  int fd() const { return slave_; }
  /// Returns what was written since the last call, with its original line ends.
  std::string shown() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(master_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    std::erase(text, '\r');
    return text;
  }

 private:
  int master_ = -1;
  int slave_ = -1;
};

/// Waits until all of `texts` are on the terminal, one behind another.
inline void wait_for_texts(const Terminal& terminal, const std::vector<std::string>& texts) {
  std::string shown;
  for (const std::string& text : texts) {
    std::size_t begin = 0;
    for (; (begin = shown.find(text)) == std::string::npos; shown += terminal.shown()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    shown.erase(0, begin + text.size());
  }
}

/// Runs `shardwise` with its standard output on a terminal. Only for short outputs: nothing reads
/// the terminal before the program has ended.
inline std::pair<Finished, std::string> on_terminal(std::vector<std::string> arguments,
                                                    unsigned short columns = 80) {
  const Terminal terminal(columns);
  arguments.insert(arguments.begin(), SHARDWISE_PROGRAM);
  const Finished finished = Process(std::move(arguments), "", terminal.fd()).wait();
  return {finished, terminal.shown()};
}

/// Sets or removes an environment variable, and restores it at the end.
class Variable {
 public:
  /// @param value  null removes it.
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }

  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace shardwise::test
