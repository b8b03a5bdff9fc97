#include "libtorch/rendezvous/peer_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <sstream>

#include "base/errno_error.h"
#include "libtorch/rendezvous/hub.h"

namespace shardwise::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kGreeting = "shardwise letter 1";
constexpr std::size_t kMaxLetter = 65'536;

struct Letter {
  int rank = -1;
  std::set<int> ended;
  std::set<int> silent;
};

/// Returns a letter as lines of text: the greeting, the key, and numbers. The numbers are the rank,
/// the number of ended ranks, these ranks, the number of silent ranks, and these ranks.
std::string write_letter(const std::string& key, const Letter& letter) {
  std::ostringstream out;
  out << kGreeting << '\n' << key << '\n' << letter.rank;
  for (const std::set<int>* ranks : {&letter.ended, &letter.silent}) {
    out << ' ' << ranks->size();
    for (const int rank : *ranks) out << ' ' << rank;
  }
  out << '\n';
  return out.str();
}

std::optional<Letter> read_letter(const std::string& text, const std::string& key, int num_ranks) {
  std::istringstream in(text);
  std::string greeting;
  std::string of_job;
  Letter letter;
  if (!std::getline(in, greeting) || greeting != kGreeting) return std::nullopt;
  if (!std::getline(in, of_job) || of_job != key) return std::nullopt;
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < num_ranks; };
  if (!(in >> letter.rank) || !is_rank(letter.rank)) return std::nullopt;
  for (std::set<int>* ranks : {&letter.ended, &letter.silent}) {
    int count = 0;
    if (!(in >> count) || count < 0 || count > num_ranks) return std::nullopt;
    for (int i = 0; i < count; ++i) {
      int rank = 0;
      if (!(in >> rank) || !is_rank(rank)) return std::nullopt;
      ranks->insert(rank);
    }
  }
  return letter;
}

/// Begins to connect. If this fails at once, returns a closed socket and sets errno.
Socket begin_connecting(const PeerProbe::Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list) !=
      0) {
    errno = EHOSTUNREACH;
    return Socket();
  }
  Socket socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int failure = socket.is_open() ? 0 : errno;
  if (failure == 0 && ::connect(socket.fd(), list->ai_addr, list->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    failure = errno;
    socket.close();
  }
  ::freeaddrinfo(list);
  errno = failure;
  return socket;
}

}  // namespace

/// The state of one ask().
struct PeerProbe::Talk {
  const Options& options;
  std::set<int> refused;        // ranks whose letter box refused a connection
  std::vector<Socket> to;       // by rank; closed if the rank gets no letter
  std::vector<bool> connected;  // by rank
  std::vector<Letter> letters;  // from other ranks
  std::vector<std::pair<Socket, std::string>> incoming;

  [[nodiscard]] int num_ranks() const { return static_cast<int>(options.addresses.size()); }
  [[nodiscard]] bool has_letter_of(int rank) const {
    return std::any_of(letters.begin(), letters.end(),
                       [&](const Letter& letter) { return letter.rank == rank; });
  }
  /// Returns the ranks that have ended, as this rank or others found, and that wrote no letter.
  [[nodiscard]] std::set<int> ended() const {
    std::set<int> ranks;
    for (const int rank : refused) {
      if (!has_letter_of(rank)) ranks.insert(rank);
    }
    for (const Letter& letter : letters) {
      for (const int rank : letter.ended) {
        if (!has_letter_of(rank)) ranks.insert(rank);
      }
    }
    return ranks;
  }

  void connect_all() {
    to.resize(options.addresses.size());
    connected.assign(to.size(), false);
    for (int rank = 0; rank < num_ranks(); ++rank) connect(rank);
  }
  /// Connects again to ranks that have written no letter. When a process ends, the kernel may close
  /// its connections of the group first. Until it closes the letter box, connections to the box
  /// still succeed.
  void connect_again() {
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const auto place = static_cast<std::size_t>(rank);
      const bool is_under_way = to[place].is_open() && !connected[place];
      if (!is_under_way && !has_letter_of(rank)) connect(rank);
    }
  }
  void connect(int rank) {
    if (rank == options.rank) return;
    const auto place = static_cast<std::size_t>(rank);
    connected[place] = false;
    to[place] = begin_connecting(options.addresses[place]);
    if (!to[place].is_open() && errno == ECONNREFUSED) refused.insert(rank);
  }

  /// Waits for pending connections, `most` at most. Returns true if none is pending.
  bool wait_for_connections(milliseconds most) {
    std::vector<pollfd> waits;
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < to.size(); ++rank) {
      if (!to[rank].is_open() || connected[rank]) continue;
      waits.push_back({to[rank].fd(), POLLOUT, 0});
      ranks.push_back(rank);
    }
    if (waits.empty()) return true;
    ::poll(waits.data(), waits.size(), static_cast<int>(most.count()));
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      int failure = 0;
      socklen_t size = sizeof failure;
      if (::getsockopt(waits[i].fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0) failure = errno;
      if (failure == 0) {
        connected[ranks[i]] = true;
        continue;
      }
      if (failure == ECONNREFUSED) refused.insert(static_cast<int>(ranks[i]));
      to[ranks[i]].close();
    }
    return false;
  }

  /// Sends the letter once to each connected rank.
  void send(const Letter& letter) {
    const std::string text = write_letter(options.key, letter);
    for (std::size_t rank = 0; rank < to.size(); ++rank) {
      if (!to[rank].is_open() || !connected[rank]) continue;
      std::string bytes = text;
      send_some(to[rank], bytes);  // a letter fits into the kernel's buffer
      to[rank].close();
    }
  }
};

