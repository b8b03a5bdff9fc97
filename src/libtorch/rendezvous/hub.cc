#include "libtorch/rendezvous/hub.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <limits>
#include <map>

#include "base/errno_error.h"
#include "base/fault_point.h"
#include "libtorch/rendezvous/own_address.h"

// A guest is a connected rank. One thread and one poll() serve all guests, so a slow guest does not
// delay the others. A guest's rank is -1 until its kHello is accepted. over_ is set when all ranks
// are done or the rendezvous has failed. After that the hub ignores messages of known ranks, sends
// pending output and disconnects the guests. If the rendezvous has failed, the hub sends the
// failure to new guests, also while the destructor waits.

namespace shardwise::detail {
namespace {

constexpr const char* kStartAgain =
    "read the last messages of this rank, then start all ranks again";

}  // namespace

struct RendezvousHub::Guest {
  explicit Guest(Socket accepted) : socket(std::move(accepted)) {}

  Socket socket;
  MessageBuffer input{kRankGreeting};
  std::string output{kHubGreeting};
  Clock::time_point since = Clock::now();
  bool ended = false;  // the connection ended; drop_ended() removes it
  bool left = false;   // it sent kLeave, so the end of its connection is no failure
  bool waits = false;  // waits for a value of another rank; cleared when a value is set
  bool done = false;
  bool refused = false;

  int rank = -1;
  std::uint32_t first_here = 0;  // lowest rank of its machine, if each machine has consecutive
                                 // ranks
  std::uint32_t num_here = 0;    // number of ranks on its machine; 0 means: unknown
  RankInfo info;
  Record record;
};

RendezvousHub::RendezvousHub(Socket listener, const Options& options)
    : options_(options),
      listener_(std::move(listener)),
      ranks_(static_cast<std::size_t>(options.world_size), nullptr),
      informed_(ranks_.size(), false) {
  std::array<int, 2> wake{};
  if (::pipe2(wake.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw_errno(errno, "cannot make a pipe", "for the rendezvous of the ranks");
  }
  wake_read_ = Socket(wake[0]);
  wake_write_ = Socket(wake[1]);
  thread_.start([this] { serve(); }, "meeting");
}

RendezvousHub::~RendezvousHub() {
  stops_ = true;
  const char byte = 0;
  [[maybe_unused]] const auto written = ::write(wake_write_.fd(), &byte, 1);
  thread_.join();
}

void RendezvousHub::serve() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::optional<Clock::time_point> end;
  Clock::time_point last_welcome{};
  for (;;) {
    const auto now = Clock::now();
    if (stops_ && !end) {
      end = now + std::chrono::seconds(2);
      last_welcome = std::min(now + options_.linger, options_.deadline);
    }
    const bool lingers = end && now < last_welcome && !all_know();
    if (lingers) {
      end = now + std::chrono::seconds(2);  // time to deliver the last messages
    } else if (end) {
      listener_.close();
      if (guests_.empty() || now >= *end) return;
    }

    std::vector<pollfd> waits;
    waits.push_back({wake_read_.fd(), static_cast<short>(stops_ ? 0 : POLLIN), 0});
    const bool accepts = listener_.is_open() && now >= accept_again_;
    waits.push_back({accepts ? listener_.fd() : -1, POLLIN, 0});
    for (Guest& guest : guests_) {
      const short output = guest.output.empty() ? short{0} : short{POLLOUT};
      waits.push_back({guest.socket.fd(), static_cast<short>(POLLIN | output), 0});
    }
    if (::poll(waits.data(), waits.size(), end ? 20 : 200) < 0 && errno != EINTR) return;
    if (accepts && waits[1].revents != 0) accept_all();
    // poll() did not wait for the new guests, which are at the end of the list.
    std::size_t i = 2;
    for (Guest& guest : guests_) {
      if (i < waits.size() && waits[i++].revents != 0) receive(guest);
    }
    // Rank 0 destroys the hub, and its last message is handled, so the rendezvous can no longer
    // succeed.
    if (end && !over_) {
      fail("rank 0 left during the rendezvous of the ranks", "host " + options_.host, kStartAgain);
    }
    if (!over_ && !all_came_ && num_here_ == options_.world_size) begin_connecting();
    if (!over_) tell_who_is_missing();
    for (Guest& guest : guests_) {
      if (!guest.output.empty()) SHARDWISE_FAULT_POINT("meeting_hub.send");
      if (!guest.ended && !send_some(guest.socket, guest.output)) {
        receive(guest);  // its last message may state why it ended
        guest.ended = true;
      }
      // Only shut down writing. Closing a socket with unread bytes would discard output that the
      // other side has not read.
      const bool is_answered = guest.rank >= 0 || guest.refused || !lingers;
      if (end && is_answered && guest.output.empty()) ::shutdown(guest.socket.fd(), SHUT_WR);
    }
    drop_ended();
  }
}

void RendezvousHub::accept_all() {
  for (;;) {
    const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) {
      // This process may have no free file descriptor: accept again later.
      if (errno != EAGAIN) accept_again_ = Clock::now() + std::chrono::milliseconds(100);
      return;
    }
    guests_.emplace_back(Socket(fd));
  }
}

