#include "libtorch/rendezvous/peer_probe.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "libtorch/rendezvous/hub.h"
#include "support/support.h"

namespace shardwise::detail {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

/// Three ranks in one process.
class PeerProbeTest : public testing::Test {
 protected:
  PeerProbeTest() {
    for (auto& box : boxes_) {
      box.emplace("127.0.0.1");
      addresses_.push_back({"127.0.0.1", box->port()});
    }
  }

  PeerProbe::Lost ask(int rank, milliseconds most) {
    return boxes_[static_cast<std::size_t>(rank)]->ask(
        {.rank = rank, .key = "this job", .addresses = addresses_, .most = most});
  }

  std::array<std::optional<PeerProbe>, 3> boxes_;
  std::vector<PeerProbe::Address> addresses_;
};

TEST_F(PeerProbeTest, WhoseBoxIsGoneHasEnded) {
  boxes_[1].reset();
  const auto lost = ask(0, milliseconds(600'000));  // the timeout is long, but ask() does not wait
                                                    // for the third rank
  EXPECT_THAT(lost.ended, ElementsAre(1));
  EXPECT_THAT(lost.silent, IsEmpty());
  EXPECT_FALSE(lost.is_own);
}

TEST_F(PeerProbeTest, ARankThatNoticedItFirstAndEndedIsNotTheOneThatWasLost) {
  boxes_[1].reset();
  EXPECT_THAT(ask(2, milliseconds(600'000)).ended, ElementsAre(1));
  boxes_[2].reset();
  EXPECT_THAT(ask(0, milliseconds(600'000)).ended, ElementsAre(1));
}

TEST_F(PeerProbeTest, WhoWritesNoLetterIsSilentAndHearsThatItWasGivenUp) {
  PeerProbe::Lost of_two;
  std::thread two([&] { of_two = ask(2, milliseconds(3'000)); });
  const auto lost = ask(0, milliseconds(3'000));
  two.join();
  EXPECT_THAT(lost.ended, IsEmpty());
  EXPECT_THAT(lost.silent, ElementsAre(1));
  EXPECT_THAT(of_two.silent, ElementsAre(1));
  EXPECT_TRUE(ask(1, milliseconds(10)).is_own);
}

/// Accepts two connections, and closes both and the listener. The letter is in the first one.
void take_two_and_go(Socket listener) {
  for (int i = 0; i < 2; ++i) Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
}

TEST_F(PeerProbeTest, WhoTakesConnectionsForAWhileAndIsGoneThenHasEnded) {
  boxes_[1].reset();
  Socket listener = listen_at("127.0.0.1", 0);
  sockaddr_in place{};
  socklen_t size = sizeof place;
  ASSERT_EQ(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  ASSERT_EQ(::fcntl(listener.fd(), F_SETFL, 0), 0);  // make accept4() wait
  addresses_[1].port = ntohs(place.sin_port);
  std::thread ending([&] { take_two_and_go(std::move(listener)); });
  const auto lost = ask(0, milliseconds(600'000));
  ending.join();
  EXPECT_THAT(lost.ended, ElementsAre(1));
  EXPECT_THAT(lost.silent, IsEmpty());
}

TEST_F(PeerProbeTest, WhenAllHaveWrittenNobodyIsLost) {
  std::array<PeerProbe::Lost, 3> lost;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back(
        [&, rank] { lost[static_cast<std::size_t>(rank)] = ask(rank, milliseconds(600'000)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : lost) {
    EXPECT_THAT(each.ended, IsEmpty());
    EXPECT_THAT(each.silent, IsEmpty());
    EXPECT_FALSE(each.is_own);
  }
}

TEST_F(PeerProbeTest, LettersOfOtherJobsAndOtherBytesAreThrownAway) {
  for (const std::string text :
       {"shardwise letter 1\nanother job\n1 1 2 0\n", "shardwise letter 1\nthis job\n1 9 2 0\n",
        "shardwise letter 1\nthis job\n7 0 0\n", "GET / HTTP/1.1\r\n\r\n", ""}) {
    const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(addresses_[0].port);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    ASSERT_EQ(::write(socket.fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  boxes_[1].reset();
  EXPECT_THAT(ask(0, milliseconds(600'000)).ended, ElementsAre(1));
}

}  // namespace
}  // namespace shardwise::detail
