// shardwise-train: trains a small CNN on an index of (image, label) samples, and proves each epoch.

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error_types.h"
#include "command_line.h"
#include "console.h"
#include "data.h"
#include "libtorch/local_ranks.h"
#include "output.h"
#include "shardwise/base/error.h"
#include "train_options.h"
#include "trainer.h"

namespace {

using namespace shardwise;  // NOLINT(google-build-using-namespace): a program

/// Exit code under --local-ranks of a rank that lost a peer. The launcher then reports the cause.
constexpr int kLostPeer = 75;
constexpr const char* kChildVariable = "SHARDWISE_TRAIN_LOCAL_RANK";

/// Makes OpenMP's threads sleep while they wait, unless an environment variable sets this. Spinning
/// threads would take cores from loading threads, other ranks and other programs.
/// @return  true if this changed the environment. OpenMP reads it before main() begins.
bool wait_asleep() {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return false;
  }
  return ::setenv("OMP_WAIT_POLICY", "passive", 1) == 0;
}

/// Returns false if LibTorch computes with one thread, which never waits for others.
bool may_compute_in_threads(const train::Options& options) {
  if (options.compute_threads > 0) return options.compute_threads > 1;
  const char* const told = std::getenv("OMP_NUM_THREADS");
  return told == nullptr || std::strcmp(told, "1") != 0;
}

/// Executes the program again in the same process. Returns only on failure, without effect.
void start_again(char** argv) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv(program.c_str(), argv);
}

/// Larger exit codes mean: ended by a signal.
constexpr int kSignals = 128;

int interrupted(int exit_code) {
  if (std::getenv(kChildVariable) == nullptr) {
    std::fprintf(stderr, "shardwise-train: interrupted\n");
  }
  return exit_code;
}

/// Returns the exit code for invalid or conflicting options, else that for other errors.
int exit_code_of(const std::exception& e) {
  const bool is_usage = dynamic_cast<const CLI::Error*>(&e) != nullptr ||
                        dynamic_cast<const InvalidOption*>(&e) != nullptr;
  return is_usage ? tools::kExitWrongUsage : tools::kExitFailed;
}

/// Returns true for errors that, under --local-ranks, the failed rank or the launcher reports.
bool is_said_elsewhere(const std::string& text) {
  return text.starts_with("a rank failed") || text.find("(a rank ended)") != std::string::npos ||
         text.find("(ranks ended)") != std::string::npos;
}

int run_rank(train::Options& options) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on file sizes then fails with an error
  // Never destroyed: a signal during exit would otherwise kill a finished run.
  static libtorch::StopGuard* guard = nullptr;
  try {
    guard = new libtorch::StopGuard(train::guard_options(options));
    options.first_use.cancel = guard->token();
    train::train(options, *guard);
    // Without a reason for a stop, the ranks had finished before the signal arrived.
    const bool is_stopped = !guard->reason().empty() && guard->exit_code() > kSignals;
    return is_stopped ? interrupted(guard->exit_code()) : 0;
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    const bool is_lost = error != nullptr && error->code() == ErrorCode::kDistributed;
    const bool is_cancelled = error != nullptr && error->code() == ErrorCode::kCancelled;
    // After a signal, peers that stopped earlier look like lost ranks.
    if (guard != nullptr && guard->exit_code() > kSignals && (is_lost || is_cancelled)) {
      return interrupted(guard->exit_code());
    }
    const bool has_launcher = is_lost && std::getenv(kChildVariable) != nullptr;
    if (!has_launcher || !is_said_elsewhere(e.what())) {
      tools::say("error", train::rank_prefix() + e.what());
    }
    return has_launcher ? kLostPeer : exit_code_of(e);
  }
}

/// Returns the exit code if a signal, and not an error, stopped the ranks: e.g. 130 after SIGINT.
/// Otherwise returns 0.
int stop_code_of(const libtorch::LocalRanksResult& result) {
  int code = 0;
  for (const auto& end : result.ranks) {
    const bool is_lost = end.exit_code == kLostPeer;
    if (end.exit_code > 0 && end.exit_code < kSignals && !is_lost) return 0;
    // Ignore code 143 if the launcher itself decided to send SIGTERM.
    const bool is_from_outside =
        result.forwarded_signal != 0 || !end.stopped_by_us || end.exit_code != kSignals + SIGTERM;
    if (end.exit_code > kSignals && is_from_outside) code = end.exit_code;
    if (end.signal != 0 && end.signal == result.forwarded_signal) code = kSignals + end.signal;
    if (end.signal != 0 && end.signal != SIGTERM && end.signal != result.forwarded_signal) return 0;
  }
  return code;
}

int run_launcher(const train::Options& options, int argc, char** argv) {
  train::check(options, options.local_ranks);
  libtorch::LocalRanksOptions launch;
  launch.num_ranks = options.local_ranks;
  launch.arguments = {std::filesystem::read_symlink("/proc/self/exe").string()};
  // All ranks get this process's arguments. The variable tells them that they are ranks.
  for (int i = 1; i < argc; ++i) launch.arguments.emplace_back(argv[i]);
  launch.environment = {{kChildVariable, "1"}};
  const auto result = libtorch::run_local_ranks(launch);
  if (result.ok()) return 0;
  if (const int code = stop_code_of(result); code != 0) return interrupted(code);
  bool was_said = false;
  int killed = -1;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const auto& end = result.ranks[rank];
    // Count a rank that the launcher stopped, too: it may have reported the error after a peer had
    // noticed the failure.
    if (end.exit_code > 0 && end.exit_code != kLostPeer) was_said = true;
    if (end.signal != 0 && !end.stopped_by_us && killed < 0) killed = static_cast<int>(rank);
  }
  const char* const again = options.checkpoint.empty() ? "" : ", with --resume";
  if (killed >= 0) {
    const int signal = result.ranks[static_cast<std::size_t>(killed)].signal;
    tools::say("error",
               fmt::format("rank {} of {} was killed by signal {} ({}), so the other ranks were "
                           "stopped; start the run again{}",
                           killed, options.local_ranks, signal, ::strsignal(signal), again));
  } else if (!was_said) {
    tools::say("error", fmt::format("the ranks lost the connection to each other, first rank {} "
                                    "of {}; start the run again{}",
                                    result.first_failed, options.local_ranks, again));
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  tools::hold_standard_descriptors();
  train::Options options;
  int exit_code = 0;
  if (!train::parse_options(argc, argv, train::version, options, exit_code)) return exit_code;
  const bool is_rank = options.local_ranks == 0 || std::getenv(kChildVariable) != nullptr;
  if (wait_asleep() && is_rank && may_compute_in_threads(options)) start_again(argv);
  if (is_rank) return run_rank(options);
  try {
    return run_launcher(options, argc, argv);
  } catch (const std::exception& e) {
    tools::say("error", e.what());
    return exit_code_of(e);
  }
}
