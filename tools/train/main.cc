// shardwise-train: trains a small CNN on an index of (image, label) samples, and proves each epoch.

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

/// Exit code, under --local-ranks, of a rank that lost a peer: the launcher reports the cause.
constexpr int kLostPeer = 75;
constexpr const char* kChildVariable = "SHARDWISE_TRAIN_LOCAL_RANK";

/// Lets OpenMP's threads sleep while they wait, unless a variable chooses how they wait. Spinning
/// threads would take cores from loading threads, other ranks and other programs.
/// @return  true if the environment was changed; OpenMP reads it before main() begins.
bool wait_asleep() {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return false;
  }
  return ::setenv("OMP_WAIT_POLICY", "passive", 1) == 0;
}

/// Returns false if LibTorch computes with one thread, which waits for no other thread.
bool may_compute_in_threads(const train::Options& options) {
  if (options.compute_threads > 0) return options.compute_threads > 1;
  const char* const told = std::getenv("OMP_NUM_THREADS");
  return told == nullptr || std::strcmp(told, "1") != 0;
}

/// Restarts the program in the same process. Returns only if that fails, with no effect.
void start_again(char** argv) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv(program.c_str(), argv);
}

/// Exit codes above this stand for signals.
constexpr int kSignals = 128;

int interrupted(int exit_code) {
  if (std::getenv(kChildVariable) == nullptr) {
    std::fprintf(stderr, "shardwise-train: interrupted\n");
  }
  return exit_code;
}

/// Returns 2 for invalid or conflicting options, else 1.
int exit_code_of(const std::exception& e) {
  const bool is_usage = dynamic_cast<const CLI::Error*>(&e) != nullptr ||
                        dynamic_cast<const InvalidOption*>(&e) != nullptr;
  return is_usage ? tools::kExitWrongUsage : tools::kExitFailed;
}

/// Returns true, under --local-ranks, for errors that the failed rank or the launcher reports.
bool is_said_elsewhere(const std::string& text) {
  return text.starts_with("a rank failed") || text.find("(a rank ended)") != std::string::npos ||
         text.find("(ranks ended)") != std::string::npos;
}

int run_rank(train::Options& options) {
  std::signal(SIGXFSZ, SIG_IGN);  // makes a write beyond the limit on file sizes an error
  // Never destroyed: without its handlers, a signal during the exit would kill a finished run.
  static libtorch::StopGuard* guard = nullptr;
  try {
    guard = new libtorch::StopGuard(train::guard_options(options));
    options.first_use.cancel = guard->token();
    train::train(options, *guard);
    // Without a reason, the ranks finished before the signal came.
    const bool is_stopped = !guard->reason().empty() && guard->exit_code() > kSignals;
    return is_stopped ? interrupted(guard->exit_code()) : 0;
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    const bool is_lost = error != nullptr && error->code() == ErrorCode::kDistributed;
    const bool is_cancelled = error != nullptr && error->code() == ErrorCode::kCancelled;
    // Peers that stopped first look like lost ranks.
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

/// Returns the exit code if a signal, and no error, stopped the ranks, e.g. 130 after SIGINT; else
/// 0.
int stop_code_of(const libtorch::LocalRanksResult& result) {
  int code = 0;
  for (const auto& end : result.ranks) {
    const bool is_lost = end.exit_code == kLostPeer;
    if (end.exit_code > 0 && end.exit_code < kSignals && !is_lost) return 0;
    // Exit code 143 does not count if the launcher sent SIGTERM on its own account.
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
  // All ranks get the same arguments; the variable marks them as ranks.
  for (int i = 1; i < argc; ++i) launch.arguments.emplace_back(argv[i]);
  launch.environment = {{kChildVariable, "1"}};
  const auto result = libtorch::run_local_ranks(launch);
  if (result.ok()) return 0;
  if (const int code = stop_code_of(result); code != 0) return interrupted(code);
  bool was_said = false;
  int killed = -1;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const auto& end = result.ranks[rank];
    // A rank that the launcher stopped counts: a peer may have noticed its failure first.
    if (end.exit_code > 0 && end.exit_code != kLostPeer) was_said = true;
    if (end.signal != 0 && !end.stopped_by_us && killed < 0) killed = static_cast<int>(rank);
  }
  if (killed >= 0) {
    const int signal = result.ranks[static_cast<std::size_t>(killed)].signal;
    std::fprintf(stderr,
                 "shardwise-train: error: a rank was ended by signal %d (%s): rank %d of %d; start "
                 "again%s (the other ranks were stopped)\n",
                 signal, ::strsignal(signal), killed, options.local_ranks,
                 options.checkpoint.empty() ? "" : ", with --resume");
  } else if (!was_said) {
    std::fprintf(
        stderr,
        "shardwise-train: error: the ranks lost contact: rank %d of %d first; start again%s\n",
        result.first_failed, options.local_ranks,
        options.checkpoint.empty() ? "" : ", with --resume");
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
