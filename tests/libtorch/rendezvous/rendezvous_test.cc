#include "libtorch/rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "base/agreement.h"
#include "base/fault_point.h"
#include "support/support.h"

namespace shardwise::detail {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Returns ports that were free a moment ago.
std::vector<std::uint16_t> free_ports(int count) {
  std::vector<Socket> held;
  std::vector<std::uint16_t> ports;
  for (int i = 0; i < count; ++i) {
    Socket socket = listen_at("127.0.0.1", 0);
    sockaddr_in place{};
    socklen_t size = sizeof place;
    EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&place), &size), 0);
    ports.push_back(ntohs(place.sin_port));
    held.push_back(std::move(socket));
  }
  return ports;
}

MeetingPoint point_at(std::vector<std::uint16_t> ports, const std::string& job = "job") {
  return {.address = "127.0.0.1", .ports = std::move(ports), .job = job};
}

/// A timeout that no passing test reaches, even on a slow machine.
constexpr milliseconds kLong{120'000};

Rendezvous::Options options_of(int rank, int world_size, const MeetingPoint& point) {
  Rendezvous::Options options;
  options.ranks.rank = rank;
  options.ranks.world_size = world_size;
  options.ranks.knows_local = false;
  options.point = point;
  options.timeout = kLong;
  return options;
}

/// Calls `rank_main(rank)` on one thread per rank. Returns the results, or the texts of the errors.
template <class RankMain>
std::vector<std::string> in_threads(int world_size, RankMain rank_main) {
  std::vector<std::future<std::string>> futures;
  for (int rank = 0; rank < world_size; ++rank) {
    futures.push_back(std::async(std::launch::async, [rank, rank_main]() -> std::string {
      try {
        return rank_main(rank);
      } catch (const Error& e) {
        return e.what();
      }
    }));
  }
  std::vector<std::string> results;
  for (auto& future : futures) results.push_back(future.get());
  return results;
}

TEST(RendezvousTest, AllRanksComeExchangeValuesAndPart) {
  for (const int world : {2, 3, 17}) {
    const MeetingPoint point = point_at(free_ports(2));
    const auto results = in_threads(world, [&](int rank) {
      Rendezvous meeting(options_of(rank, world, point));
      EXPECT_EQ(meeting.ranks().size(), static_cast<std::size_t>(world));
      EXPECT_EQ(meeting.own_address(), "127.0.0.1");
      EXPECT_EQ(local_rank_of(meeting.ranks(), rank), std::pair(rank, world));
      meeting.set("from " + std::to_string(rank), std::string(1000, static_cast<char>('a' + rank)));
      std::string all;
      for (int other = 0; other < world; ++other) {
        all += meeting.get("from " + std::to_string(other))[0];
      }
      meeting.finish();
      EXPECT_TRUE(meeting.has("from 0"));
      EXPECT_THROW(meeting.get("never"), Error);
      return all;
    });
    for (const auto& result : results) EXPECT_EQ(result, results[0]);
    EXPECT_EQ(results[0],
              std::string("abcdefghijklmnopq").substr(0, static_cast<std::size_t>(world)));
  }
}

TEST(RendezvousTest, TheSameRanksMeetAgainAtTheSamePort) {
  const MeetingPoint point = point_at(free_ports(1), "");
  const auto results = in_threads(3, [&](int rank) {
    for (std::uint32_t round = 0; round < 20; ++round) {
      auto options = options_of(rank, 3, point);
      options.round = round;
      Rendezvous meeting(options);
      meeting.set(std::to_string(rank), std::to_string(round));
      for (const char* key : {"0", "1", "2"}) EXPECT_EQ(meeting.get(key), std::to_string(round));
      meeting.finish();
    }
    return "met";
  });
  EXPECT_THAT(results, ElementsAre("met", "met", "met"));
}

TEST(RendezvousTest, RanksOfOneHostMeetAtAnyLoopbackAddress) {
  MeetingPoint point = point_at(free_ports(1));
  point.address = "127.0.1.1";  // the address of a host's name on Debian
  const auto results = in_threads(2, [&](int rank) {
    Rendezvous meeting(options_of(rank, 2, point));
    const std::string address = meeting.own_address();
    meeting.finish();
    return address;
  });
  EXPECT_THAT(results, testing::Each(testing::StartsWith("127.0.")));
}

// Connections to MASTER_ADDR may be forwarded to rank 0's machine, or MASTER_ADDR may be wrong.
// Rank 0 cannot know which.
TEST(RendezvousTest, RankZeroElsewhereThanMasterAddrSaysAtOnceWhereItListens) {
  const MeetingPoint forwarded = point_at(free_ports(1));
  MeetingPoint named = forwarded;
  named.address = "192.0.2.1";  // an address that nobody has
  std::string notice;
  const auto results = in_threads(2, [&](int rank) {
    auto options = options_of(rank, 2, rank == 0 ? named : forwarded);
    if (rank == 0) options.notice = [&](const std::string& text) { notice = text; };
    options.notice_after = kLong;
    Rendezvous meeting(options);
    meeting.finish();
    return std::string("met");
  });
  EXPECT_THAT(results, ElementsAre("met", "met"));
  EXPECT_THAT(notice, AllOf(HasSubstr("rank 0 listens on host "),
                            HasSubstr("MASTER_ADDR=192.0.2.1 is not an address")));
}

TEST(RendezvousTest, ALoopbackMasterAddrIsNamedToWhoWaits) {
  const MeetingPoint point = point_at(free_ports(1));
  for (const int rank : {0, 1}) {
    std::atomic<bool> cancel{false};
    auto options = options_of(rank, 2, point);
    options.cancel = &cancel;
    options.notice_after = milliseconds(1);
    std::string notice;
    options.notice = [&](const std::string& text) {
      if (text.find("MASTER_ADDR") == std::string::npos) return;
      notice = text;
      cancel = true;
    };
    EXPECT_THROW(Rendezvous{options}, Cancelled);
    EXPECT_THAT(notice, HasSubstr(rank == 0 ? "; other hosts cannot reach MASTER_ADDR=127.0.0.1"
                                            : "; MASTER_ADDR=127.0.0.1 is this host itself)"));
  }
}

TEST(RendezvousTest, JobsThatMeetAtTheSameTimeAndPortsNeverMix) {
  constexpr int kJobs = 6;
  constexpr int kWorld = 3;
  const auto ports = free_ports(kJobs);
  const auto results = in_threads(kJobs * kWorld, [&](int i) {
    const std::string job = "job " + std::to_string(i / kWorld);
    Rendezvous meeting(options_of(i % kWorld, kWorld, point_at(ports, job)));
    meeting.set("from " + std::to_string(i % kWorld), job);
    for (int rank = 0; rank < kWorld; ++rank) {
      EXPECT_EQ(meeting.get("from " + std::to_string(rank)), job);
    }
    meeting.finish();
    return job;
  });
  for (int i = 0; i < kJobs * kWorld; ++i) {
    EXPECT_EQ(results[static_cast<std::size_t>(i)], "job " + std::to_string(i / kWorld));
  }
}

/// A server that is not rank 0. It sends a given answer, or nothing.
class ForeignServer {
 public:
  ForeignServer(std::uint16_t port, std::string answer)
      : listener_(listen_at("127.0.0.1", port)), answer_(std::move(answer)) {
    EXPECT_TRUE(listener_.is_open());
    thread_ = std::thread([this] { serve(); });
  }
  ~ForeignServer() {
    stops_ = true;
    thread_.join();
  }
  ForeignServer(const ForeignServer&) = delete;
  ForeignServer& operator=(const ForeignServer&) = delete;

 private:
  void serve() {
    std::vector<Socket> guests;
    while (!stops_) {
      Socket guest(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!guest.is_open()) {
        std::this_thread::sleep_for(milliseconds(1));
        continue;
      }
      std::string answer = answer_;
      send_some(guest, answer);
      guests.push_back(std::move(guest));
    }
  }

  Socket listener_;
  const std::string answer_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

TEST(RendezvousTest, WhatElseListensAtAPortIsPassedBy) {
  const auto ports = free_ports(5);
  const ForeignServer silent(ports[0], "");
  const ForeignServer web(ports[1], "HTTP/1.1 400 Bad Request\r\n\r\n");
  const ForeignServer echo(ports[2], std::string(kRankGreeting));
  const ForeignServer torn(ports[3], std::string(kHubGreeting.substr(0, 9)));
  const auto results = in_threads(2, [&](int rank) {
    Rendezvous meeting(options_of(rank, 2, point_at(ports)));
    meeting.finish();
    return "met";
  });
  EXPECT_THAT(results, ElementsAre("met", "met"));
}

TEST(RendezvousTest, AtAForeignServerAloneTheWaitEndsInTimeAndSaysWhy) {
  const auto ports = free_ports(2);
  const ForeignServer silent(ports[0], "");
  const ForeignServer web(ports[1], "SSH-2.0-OpenSSH\r\n");
  const auto text = [&](std::uint16_t port, int rank) {
    auto options = options_of(rank, 2, point_at({port}, ""));
    options.timeout = milliseconds(1500);
    return test::error_text([&] { Rendezvous meeting(options); });
  };
  EXPECT_THAT(text(ports[0], 1), AllOf(HasSubstr("cannot reach rank 0"),
                                       HasSubstr("does not answer"), HasSubstr("MASTER_PORT")));
  EXPECT_THAT(text(ports[1], 1), AllOf(HasSubstr("another program"),
                                       HasSubstr("listens at port " + std::to_string(ports[1]))));
  EXPECT_THAT(text(ports[1], 0),
              AllOf(HasSubstr("rank 0 cannot listen"), HasSubstr("MASTER_PORT to a free port")));
}

TEST(RendezvousTest, RanksOfAnotherJobAreRefusedAndTheJobGoesOn) {
  const auto ports = free_ports(1);
  const auto results = in_threads(3, [&](int i) -> std::string {
    if (i == 2) {
      auto options = options_of(1, 2, point_at(ports, "another"));
      options.timeout = milliseconds(1000);
      const std::string text = test::error_text([&] { Rendezvous meeting(options); });
      return text;
    }
    // Rank 1 starts after the other job's rank has connected.
    if (i == 1) std::this_thread::sleep_for(milliseconds(1200));
    Rendezvous meeting(options_of(i, 2, point_at(ports, "this")));
    meeting.finish();
    return "met";
  });
  EXPECT_EQ(results[0], "met");
  EXPECT_EQ(results[1], "met");
  EXPECT_THAT(results[2], HasSubstr("cannot reach rank 0"));
}

TEST(RendezvousTest, JunkFromStrangersChangesNothing) {
  const auto ports = free_ports(1);
  std::atomic<bool> stops{false};
  auto stranger = std::async(std::launch::async, [&] {
    std::mt19937 random(7);  // NOLINT: the same each time
    while (!stops) {
      Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in place{};
      place.sin_family = AF_INET;
      place.sin_port = htons(ports[0]);
      place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(socket.fd(), reinterpret_cast<sockaddr*>(&place), sizeof place) != 0) continue;
      std::string junk;
      if (random() % 2 == 0) junk = kRankGreeting;
      for (int i = 0; i < 100; ++i) junk += static_cast<char>(random());
      send_some(socket, junk);
    }
  });
  for (std::uint32_t round = 0; round < 10; ++round) {
    const auto results = in_threads(3, [&](int rank) {
      auto options = options_of(rank, 3, point_at(ports, "job"));
      options.round = round;
      Rendezvous meeting(options);
      meeting.finish();
      return "met";
    });
    EXPECT_THAT(results, ElementsAre("met", "met", "met"));
  }
  stops = true;
  stranger.get();
}

TEST(RendezvousTest, RanksThatDoNotComeAreNamedAlikeOnAllRanks) {
  const auto ports = free_ports(1);
  std::atomic<bool> others_came{false};
  const auto results = in_threads(6, [&](int rank) -> std::string {
    if (rank == 3 || rank == 5) return "did not come";
    auto options = options_of(rank, 6, point_at(ports));
    options.notice_after = milliseconds(1);
    options.notice = [&](const std::string& text) {
      if (text.starts_with("waiting for ranks 1, 3 and 5")) others_came = true;
    };
    // The earliest deadline of a rank applies to all.
    while (rank == 1 && !others_came) std::this_thread::sleep_for(milliseconds(1));
    if (rank == 1) options.timeout = milliseconds(3000);
    Rendezvous meeting(options);
    return "met";
  });
  for (const int rank : {0, 1, 2, 4}) {
    EXPECT_THAT(results[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("2 of 6 ranks did not start"), HasSubstr("missing ranks 3 and 5; "),
                      HasSubstr("start all ranks again")));
  }
}

TEST(RendezvousTest, WhoIsWaitedForIsToldWithTheHostWhereRanksArePlacedInBlocks) {
  const auto ports = free_ports(1);
  std::mutex mutex;
  std::vector<std::string> notices;
  std::atomic<bool> told{false};
  const auto results = in_threads(8, [&](int rank) -> std::string {
    // Ranks 3 and 7 start once the others have reported that they wait for them.
    while ((rank == 3 || rank == 7) && !told) std::this_thread::sleep_for(milliseconds(5));
    auto options = options_of(rank, 8, point_at(ports));
    options.ranks.knows_local = true;
    options.ranks.local_rank = rank % 4;
    options.ranks.local_world_size = 4;
    options.notice_after = milliseconds(50);
    options.notice = [&](const std::string& text) {
      const std::lock_guard lock(mutex);
      notices.push_back(text);
      if (text.find("ranks 3 and 7 (host ") != std::string::npos) told = true;
    };
    Rendezvous meeting(options);
    meeting.finish();
    return "met";
  });
  for (const auto& result : results) EXPECT_EQ(result, "met");
  EXPECT_THAT(notices, testing::Contains(AllOf(HasSubstr("waiting for ranks 3 and 7 (host "),
                                               Not(HasSubstr("process")))));
}

TEST(RendezvousTest, ARankThatIsInterruptedEndsAtOnceAndIsNamedOnTheOthers) {
  // The rank is interrupted in each phase: while it looks for rank 0, waits for other ranks, or
  // connects.
  const auto ports = free_ports(1);
  {
    std::atomic<bool> cancel{true};
    auto options = options_of(1, 2, point_at(ports));
    options.cancel = &cancel;
    std::vector<std::string> notices;  // say why the rank does not end at once
    options.notice = [&](const std::string& text) { notices.push_back(text); };
    EXPECT_EQ(test::error_code([&] { Rendezvous meeting(options); }), ErrorCode::kCancelled);
    EXPECT_THAT(notices, ElementsAre(AllOf(HasSubstr("interrupted; "),
                                           HasSubstr("notify rank 0 at '127.0.0.1'"))));
  }
  for (const bool connecting : {false, true}) {
    std::atomic<bool> cancel{false};
    std::atomic<int> waiting{0};
    const auto results = in_threads(3, [&](int rank) -> std::string {
      if (rank == 2 && !connecting) {
        while (waiting < 2) std::this_thread::sleep_for(milliseconds(1));
        cancel = true;
        return "interrupted another";
      }
      auto options = options_of(rank, 3, point_at(ports));
      options.round = connecting ? 1 : 0;
      options.notice_after = milliseconds(0);
      options.notice = [&, said = false](const std::string& text) mutable {
        if (text.find("rank 2") != std::string::npos && !std::exchange(said, true)) ++waiting;
      };
      if (rank == 1) options.cancel = &cancel;
      Rendezvous meeting(options);
      if (rank == 2) cancel = true;
      static_cast<void>(meeting.get("never"));
      return "met";
    });
    EXPECT_THAT(results[1], AllOf(HasSubstr("interrupted"), HasSubstr("ranks: rank 1")));
    EXPECT_THAT(results[0],
                AllOf(HasSubstr("a rank was interrupted"), HasSubstr("ranks: rank 1 (host ")));
  }
}

TEST(RendezvousTest, WhoComesAfterARankWasInterruptedHearsItAndDoesNotWait) {
  // faults.md 64: whichever rank is interrupted, before or after it has met rank 0.
  for (const int interrupted : {0, 1}) {
    SCOPED_TRACE(interrupted);
    const auto ports = free_ports(1);
    std::atomic<bool> cancel{true};
    const auto results = in_threads(2, [&](int rank) -> std::string {
      auto options = options_of(rank, 2, point_at(ports));
      if (rank == interrupted) {
        options.cancel = &cancel;
      } else {
        std::this_thread::sleep_for(milliseconds(600));
      }
      Rendezvous meeting(options);
      static_cast<void>(meeting.get("never"));
      return "met";
    });
    const std::string name = "ranks: rank " + std::to_string(interrupted) + " (host ";
    for (const std::string& result : results) {
      EXPECT_THAT(result, AllOf(HasSubstr("interrupted"), HasSubstr(name)));
    }
  }
}

TEST(RendezvousTest, WhoFindsNobodyHearsThatRankZeroMayHaveEnded) {
  // faults.md 64: as if rank 0 was interrupted and has ended.
  const auto ports = free_ports(1);
  const std::string place = "'127.0.0.1' port " + std::to_string(ports[0]);
  const auto nobody = AllOf(HasSubstr("(no process listens"), HasSubstr("or has ended)"));
  std::vector<std::string> notices;
  auto options = options_of(1, 2, point_at(ports));
  options.timeout = milliseconds(300);
  options.ranks.knows_local = true;
  options.ranks.local_rank = 1;
  options.ranks.local_world_size = 2;
  options.notice_after = milliseconds(1);
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  EXPECT_THAT(test::error_text([&] { Rendezvous meeting(options); }),
              AllOf(HasSubstr("cannot reach rank 0 "), nobody, HasSubstr(": " + place + "; "),
                    HasSubstr("MASTER_ADDR and MASTER_PORT")));
  EXPECT_THAT(notices, ElementsAre(AllOf(HasSubstr("waiting for rank 0 at " + place), nobody)));
}

/// A rank played by the test, which sends what the test decides.
class PlayedRank {
 public:
  PlayedRank(std::uint16_t port, std::uint32_t rank, const std::string& key)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(port);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.fd(), reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
    say(std::string(kRankGreeting) + MessageWriter(MessageKind::kHello)
                                         .text("job")
                                         .number(0)
                                         .number(rank)
                                         .number(2)
                                         .number(0)
                                         .number(0)
                                         .text("host")
                                         .text("127.0.0.1")
                                         .number(811)
                                         .text(key)
                                         .text(to_bytes({}))
                                         .take());
  }
  void say(std::string bytes) {
    while (!bytes.empty() && send_some(socket_, bytes)) {
    }
  }
  /// Returns the next message of this kind. Skips other messages.
  std::string hear(MessageKind kind) {
    for (;;) {
      while (const auto message = input_.next()) {
        if (MessageReader(*message).kind() == kind) return *message;
      }
      std::string bytes;
      const Received received = receive_some(socket_, bytes);
      if (!input_.add(bytes) || received == Received::kEnded) return {};
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  /// Ends like a process with unread input: the other side can no longer send.
  void reset() {
    const linger at_once{1, 0};
    ::setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket_.close();
  }

 private:
  Socket socket_;
  MessageBuffer input_{kHubGreeting};
};

TEST(RendezvousTest, WhatARankSaysLastIsHeardAlsoIfTheHubWasAboutToTellItSomething) {
  const auto ports = free_ports(1);
  RendezvousHub hub(
      listen_at("127.0.0.1", ports[0]),
      {.job = "job", .world_size = 2, .key = "key", .host = "host", .linger = milliseconds(0)});
  PlayedRank rank0(ports[0], 0, "key");
  PlayedRank rank1(ports[0], 1, "");
  ASSERT_NE(rank0.hear(MessageKind::kRoster), "");
  ASSERT_NE(rank1.hear(MessageKind::kRoster), "");

  // Rank 1 leaves after the hub has checked which guests have sent something, and before the hub
  // sends its next periodic note to all.
  static std::atomic<bool> leaves{false};
  static PlayedRank* const leaver = &rank1;
  set_fault_handler([](const char* name) {
    if (std::string(name) != "meeting_hub.send" || !leaves.exchange(false)) return;
    leaver->say(
        MessageWriter(MessageKind::kLeave).text("interrupted").text("rank 1").text("").take());
    leaver->reset();
  });
  leaves = true;
  const std::string failure = rank0.hear(MessageKind::kFailed);
  set_fault_handler(nullptr);
  MessageReader heard(failure);
  EXPECT_EQ(heard.kind(), MessageKind::kFailed);
  EXPECT_EQ(heard.text(), "interrupted");
}

TEST(RendezvousTest, TheHostOfRankZeroIsEscapedInErrors) {
  const auto ports = free_ports(1);
  const Socket listener = listen_at("127.0.0.1", ports[0]);
  std::thread hub([&] {
    Socket guest;
    while (!guest.is_open()) {
      guest = Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::string said =
        std::string(kHubGreeting) + MessageWriter(MessageKind::kWelcome).take() +
        MessageWriter(MessageKind::kRoster).rank({"a\x1B[2J", "x", 1}).rank({"b", "x", 2}).take();
    send_some(guest, said);
    std::string hello;
    while (receive_some(guest, hello) == Received::kNothingYet) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_THAT(test::error_text([&] {
                Rendezvous meeting(options_of(1, 2, point_at(ports)));
                static_cast<void>(meeting.get("never"));
              }),
              AllOf(HasSubstr("rank 0 ended"), HasSubstr("host a\\x1b[2J")));
  hub.join();
}

TEST(RendezvousTest, RankZeroThatLeavesStaysUntilAllOthersKnowAndNoLonger) {
  const auto ports = free_ports(1);
  std::atomic<bool> cancel{true};
  std::vector<std::string> notices;
  const auto leave = [&](int world_size, milliseconds timeout) {
    auto options = options_of(0, world_size, point_at(ports));
    options.cancel = &cancel;
    options.timeout = timeout;
    options.notice = [&](const std::string& text) { notices.push_back(text); };
    return test::error_code([&] { Rendezvous meeting(options); });
  };
  // Two ranks connect, one after the other, and the third never does.
  std::vector<std::string> heard;
  std::thread others([&] {
    for (const int rank : {2, 1}) {
      heard.push_back(test::error_text([&] { Rendezvous(options_of(rank, 4, point_at(ports))); }));
    }
  });
  EXPECT_EQ(leave(4, kLong), ErrorCode::kCancelled);
  others.join();
  EXPECT_THAT(heard, testing::Each(AllOf(HasSubstr("a rank was interrupted"),
                                         HasSubstr("ranks: rank 0 (host "))));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("interrupted")));
  // Rank 0 waits no longer than the deadline, whichever rank is missing.
  EXPECT_EQ(leave(2, milliseconds(1)), ErrorCode::kCancelled);
}

TEST(RendezvousTest, WhoComesAfterTheMeetingFailedHearsWhy) {
  const auto ports = free_ports(1);
  const auto results = in_threads(3, [&](int rank) -> std::string {
    auto options = options_of(rank, rank == 1 ? 4 : 3, point_at(ports));
    if (rank == 2) std::this_thread::sleep_for(milliseconds(600));
    Rendezvous meeting(options);
    return "met";
  });
  for (const std::string& result : results) {
    EXPECT_THAT(result, AllOf(HasSubstr("do not agree"), HasSubstr("world size")));
  }
}

TEST(RendezvousTest, RankZeroThatGivesUpTellsTheOthersWhy) {
  const auto ports = free_ports(1);
  const auto results = in_threads(3, [&](int rank) -> std::string {
    if (rank == 2) return "did not come";
    auto options = options_of(rank, 3, point_at(ports));
    if (rank == 0) options.timeout = milliseconds(4000);
    Rendezvous meeting(options);
    return "met";
  });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(results[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("1 of 3 ranks did not start"), HasSubstr("missing rank 2")));
  }
}

TEST(RendezvousTest, TwoProcessesOfOneRankAreRefused) {
  const auto ports = free_ports(1);
  for (const int twice : {0, 1}) {
    std::atomic<bool> refused{false};
    const auto results = in_threads(4, [&](int i) -> std::string {
      const int rank = i == 3 ? twice : i;
      // The third rank starts last, so that the meeting is still open.
      while (i == 2 && !refused) std::this_thread::sleep_for(milliseconds(1));
      auto options = options_of(rank, 3, point_at(ports));
      options.round = static_cast<std::uint32_t>(twice);
      try {
        Rendezvous meeting(options);
        meeting.finish();
        return "met";
      } catch (...) {
        refused = true;
        throw;
      }
    });
    // Either of the two may be the first.
    std::string texts;
    int met = 0;
    for (const auto& result : results) {
      texts += result + "\n";
      met += result == "met" ? 1 : 0;
    }
    EXPECT_THAT(texts, AllOf(HasSubstr("two processes"),
                             HasSubstr("same rank: rank " + std::to_string(twice))));
    EXPECT_EQ(met, 3) << texts;
  }
}

TEST(RendezvousTest, AnotherWorldSizeIsNamedOnAllRanks) {
  const auto ports = free_ports(1);
  std::atomic<bool> others_came{false};
  const auto results = in_threads(3, [&](int rank) -> std::string {
    auto options = options_of(rank, rank == 1 ? 4 : 3, point_at(ports));
    options.notice_after = milliseconds(1);
    options.notice = [&](const std::string& text) {
      if (text.starts_with("waiting for rank 1")) others_came = true;
    };
    while (rank == 1 && !others_came) std::this_thread::sleep_for(milliseconds(1));
    Rendezvous meeting(options);
    return "met";
  });
  for (const auto& result : results) {
    EXPECT_THAT(result, AllOf(HasSubstr("do not agree"), HasSubstr("world size: rank 1 (host "),
                              HasSubstr("world size of 4, rank 0 of 3")));
  }
}

TEST(RendezvousTest, RanksThatAreNotAlikeHearOnAllOfThemWhichAndInWhat) {
  const auto ports = free_ports(1);
  const auto results = in_threads(4, [&](int rank) -> std::string {
    auto options = options_of(rank, 4, point_at(ports));
    options.record = {{"version of LibTorch", rank == 2 ? "2.13.0" : "1.13.1"}, {"other", "1"}};
    Rendezvous meeting(options);
    return "met";
  });
  for (const auto& result : results) {
    EXPECT_THAT(result, AllOf(HasSubstr("not started alike"), HasSubstr("version of LibTorch"),
                              HasSubstr("'2.13.0' on rank 2 and '1.13.1' on ranks 0, 1 and 3; "),
                              HasSubstr("of the same build")));
  }
}

TEST(RendezvousTest, ARankThatDoesNotConnectInTimeIsNamed) {
  const auto ports = free_ports(1);
  std::atomic<int> num_failed{0};
  const auto results = in_threads(3, [&](int rank) -> std::string {
    auto options = options_of(rank, 3, point_at(ports));
    if (rank == 0) options.timeout = milliseconds(4000);
    Rendezvous meeting(options);
    // Rank 2 has met the others, but does not connect before both have given up.
    while (rank == 2 && num_failed < 2) std::this_thread::sleep_for(milliseconds(1));
    try {
      meeting.finish();
    } catch (...) {
      ++num_failed;
      throw;
    }
    return "met";
  });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(results[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("1 of 3 ranks started"), HasSubstr("did not connect"),
                      HasSubstr(": rank 2 (host ")));
  }
}

TEST(RendezvousWireTest, MessagesComeWholeInWhateverPiecesAndDamagedOnesAreNoticed) {
  std::mt19937 random(3);  // NOLINT: the same each time
  const Record record = {{"name", "value"}};
  const std::string message = MessageWriter(MessageKind::kHello)
                                  .text("job")
                                  .number(7)
                                  .text(std::string(300, 'x'))
                                  .text(to_bytes(record))
                                  .take();
  const std::string stream = std::string(kRankGreeting) + message + message;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = stream;
    const bool is_damaged = round % 2 == 1;
    const std::size_t place = random() % bytes.size();
    if (is_damaged) bytes[place] = static_cast<char>(bytes[place] ^ (1 << random() % 8));
    MessageBuffer buffer(kRankGreeting);
    int num_whole = 0;
    bool is_other_side = true;
    for (std::size_t begin = 0; begin < bytes.size() && is_other_side;) {
      const std::size_t size = std::min<std::size_t>(1 + random() % 200, bytes.size() - begin);
      is_other_side = buffer.add(std::string_view(bytes).substr(begin, size));
      begin += size;
      while (is_other_side) {
        const auto next = buffer.next();
        if (!next) break;
        MessageReader reader(*next);
        const bool is_hello = reader.kind() == MessageKind::kHello;
        const std::string job = reader.text();
        const std::uint32_t number = reader.number();
        const std::string text = reader.text();
        const auto read = record_from(reader.text());
        EXPECT_LE(job.size() + text.size(), next->size());
        if (is_hello && reader.ok() && job == "job" && number == 7 &&
            text == std::string(300, 'x') && read == record) {
          ++num_whole;
        }
      }
    }
    // A flipped bit in a message damages this message. A flipped bit in the greeting damages both.
    EXPECT_EQ(num_whole == 2, !is_damaged) << round;
    EXPECT_TRUE(is_other_side || is_damaged);
    if (is_damaged && place < kRankGreeting.size()) {
      EXPECT_FALSE(is_other_side);
    }
  }
}

}  // namespace
}  // namespace shardwise::detail