void RendezvousHub::receive(Guest& guest) {
  std::string bytes;
  const Received received = receive_some(guest.socket, bytes);
  if (received == Received::kEnded) guest.ended = true;
  if (!bytes.empty() && !guest.refused && !guest.input.add(bytes)) {
    guest.ended = true;
    guest.left = guest.rank < 0;
  }
  while (!guest.left && !guest.refused && (!over_ || guest.rank < 0)) {
    const auto message = guest.input.next();
    if (!message) return;
    handle(guest, *message);
  }
}

void RendezvousHub::handle(Guest& guest, const std::string& message) {
  MessageReader reader(message);
  const MessageKind kind = reader.kind();
  if (guest.rank < 0) {
    if (kind == MessageKind::kHello) {
      welcome(guest, reader);
    } else {
      guest.ended = guest.left = true;
    }
    return;
  }
  switch (kind) {
    case MessageKind::kSet: {
      std::string key = reader.text();
      std::string value = reader.text();
      if (!reader.ok()) {
        guest.ended = true;
        break;
      }
      // Forward the message unchanged.
      send_to_all(MessageWriter(kind).text(key).text(value).take());
      for (Guest& other : guests_) other.waits = false;
      break;
    }
    case MessageKind::kWaits:
      guest.waits = true;
      break;
    case MessageKind::kDone:
      if (!std::exchange(guest.done, true)) ++num_done_;
      if (num_done_ == options_.world_size) {
        send_to_all(MessageWriter(MessageKind::kAllDone).take());
        over_ = true;
      }
      break;
    case MessageKind::kLeave: {
      guest.left = true;
      const std::string what = reader.text();
      const std::string where = reader.text();
      fail(what, where, reader.text(), &guest);
      break;
    }
    default:
      guest.ended = true;
  }
}

void RendezvousHub::welcome(Guest& guest, MessageReader& hello) {
  const std::string job = hello.text();
  const std::uint32_t round = hello.number();
  const std::uint32_t rank = hello.number();
  const std::uint32_t world_size = hello.number();
  guest.first_here = hello.number();
  guest.num_here = hello.number();
  guest.info = hello.rank();
  const std::string key = hello.text();
  const auto record = record_from(hello.text());
  if (!hello.ok() || !record) {
    guest.ended = guest.left = true;
    return;
  }
  if (job != options_.job) return refuse(guest, Refusal::kOtherJob, "the port serves another job");
  if (round != options_.round) {
    return refuse(guest, Refusal::kOtherRound, "another rendezvous of this job is running");
  }
  if (over_) {
    guest.refused = true;
    guest.output += failure_;
    if (rank < informed_.size()) informed_[rank] = true;
    return;
  }
  guest.record = *record;
  if (rank >= world_size || rank > std::numeric_limits<std::int32_t>::max()) {
    guest.ended = guest.left = true;
    return;
  }
  if (world_size != static_cast<std::uint32_t>(options_.world_size)) {
    guest.rank = static_cast<int>(rank);
    fail("the ranks do not agree on the world size",
         name_of(guest) + " has a world size of " + std::to_string(world_size) + ", rank 0 of " +
             std::to_string(options_.world_size),
         "start all ranks with the same world size");
    return;
  }
  Guest*& place = ranks_[rank];
  if (place != nullptr || (rank == 0 && key != options_.key)) {
    const std::string process =
        std::to_string(rank == 0 ? static_cast<std::uint32_t>(::getpid()) : place->info.process);
    return refuse(guest, Refusal::kTwice,
                  "rank " + std::to_string(rank) + " is process " + process + " on host " +
                      (rank == 0 ? options_.host : place->info.host) + " already");
  }
  guest.rank = static_cast<int>(rank);
  place = &guest;
  ++num_here_;
  guest.output += MessageWriter(MessageKind::kWelcome).take();
}

