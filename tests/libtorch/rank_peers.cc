// Cases in which ranks connect to each other, and in which ranks are lost.

#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/error_types.h"
#include "base/fault_point.h"
#include "rank_case.h"
#include "rank_group.h"
#include "shardwise/libtorch/advanced.h"

namespace shardwise::test {
namespace {

namespace sl = shardwise::libtorch;

/// lost OUT own|adopted RANK CALLS: the rank is killed after CALLS calls; the errors of the other
/// ranks must name it.
void lost(const Arguments& arguments) {
  std::signal(SIGTERM, SIG_IGN);  // the launcher would end ranks whose peer failed, before they
                                  // report
  const auto group = make_group(arguments[2], arguments[1] + ".meeting", nullptr);
  const auto tensor = torch::ones({1000});
  for (int i = 0; i < std::stoi(arguments[4]); ++i) group.all_reduce(tensor);
  if (group.rank() == std::stoi(arguments[3])) std::raise(SIGKILL);
  std::string text;
  for (int i = 0; i < 2; ++i) {
    text += text_of(ErrorCode::kDistributed, [&] { group.all_reduce(tensor); }) + "\n";
  }
  tell(arguments[1], text);
}

/// hang OUT: rank 1 is stopped; calls of the other ranks must end at their timeout and name rank 1.
void hang(const Arguments& arguments) {
  const auto group = sl::init_process_group({.timeout = std::chrono::milliseconds(5000)});
  const bool hangs = group.rank() == 1;
  const auto process = group.all_reduce(hangs ? std::int64_t{::getpid()} : std::int64_t{0});
  if (hangs) {
    std::raise(SIGSTOP);
    return;
  }
  tell(arguments[1], text_of(std::nullopt, [&] { group.barrier(); }));
  if (group.rank() != 2) return;
  // End rank 1, because the launcher waits for it. This does not change rank 0's error: it has the
  // messages that name the lost rank by now, or waits for none.
  ::kill(static_cast<pid_t>(process), SIGKILL);
}

/// Makes calls, after creating OUT.ready.RANK. Writes the error that ended them to OUT.RANK.
void call_until_lost(const sl::ProcessGroup& group, const std::string& out) {
  group.barrier();
  const std::string rank = std::to_string(group.rank());
  std::ofstream(out + ".ready." + rank) << rank;
  tell(out, text_of(std::nullopt, [&] {
         for (;;) group.barrier();
       }));
}

/// unplugged OUT: makes calls until the cable is removed.
void unplugged(const Arguments& arguments) {
  call_until_lost(sl::init_process_group({.timeout = std::chrono::milliseconds(5000)}),
                  arguments[1]);
}

#ifdef SHARDWISE_HAVE_GLOO
/// unplugged-adopted OUT: the same with a Gloo group made by addresses and a shared file.
void unplugged_adopted(const Arguments& arguments) {
  const bool is_far = std::string(std::getenv("RANK")) == "2";
  call_until_lost(sl::adopt_process_group(
                      make_gloo(arguments[1] + ".meeting", is_far ? "10.77.15.2" : "10.77.15.1")),
                  arguments[1]);
}
#endif

/// by-hand OUT PORT: without a launcher, rank 0 listens at the port, and may end first. The ranks
/// find out which of them share the machine. Several groups may exist at the same time.
void by_hand(const Arguments& arguments) {
  for (const char* name : {"TORCHELASTIC_RUN_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    ::unsetenv(name);
  }
  ::setenv("MASTER_PORT", arguments[2].c_str(), 1);
  const int rank = std::stoi(std::getenv("RANK"));
  const auto group = sl::init_process_group({.connect_timeout = std::chrono::milliseconds(60'000)});
  REQUIRE(group.rank() == rank);
  REQUIRE(group.local_rank() == rank && group.local_world_size() == group.world_size());
  {
    const auto second = sl::init_process_group();
    REQUIRE(second.all_reduce(std::int64_t{1}) == second.world_size());
    REQUIRE(group.all_reduce(std::int64_t{2}) == 2 * group.world_size());
  }
  const auto third = sl::init_process_group();
  REQUIRE(third.all_reduce(std::int64_t{1}) == third.world_size());
  if (rank == 0) return;  // the others continue without rank 0
  REQUIRE(group.local_rank() == rank);
}

/// launched OUT JOB: a rank of a real launcher. A rank of another job would have another JOB.
void launched(const Arguments& arguments) {
  const auto group =
      sl::init_process_group({.connect_timeout = std::chrono::milliseconds(120'000)});
  group.require_same({{"job", arguments[2]}});
  const int world = group.world_size();
  REQUIRE(group.all_reduce(std::int64_t{group.rank()}) == world * (world - 1) / 2);
  std::ofstream(arguments[1] + "." + arguments[2] + "." + std::to_string(group.rank()))
      << "world " << world << ", local " << group.local_rank() << " of "
      << group.local_world_size();
}

/// misled OUT NAME: the ranks cannot find each other. Writes their notices to a file.
void misled(const Arguments& arguments) {
  std::ofstream told(arguments[1] + "." + arguments[2] + "." + std::getenv("RANK"));
  text_of(ErrorCode::kDistributed, [&] {
    sl::init_process_group({.connect_timeout = std::chrono::seconds(7),
                            .notice = [&](const std::string& text) { told << text << '\n'; }});
  });
}

/// connecting OUT int|kill: on both ranks Gloo connects forever. Meanwhile rank 1 gets SIGINT or is
/// killed.
void connecting(const Arguments& arguments) {
  static std::atomic<bool> interrupted{false};
  static std::atomic<bool> is_connecting{false};
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGINT, [](int) { interrupted = true; });
  const std::string rank = std::getenv("RANK");
  const std::string other = arguments[1] + ".connects." + (rank == "0" ? "1" : "0");
  static std::string own;
  own = arguments[1] + ".connects." + rank;
  set_fault_handler([](const char* name) {
    if (std::string(name) != "process_group.connect") return;
    std::ofstream(own) << "1";
    is_connecting = true;
    for (;;) ::pause();
  });
  std::thread killer;
  if (rank == "1") {
    killer = std::thread([&] {
      // Wait until both ranks are connecting.
      while (!is_connecting || !std::ifstream(other)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ::kill(::getpid(), arguments[2] == "kill" ? SIGKILL : SIGINT);
    });
  }
  tell(arguments[1], text_of(rank == "1" ? ErrorCode::kCancelled : ErrorCode::kDistributed,
                             [&] { sl::init_process_group({.cancel = &interrupted}); }));
  if (killer.joinable()) killer.join();
}

/// timeouts: a short timeout for calls does not limit connecting.
void timeouts(const Arguments&) {
  using std::chrono::milliseconds;
  for (int i = 0; i < 5; ++i) {
    const auto group = sl::init_process_group({.timeout = milliseconds(1)});
    REQUIRE(group.world_size() == 3);
  }
}

}  // namespace

const Cases& peer_cases() {
  static const Cases cases = {{"lost", lost},
                              {"hang", hang},
                              {"unplugged", unplugged},
#ifdef SHARDWISE_HAVE_GLOO
                              {"unplugged-adopted", unplugged_adopted},
#endif
                              {"by-hand", by_hand},
                              {"launched", launched},
                              {"misled", misled},
                              {"connecting", connecting},
                              {"timeouts", timeouts}};
  return cases;
}

}  // namespace shardwise::test
