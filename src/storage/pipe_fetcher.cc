#include "storage/pipe_fetcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/errno_error.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/backoff.h"
#include "storage/fetch_failure.h"

namespace shardwise {
namespace {

constexpr std::size_t kPipeBufferBytes = std::size_t{256} * 1024;
constexpr std::size_t kMaxComplaint = 4096;  ///< bytes kept from the end of standard error
constexpr int kPollMs = 100;                 ///< milliseconds until a cancellation is noticed

std::string command_of(const std::string& url) {
  return url.substr(url.starts_with('|') ? 1 : std::strlen("pipe:"));
}

/// The read end of a pipe. Threads: one.
class PipeEnd {
 public:
  PipeEnd() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) throw_errno(errno, "cannot make a pipe", "");
  }
  ~PipeEnd() {
    close_writing();
    ::close(ends_[0]);
  }
  PipeEnd(const PipeEnd&) = delete;
  PipeEnd& operator=(const PipeEnd&) = delete;
  int reading() const noexcept { return ends_[0]; }
  int writing() const noexcept { return ends_[1]; }
  void close_writing() noexcept {
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
  }

 private:
  int ends_[2];
};

/// A command that runs in its own process group. If this object is destroyed before the command
/// ends, the command and all processes in its group are killed.
class Command {
 public:
  /// REQUIRES: `url` outlives this object.
  Command(std::vector<std::string> words, const std::string& url);
  ~Command() {
    if (pid_ < 0) return;
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  int out() const noexcept { return out_.reading(); }
  int err() const noexcept { return err_.reading(); }
  /// Returns the status as from waitpid() if the command has ended; otherwise nullopt.
  /// Errors: FetchError if the status is lost.
  std::optional<int> status() {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == 0) return std::nullopt;
    pid_ = -1;
    if (ended < 0) {
      throw_fetch_error(url_,
                        "whether the command succeeded is unknown, because this process ignores "
                        "SIGCHLD or waits for all its children",
                        "set SIGCHLD to its default action before fetching (SIG_DFL)");
    }
    return status;
  }

 private:
  const std::string& url_;
  PipeEnd out_, err_;
  pid_t pid_ = -1;
};