void RendezvousHub::refuse(Guest& guest, Refusal why, const std::string& text) {
  guest.refused = true;
  guest.output += MessageWriter(MessageKind::kRefused)
                      .number(static_cast<std::uint32_t>(why))
                      .text(text)
                      .take();
}

void RendezvousHub::begin_connecting() {
  std::vector<Record> records;
  for (const Guest* guest : ranks_) records.push_back(guest->record);
  if (const auto different = find_disagreement(records)) {
    return fail("the ranks were not started alike", *different,
                "start the same program, of the same build, on all ranks");
  }
  give_far_addresses();
  const Guest* loopback = nullptr;
  const Guest* other = nullptr;
  for (const Guest* guest : ranks_) {
    (is_loopback(guest->info.address) ? loopback : other) = guest;
  }
  // If only some addresses are loopback, ranks of other machines would connect to themselves.
  if (loopback != nullptr && other != nullptr) {
    return fail("the ranks cannot reach each other",
                name_of(*loopback) + " is at " + loopback->info.address + ", " + name_of(*other) +
                    " at " + other->info.address,
                "set MASTER_ADDR to an address of rank 0's machine that every machine can reach");
  }
  MessageWriter roster(MessageKind::kRoster);
  for (const Guest* guest : ranks_) {
    roster.rank(guest->info);
  }
  send_to_all(roster.take());
  all_came_ = true;
  next_note_ = {};
}

/// On rank 0's machine MASTER_ADDR may be a loopback address, e.g. in Debian's /etc/hosts. If there
/// are other machines, the ranks on rank 0's machine get the address at which other machines have
/// reached rank 0.
void RendezvousHub::give_far_addresses() {
  std::string far;
  for (const Guest* guest : ranks_) {
    if (is_loopback(guest->info.address)) continue;
    far = guest->info.host == options_.host ? guest->info.address : address_of(guest->socket);
    if (!is_loopback(far)) break;
  }
  if (far.empty()) return;
  for (Guest* guest : ranks_) {
    if (guest->info.host == options_.host && is_loopback(guest->info.address)) {
      guest->info.address = far;
    }
  }
}

void RendezvousHub::tell_who_is_missing() {
  const auto now = Clock::now();
  for (Guest& guest : guests_) {
    if (guest.rank < 0 && now - guest.since > options_.hello_timeout) {
      guest.ended = guest.left = true;
    }
  }
  if (now < next_note_) return;
  next_note_ = now + std::chrono::milliseconds(500);
  const std::vector<int> missing = missing_ranks();
  if (missing.empty()) return;
  const std::string note = MessageWriter(MessageKind::kWaiting)
                               .number(all_came_ ? 1 : 0)
                               .number(static_cast<std::uint32_t>(missing.size()))
                               .text(name_all(missing))
                               .take();
  for (Guest* guest : ranks_) {
    // A rank that does not read, e.g. a stopped one, gets no further notes.
    if (guest != nullptr && guest->output.empty()) guest->output += note;
  }
}

/// Returns the ranks that have not connected. If all have connected, returns the ranks that are not
/// done, without those that wait for another rank. If all ranks that are not done wait for another
/// rank, returns all of them.
std::vector<int> RendezvousHub::missing_ranks() const {
  std::vector<int> missing;
  std::vector<int> not_done;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const Guest* const guest = ranks_[static_cast<std::size_t>(rank)];
    if (guest == nullptr || (all_came_ && !guest->done && !guest->waits)) missing.push_back(rank);
    if (all_came_ && guest != nullptr && !guest->done) not_done.push_back(rank);
  }
  return missing.empty() ? not_done : missing;
}

