#include "process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace shardwise::test {
namespace {

void require(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

Process::Process(std::vector<std::string> arguments, const std::string& input, int out_fd,
                 int err_fd) {
  write_file(dir_ / "in", input);
  posix_spawn_file_actions_t actions;
  require(posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
  posix_spawn_file_actions_addopen(&actions, 0, (dir_ / "in").c_str(), O_RDONLY, 0);
  const auto connect = [&](int number, int fd, const char* name) {
    if (fd >= 0) {
      posix_spawn_file_actions_adddup2(&actions, fd, number);
    } else {
      posix_spawn_file_actions_addopen(&actions, number, (dir_ / name).c_str(), O_WRONLY | O_CREAT,
                                       0600);
    }
  };
  connect(1, out_fd, "out");
  connect(2, err_fd, "err");

  // Start with the default signal settings of a shell prompt, whatever this test inherited.
  posix_spawnattr_t attributes;
  require(posix_spawnattr_init(&attributes), "posix_spawnattr_init");
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE}) {
    sigaddset(&signals, signal);
  }
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  require(error, argv[0]);
}

Process::~Process() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Process::send(int signal) const { ::kill(pid_, signal); }

Finished Process::wait() {
  int status = 0;
  rusage usage{};
  while (::wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  Finished finished;
  finished.peak_memory_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  finished.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (std::filesystem::exists(dir_ / "out")) finished.out = read_file(dir_ / "out");
  if (std::filesystem::exists(dir_ / "err")) finished.err = read_file(dir_ / "err");
  return finished;
}

Finished run(std::vector<std::string> arguments, const std::string& input) {
  return Process(std::move(arguments), input).wait();
}

}  // namespace shardwise::test