Command::Command(std::vector<std::string> words, const std::string& url) : url_(url) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out_.writing(), 1);
  posix_spawn_file_actions_adddup2(&actions, err_.writing(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&signals, signal);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  const int error = ::posix_spawnp(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  out_.close_writing();
  err_.close_writing();
  if (error != 0) {
    pid_ = -1;
    throw_fetch_error(
        url, std::string("the command cannot be run: ") + std::strerror(error),
        "check the name of the program and PATH; without a shell, ~, $, * and | do not work");
  }
}

/// Returns the last line of a command's standard error, for error messages.
std::string last_line(std::string_view text) {
  const std::size_t last = text.find_last_not_of("\r\n");
  if (last == std::string_view::npos) return {};
  text = text.substr(0, last + 1);
  const std::size_t before = text.find_last_of("\r\n");
  return in_quotes(before == std::string_view::npos ? text : text.substr(before + 1));
}

/// Forwards the bytes of a stream that are within a range.
class RangeOf {
 public:
  RangeOf(const Fetcher::Range& range, Fetcher::Sink& sink) : range_(range), sink_(sink) {}

  /// Returns false once the range is complete.
  bool take(std::string_view bytes) {
    const std::uint64_t start = position_;
    position_ += bytes.size();
    const std::uint64_t begin = std::max(start, range_.begin);
    const std::uint64_t end = range_.end ? std::min(position_, *range_.end) : position_;
    if (begin < end) {
      sink_.write(bytes.substr(static_cast<std::size_t>(begin - start),
                               static_cast<std::size_t>(end - begin)));
    }
    return !is_full();
  }
  bool is_full() const { return range_.end && position_ >= *range_.end; }
  /// Call this at the end of the stream. Returns true if the stream was long enough for the range.
  bool reaches() const { return position_ >= range_.end.value_or(range_.begin); }
  std::uint64_t position() const { return position_; }

 private:
  const Fetcher::Range range_;
  Fetcher::Sink& sink_;
  std::uint64_t position_ = 0;
};

class PipeFetcher : public Fetcher {
 public:
  Fetcher::Stat stat(const Fetcher::Request& request) override {
    split_command(command_of(request.url), request.url);
    if (!request.validator.empty()) throw_changed_at_source(request.url, request.validator, "");
    return {};
  }

  Fetcher::Stat fetch(const Fetcher::Request& request, Fetcher::Sink& sink) override {
    if (request.range.end && *request.range.end < request.range.begin) {
      throw InvalidArgument("the range ends before it begins", in_quotes(redacted_url(request.url)),
                            "give begin <= end");
    }
    Fetcher::Stat source = stat(request);
    check_cancelled(request);
    Command command(split_command(command_of(request.url), request.url), request.url);
    RangeOf range(request.range, sink);
    std::string complaint;  // last bytes of standard error
    read_output(command, request, range, complaint);
    if (range.is_full()) return source;  // do not wait for the rest of the output
    const int status = wait_for_end(command, request, complaint);
    if (status != 0) {
      std::string reason =
          WIFEXITED(status)
              ? "the command ended with status " + std::to_string(WEXITSTATUS(status))
              : "the command was killed by signal " + std::to_string(WTERMSIG(status));
      const std::string line = last_line(complaint);
      if (!line.empty()) reason += ": " + line;
      throw_fetch_error(request.url, reason, "run the command by hand to find the cause");
    }
    if (!range.reaches()) {
      throw_fetch_error(request.url,
                        "the command wrote only " + human_count(range.position()) + " bytes",
                        "index the file again");
    }
    return source;
  }

 private:
  /// Forwards standard output to `range` until the output ends or the range is complete.
  static void read_output(const Command& command, const Fetcher::Request& request, RangeOf& range,
                          std::string& complaint) {
    std::vector<char> buffer(kPipeBufferBytes);
    pollfd ends[2] = {{command.out(), POLLIN, 0}, {command.err(), POLLIN, 0}};
    // Wait only for the end of standard output, because a background process of the command may
    // keep standard error open.
    while (ends[0].fd >= 0 && !range.is_full()) {
      check_cancelled(request);
      if (::poll(ends, 2, kPollMs) < 0 && errno != EINTR) throw_errno(errno, "cannot wait", "");
      for (pollfd& end : ends) {
        if (end.fd < 0 || end.revents == 0) continue;
        const ssize_t size = ::read(end.fd, buffer.data(), buffer.size());
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) throw_errno(errno, "cannot read from a command", "");
        if (size == 0) {
          end.fd = -1;
          continue;
        }
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(size));
        if (&end == &ends[1]) {
          append_complaint(complaint, bytes);
        } else if (!range.take(bytes)) {
          break;
        }
      }
    }
  }

  /// Waits for the end of a command whose standard output has ended. Reads standard error
  /// meanwhile, because a full pipe would block the command. Returns the status as from waitpid().
  static int wait_for_end(Command& command, const Fetcher::Request& request,
                          std::string& complaint) {
    std::vector<char> buffer(kPipeBufferBytes);
    pollfd error{command.err(), POLLIN, 0};
    for (int wait_ms = 1;; wait_ms = std::min(2 * wait_ms, kPollMs)) {
      check_cancelled(request);
      const std::optional<int> status = command.status();
      // After the end, read only what is in the pipe: a background process may keep it open.
      if (::poll(&error, 1, status ? 0 : wait_ms) > 0) {
        const ssize_t size = ::read(error.fd, buffer.data(), buffer.size());
        if (size > 0) append_complaint(complaint, {buffer.data(), static_cast<std::size_t>(size)});
        if (size == 0) error.fd = -1;
      }
      if (status) return *status;
    }
  }

  static void append_complaint(std::string& complaint, std::string_view bytes) {
    complaint += bytes;
    if (complaint.size() > kMaxComplaint) complaint.erase(0, complaint.size() - kMaxComplaint);
  }
};

}  // namespace

std::vector<std::string> split_command(std::string_view command, std::string_view url) {
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument("the command is malformed",
                          in_quotes(redacted_url(url)) + " (" + std::string(why) + ")",
                          "write pipe:program and its arguments");
  };
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      refuse("the command has a control character");
    if (quote == 0 && c == ' ') {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'') {
      if (++i == command.size()) refuse("the command ends with a backslash");
      words.back() += command[i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) refuse("a quote is not closed");
  if (words.empty() || words[0].empty()) refuse("the command names no program");
  return words;
}

std::unique_ptr<Fetcher> make_pipe_fetcher() { return std::make_unique<PipeFetcher>(); }

}  // namespace shardwise