/// Returns e.g. "ranks 3 and 7 (host b), rank 9". A connected rank reports which ranks its machine
/// has. If each machine has consecutive ranks, the host of a missing rank is thus known.
std::string RendezvousHub::name_all(const std::vector<int>& missing) const {
  std::vector<std::string> hosts(ranks_.size());
  bool in_blocks = true;
  for (const Guest* guest : ranks_) {
    if (guest == nullptr) continue;
    if (all_came_) {
      hosts[static_cast<std::size_t>(guest->rank)] = guest->info.host;
      continue;
    }
    const std::size_t end =
        std::min<std::size_t>(std::size_t{guest->first_here} + guest->num_here, hosts.size());
    for (std::size_t rank = guest->first_here; rank < end; ++rank) {
      in_blocks = in_blocks && (hosts[rank].empty() || hosts[rank] == guest->info.host);
      hosts[rank] = guest->info.host;
    }
  }
  std::map<std::string, std::vector<int>> by_host;
  for (const int rank : missing) {
    by_host[in_blocks ? hosts[static_cast<std::size_t>(rank)] : ""].push_back(rank);
  }
  std::string text;
  for (const auto& [host, ranks] : by_host) {
    text += (text.empty() ? "rank" : ", rank") + std::string(ranks.size() > 1 ? "s " : " ") +
            list_of(ranks) + (host.empty() ? "" : " (host " + host + ")");
  }
  return text;
}

std::string RendezvousHub::name_of(const Guest& guest) const {
  return "rank " + std::to_string(guest.rank) + " (host " + guest.info.host + ", process " +
         std::to_string(guest.info.process) + ")";
}

void RendezvousHub::fail(const std::string& what, const std::string& where,
                         const std::string& remedy, const Guest* but) {
  failure_ = MessageWriter(MessageKind::kFailed).text(what).text(where).text(remedy).take();
  send_to_all(failure_, but);
  over_ = true;
  for (const Guest& guest : guests_) {
    if (guest.rank < 0 || guest.rank >= options_.world_size) continue;
    informed_[static_cast<std::size_t>(guest.rank)] = true;
  }
}

bool RendezvousHub::all_know() const {
  return failure_.empty() ||
         std::find(informed_.begin(), informed_.end(), false) == informed_.end();
}

void RendezvousHub::send_to_all(const std::string& message, const Guest* but) {
  for (Guest& guest : guests_) {
    if (&guest != but && guest.rank >= 0 && !guest.ended) guest.output += message;
  }
}

void RendezvousHub::drop_ended() {
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    if (!guest->ended) {
      ++guest;
      continue;
    }
    if (!over_ && guest->rank >= 0 && !guest->left) {
      fail(all_came_ ? "a rank ended while the ranks were connecting"
                     : "a rank ended during the rendezvous of the ranks",
           name_of(*guest), kStartAgain, &*guest);
    }
    if (guest->rank >= 0 && guest->rank < options_.world_size &&
        ranks_[static_cast<std::size_t>(guest->rank)] == &*guest) {
      ranks_[static_cast<std::size_t>(guest->rank)] = nullptr;
    }
    guest = guests_.erase(guest);
  }
}

Socket listen_at(const std::string& address, std::uint16_t port) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(INADDR_ANY);
  sockaddr_in6 place6{};  // all addresses
  place6.sin6_family = AF_INET6;
  place6.sin6_port = htons(port);
  const bool only_here = is_loopback(address);
  const bool only_v4 = only_here && ::inet_pton(AF_INET, address.c_str(), &place.sin_addr) == 1;
  const bool only_v6 = only_here && ::inet_pton(AF_INET6, address.c_str(), &place6.sin6_addr) == 1;
  const auto listen_on = [](int family, const sockaddr* target, socklen_t size) {
    Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    const int off = 0;
    if (!socket.is_open()) return socket;
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) {
      ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (::bind(socket.fd(), target, size) != 0 || ::listen(socket.fd(), 1024) != 0) {
      const int failure = errno;
      socket.close();
      errno = failure;
    }
    return socket;
  };
  if (!only_v4) {
    Socket socket = listen_on(AF_INET6, reinterpret_cast<const sockaddr*>(&place6), sizeof place6);
    if (socket.is_open() || only_v6 || errno == EADDRINUSE) return socket;
  }
  return listen_on(AF_INET, reinterpret_cast<const sockaddr*>(&place), sizeof place);
}

}  // namespace shardwise::detail