PeerProbe::PeerProbe(const std::string& host) : listener_(listen_at(host, 0)) {
  sockaddr_storage place{};
  socklen_t size = sizeof place;
  if (!listener_.is_open() ||
      ::getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    throw_errno(errno, "cannot listen for the other ranks", host);
  }
  port_ = ntohs(place.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(place).sin6_port
                                            : reinterpret_cast<sockaddr_in&>(place).sin_port);
}

void PeerProbe::take_letters(Talk& talk) {
  for (;;) {
    const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) break;
    talk.incoming.emplace_back(Socket(fd), "");
  }
  for (auto& [socket, text] : talk.incoming) {
    if (!socket.is_open()) continue;
    Received received = Received::kSome;
    while (received == Received::kSome && text.size() <= kMaxLetter) {
      received = receive_some(socket, text);
    }
    if (received != Received::kEnded && text.size() <= kMaxLetter) continue;
    if (auto letter = read_letter(text, talk.options.key, talk.num_ranks())) {
      talk.letters.push_back(std::move(*letter));
    }
    socket.close();
  }
}

PeerProbe::Lost PeerProbe::ask(const Options& options) {
  constexpr milliseconds kSlice{20};
  constexpr milliseconds kConnecting{500};  // then send letters to the ranks connected so far
  constexpr milliseconds kAgain{500};
  const auto start = Clock::now();
  Talk talk{options, {}, {}, {}, {}, {}};
  talk.connect_all();
  while (Clock::now() - start < kConnecting && !talk.wait_for_connections(kSlice)) {
  }
  take_letters(talk);  // letters of ranks that noticed the failure earlier
  std::set<int> ended = talk.ended();
  talk.send({options.rank, ended, {}});

  const auto is_known = [&] {
    for (int rank = 0; rank < talk.num_ranks(); ++rank) {
      if (rank != options.rank && !talk.has_letter_of(rank)) return false;
    }
    return true;
  };
  auto connected_at = Clock::now();
  while (ended.empty() && !is_known() && Clock::now() - start < options.most) {
    pollfd ready{listener_.fd(), POLLIN, 0};
    ::poll(&ready, 1, static_cast<int>(kSlice.count()));
    if (Clock::now() - connected_at >= kAgain) {
      talk.connect_again();
      connected_at = Clock::now();
    }
    talk.wait_for_connections(milliseconds(0));
    // Read after connecting: a rank that refused a connection has ended, so its letter, if any, has
    // arrived.
    take_letters(talk);
    ended = talk.ended();
  }
  Lost lost;
  lost.is_own = ended.erase(options.rank) > 0;
  lost.ended.assign(ended.begin(), ended.end());
  for (const Letter& letter : talk.letters) {
    lost.is_own = lost.is_own || letter.silent.contains(options.rank);
  }
  if (ended.empty()) {
    Letter last{options.rank, {}, {}};
    for (int rank = 0; rank < talk.num_ranks(); ++rank) {
      if (rank != options.rank && !talk.has_letter_of(rank)) last.silent.insert(rank);
    }
    // Send letters to silent ranks, too: if one resumes later, it learns that the others gave it
    // up.
    talk.connect_all();
    while (Clock::now() - start < options.most + kConnecting &&
           !talk.wait_for_connections(kSlice)) {
    }
    take_letters(talk);
    for (const int rank : talk.ended()) {  // ranks that ended meanwhile
      if (last.silent.erase(rank) == 0) continue;
      last.ended.insert(rank);
      lost.ended.push_back(rank);
    }
    lost.silent.assign(last.silent.begin(), last.silent.end());
    talk.send(last);
  }
  return lost;
}

}  // namespace shardwise::detail
