#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <random>
#include <thread>

#include "libtorch/rendezvous/rendezvous.h"
#include "support/support.h"

// Tests ranks that are processes: killed, stopped or interrupted. This process has no other
// threads.

namespace shardwise::detail {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

std::uint16_t free_port() {
  const Socket socket = listen_at("127.0.0.1", 0);
  sockaddr_in place{};
  socklen_t size = sizeof place;
  EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  return ntohs(place.sin_port);
}

/// A rank. Its output is read from a pipe.
class RankProcess {
 public:
  explicit RankProcess(const std::function<std::string(const std::function<void(char)>&)>& main) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const auto say = [&](const std::string& text) {
        if (::write(pipe[1], text.data(), text.size()) < 0) ::_exit(97);
      };
      try {
        say("<" + main([&](char sign) { say(std::string(1, sign)); }) + ">");
      } catch (const std::exception& e) {
        say(std::string("<") + e.what() + ">");
      }
      ::_exit(0);
    }
    ::close(pipe[1]);
    out_ = Socket(pipe[0]);
  }
  ~RankProcess() {
    send(SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  RankProcess(RankProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), out_(std::move(other.out_)) {}
  RankProcess& operator=(RankProcess&&) = delete;

  void send(int signal) const {
    if (pid_ > 0) ::kill(pid_, signal);
  }
  pid_t pid() const { return pid_; }
  /// Waits until the rank has written `sign` or has ended.
  void wait_for(char sign) {
    char c = 0;
    while (::read(out_.fd(), &c, 1) == 1 && c != sign) {
    }
  }
  /// Returns the rank's result or the text of its error; "" if it was killed.
  std::string result() {
    std::string text;
    std::array<char, 512> buffer{};
    for (ssize_t n = 0; (n = ::read(out_.fd(), buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    const std::size_t begin = text.find('<');
    return begin == std::string::npos ? "" : text.substr(begin + 1, text.rfind('>') - begin - 1);
  }

 private:
  pid_t pid_ = -1;
  Socket out_;
};

struct Scene {
  int world_size;
  std::uint16_t port;
  milliseconds timeout{120'000};
};

Rendezvous::Options options_of(const Scene& scene, int rank) {
  Rendezvous::Options options;
  options.ranks.rank = rank;
  options.ranks.world_size = scene.world_size;
  options.ranks.knows_local = false;
  options.point = {.address = "127.0.0.1", .ports = {scene.port}, .job = ""};
  options.timeout = scene.timeout;
  return options;
}

/// Starts a rank. It writes 'w' when it waits only for rank `waited_for`, and 'c' when all are
/// connected.
RankProcess start(const Scene& scene, int rank, int waited_for = -1) {
  return RankProcess([=](const std::function<void(char)>& say) -> std::string {
    auto options = options_of(scene, rank);
    options.notice_after = milliseconds(1);
    options.notice = [&](const std::string& text) {
      if (text.starts_with("waiting for rank " + std::to_string(waited_for))) say('w');
    };
    Rendezvous meeting(options);
    say('c');
    meeting.set(std::to_string(rank), "x");
    for (int other = 0; other < scene.world_size; ++other) {
      static_cast<void>(meeting.get(std::to_string(other)));
    }
    meeting.finish();
    return "met";
  });
}

TEST(RendezvousProcessTest, ARankThatIsKilledWhileTheOthersWaitIsNamed) {
  // Fault under test: tests/faults.md 54.
  const Scene scene{.world_size = 4, .port = free_port()};
  for (const int signal : {SIGKILL, SIGINT, SIGTERM}) {
    std::vector<RankProcess> ranks;
    for (const int rank : {0, 1, 2}) ranks.push_back(start(scene, rank, 3));
    for (auto& rank : ranks) rank.wait_for('w');
    ranks[1].send(signal);
    EXPECT_EQ(ranks[1].result(), "");
    for (const std::size_t rank : {0u, 2u}) {
      EXPECT_THAT(ranks[rank].result(),
                  AllOf(HasSubstr("a rank ended"), HasSubstr("ranks: rank 1 (host "),
                        HasSubstr(", process " + std::to_string(ranks[1].pid()) + ")")));
    }
  }
}

TEST(RendezvousProcessTest, AStoppedRankIsNamedAtTheDeadline) {
  const Scene scene{.world_size = 3, .port = free_port(), .timeout = milliseconds(6000)};
  std::vector<RankProcess> ranks;
  // Rank 2 connects to the hub, and is stopped before it has connected to the others.
  ranks.push_back(start(scene, 0));
  ranks.push_back(start(scene, 1));
  ranks.push_back(RankProcess([&](const std::function<void(char)>& say) -> std::string {
    Rendezvous meeting(options_of(scene, 2));
    say('c');
    ::raise(SIGSTOP);
    return "went on";
  }));
  for (const std::size_t rank : {0u, 1u}) {
    EXPECT_THAT(ranks[rank].result(),
                AllOf(HasSubstr("1 of 3 ranks started"), HasSubstr("did not connect"),
                      HasSubstr("rank 2 (host ")));
  }
}

TEST(RendezvousProcessTest, RankZeroThatIsStoppedHoldsNobodyBeyondTheDeadline) {
  const Scene scene{.world_size = 3, .port = free_port(), .timeout = milliseconds(9000)};
  std::vector<RankProcess> ranks;
  for (const int rank : {0, 1}) ranks.push_back(start(scene, rank, 2));
  for (auto& rank : ranks) rank.wait_for('w');
  ranks[0].send(SIGSTOP);
  EXPECT_THAT(ranks[1].result(), HasSubstr("rank 0 does not answer"));
  // A rank that starts later finds a port that does not answer.
  const Scene late{.world_size = 3, .port = scene.port, .timeout = milliseconds(1500)};
  EXPECT_THAT(start(late, 2).result(), HasSubstr("does not answer"));
}

TEST(RendezvousProcessTest, WhoeverIsKilledWheneverNobodyIsLeftWaiting) {
  // Each survivor must have met the others, or have an error that names the killed rank.
  std::mt19937 random(11);  // NOLINT: the same each time
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const int world = 2 + static_cast<int>(random() % 4);
    const Scene scene{.world_size = world, .port = free_port()};
    const auto victim = static_cast<std::size_t>(random() % static_cast<unsigned>(world));
    std::vector<RankProcess> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(start(scene, rank));
    // Wait until the victim has met the others: before, errors could not contain its host.
    ranks[victim].wait_for('c');
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    ranks[victim].send(SIGKILL);
    int met = 0;
    int failed = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      const std::string result = ranks[rank].result();
      (result == "met" ? met : failed) += 1;
      EXPECT_THAT(result, AnyOf("met", HasSubstr("rank " + std::to_string(victim) + " (host "),
                                HasSubstr("rank " + std::to_string(victim) + " ended")));
    }
    if (victim != 0) {
      EXPECT_TRUE(met == 0 || failed == 0) << "some met, some did not";
    }
  }
}

}  // namespace
}  // namespace shardwise::detail
