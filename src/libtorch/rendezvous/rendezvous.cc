#include "libtorch/rendezvous/rendezvous.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/text.h"
#include "libtorch/rendezvous/own_address.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{50};  // interval at which waits check for a cancel
constexpr const char* kWho = "read the last messages of these ranks, then start all ranks again";

struct AddressList {
  explicit AddressList(addrinfo* list) : first(list) {}
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;
  addrinfo* const first;
};

/// Returns true if the socket is connected to itself. This can happen if it gets the port it
/// connects to.
bool is_own_end(const Socket& socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t size = sizeof own;
  socklen_t peer_size = sizeof peer;
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
         (::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
          std::memcmp(&own, &peer, peer_size) == 0);
}

/// Returns the error of a connection attempt: 0 if it succeeded, EINPROGRESS while it is pending.
int state_of_connect(const Socket& socket, milliseconds most) {
  pollfd ready{socket.fd(), POLLOUT, 0};
  if (::poll(&ready, 1, static_cast<int>(most.count())) <= 0) return EINPROGRESS;
  int failure = 0;
  socklen_t size = sizeof failure;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &failure, &size) != 0) return errno;
  return failure;
}

}  // namespace

/// The state of the search for rank 0.
struct Rendezvous::Search {
  milliseconds patience{1'000};  ///< how long to wait for a silent listener
  std::string reason;            ///< why the last attempt failed
};

Rendezvous::Rendezvous(Options options)
    : options_(std::move(options)),
      start_(Clock::now()),
      deadline_(start_ + options_.timeout),
      host_(own_host_name()),
      input_(kHubGreeting),
      heard_(start_),
      next_notice_(start_ + options_.notice_after) {
  if (options_.ranks.rank == 0) open_hub();
  if (!welcome_) find_hub();
  wait_for([this] { return !ranks_.empty(); });
}

Rendezvous::~Rendezvous() {
  if (socket_.is_open() && !over_ && !all_done_) {
    leave("a rank left during the rendezvous of the ranks", own_name(), kWho);
  }
  socket_.close();
  hub_.reset();
}

const std::string& Rendezvous::own_address() const noexcept { return address_; }

milliseconds Rendezvous::time_left() const {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
  return std::max(left, milliseconds(1));
}

std::string Rendezvous::own_name() const {
  return "rank " + std::to_string(options_.ranks.rank) + " (host " + host_ + ", process " +
         std::to_string(::getpid()) + ")";
}

/// Listens at the first free port. If a port is in use, asks the process that listens there whether
/// it is rank 0 of this job. If it is, this process is a second rank 0, which is an error.
void Rendezvous::open_hub() {
  // A connection, or rank 0 of the previous rendezvous, may occupy a port for a moment: retry.
  const auto give_up = std::min(deadline_, start_ + std::chrono::seconds(3));
  Search search{.patience = milliseconds(300), .reason = {}};
  int failure = 0;
  for (;;) {
    for (const std::uint16_t port : options_.point.ports) {
      Socket listener = listen_at(options_.point.address, port);
      if (listener.is_open()) {
        key_ = random_key();
        hub_ = std::make_unique<RendezvousHub>(
            std::move(listener), RendezvousHub::Options{.job = options_.point.job,
                                                        .round = options_.round,
                                                        .world_size = options_.ranks.world_size,
                                                        .key = key_,
                                                        .host = host_,
                                                        .deadline = deadline_});
        options_.point.ports = {port};
        check_address();
        return;
      }
      failure = errno;
      // Rank 0 of this job answers with an error, which try_join() throws. Other answers do not
      // matter.
      if (failure == EADDRINUSE && try_join(port, search)) {
        throw Error(ErrorCode::kDistributed, "two processes have the same rank", own_name(),
                    "end all processes of earlier runs, and start each rank once");
      }
      check_time("a free port of this machine");
    }
    if (Clock::now() >= give_up) break;
    std::this_thread::sleep_for(kSlice);
  }
  const std::uint16_t port = options_.point.ports.front();
  throw Error(
      ErrorCode::kDistributed,
      "rank 0 cannot listen for the other ranks (" + std::generic_category().message(failure) + ")",
      in_quotes(options_.point.address) + " port " + std::to_string(port),
      "on all ranks, set MASTER_PORT to a free port of this machine, or SHARDWISE_JOB to a new "
      "name for this run");
}

/// Warns if MASTER_ADDR is not an address of this machine: the other ranks may then not reach rank
/// 0, although rank 0 reaches its own hub.
void Rendezvous::check_address() {
  const std::string& address = options_.point.address;
  if (is_own_address(address)) return;
  far_address_ = detail::own_address();
  if (!options_.notice) return;
  options_.notice("rank 0 listens on host " + host_ + " (" + far_address_ + "), port " +
                  std::to_string(options_.point.ports.front()) +
                  ", but MASTER_ADDR=" + escaped(address) +
                  " is not an address of this host; set MASTER_ADDR=" + far_address_ +
                  " on all ranks, unless connections are forwarded");
}

/// Returns a hint for the text about missing ranks, or an empty text.
std::string Rendezvous::loopback_hint() const {
  const RankEnvironment& ranks = options_.ranks;
  const bool is_one_host = ranks.knows_local && ranks.local_world_size == ranks.world_size;
  if (is_one_host || !is_loopback(options_.point.address)) return {};
  return hub_ ? "; other hosts cannot reach MASTER_ADDR=" + options_.point.address
              : "; MASTER_ADDR=" + options_.point.address + " is this host itself";
}

void Rendezvous::find_hub() {
  Search search;
  auto pause = milliseconds(5);
  for (;;) {
    for (const std::uint16_t port : options_.point.ports) {
      if (try_join(port, search)) return;
      const std::string place = in_quotes(options_.point.address) + " port " +
                                std::to_string(options_.point.ports.front());
      if (Clock::now() >= deadline_ && !options_.cancel.is_cancelled()) {
        throw Error(ErrorCode::kDistributed,
                    "cannot reach rank 0 (" + search.reason + loopback_hint() + ")", place,
                    "check that rank 0 runs, and that MASTER_ADDR and MASTER_PORT are right");
      }
      check_time("rank 0 at " + place + " (" + search.reason + loopback_hint() + ")");
    }
    search.patience = std::min(search.patience * 2, milliseconds(10'000));
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(200));
  }
}

/// Joins the rendezvous at a port. Returns true if rank 0 of this rendezvous has welcomed this
/// rank.
bool Rendezvous::try_join(std::uint16_t port, Search& search) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code =
      ::getaddrinfo(far_address_.empty() ? options_.point.address.c_str() : "127.0.0.1",
                    std::to_string(port).c_str(), &hints, &list);
  const AddressList owner(list);
  if (code != 0) search.reason = ::gai_strerror(code);
  for (const addrinfo* target = list; target != nullptr; target = target->ai_next) {
    Socket socket(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int failure = socket.is_open() ? 0 : errno;
    if (failure == 0 && ::connect(socket.fd(), target->ai_addr, target->ai_addrlen) != 0) {
      failure = errno;
    }
    const auto limit = std::min(deadline_, Clock::now() + milliseconds(5'000));
    while ((failure == EINPROGRESS || failure == EINTR) && Clock::now() < limit) {
      failure = state_of_connect(socket, kSlice);
      // Only while the attempt is pending: if it has ended, its result is reported below.
      if (failure == EINPROGRESS) check_time("rank 0 at " + in_quotes(options_.point.address));
    }
    if (failure == EINPROGRESS || failure == EINTR) failure = ETIMEDOUT;
    if (failure == 0 && is_own_end(socket)) failure = ECONNREFUSED;
    if (failure != 0) {
      // The deadline cuts an attempt short, so its error says little. Keep an earlier reason.
      const bool is_news = search.reason.empty() || Clock::now() < deadline_;
      if (is_news) {
        search.reason =
            failure == ECONNREFUSED
                ? "no process listens at the port: rank 0 has not started yet, or has ended"
                : std::generic_category().message(failure);
      }
      continue;
    }
    address_ = far_address_.empty() ? address_of(socket) : far_address_;
    socket_ = std::move(socket);
    if (hear_welcome(port, search)) return true;
    socket_.close();
  }
  return false;
}

/// Waits for the greeting, search.patience at most, then for the answer to this rank's hello.
bool Rendezvous::hear_welcome(std::uint16_t port, Search& search) {
  input_ = MessageBuffer(kHubGreeting);
  output_.clear();
  refusal_.reset();
  const auto limit = std::min(deadline_, Clock::now() + search.patience);
  const std::string place = "port " + std::to_string(port);
  bool said_hello = false;
  bool is_hub = true;
  while (!welcome_ && !refusal_ && is_hub && Clock::now() < (said_hello ? deadline_ : limit)) {
    check_time("rank 0 at " + in_quotes(options_.point.address) + " " + place + " (no answer yet)");
    if (!send_some(socket_, output_)) break;
    pollfd ready{socket_.fd(), POLLIN, 0};
    ::poll(&ready, 1, static_cast<int>(kSlice.count()));
    std::string bytes;
    const Received received = receive_some(socket_, bytes);
    is_hub = input_.add(bytes);
    if (is_hub && input_.is_greeted() && !std::exchange(said_hello, true)) send_hello();
    while (is_hub) {
      const auto message = input_.next();
      if (!message) break;
      handle(*message);
    }
    if (received == Received::kEnded) break;
  }
  if (welcome_) return true;
  if (refusal_ && refusal_->first == Refusal::kTwice) {
    over_ = true;
    throw Error(ErrorCode::kDistributed, "two processes have the same rank",
                own_name() + ", but " + refusal_->second,
                "end all processes of earlier runs, and start each rank once");
  }
  // The deadline cut the attempt short, so its error says little.
  if (!search.reason.empty() && Clock::now() >= deadline_) return false;
  if (refusal_) {
    search.reason = refusal_->second + " at " + place;
  } else if (!is_hub) {
    search.reason = "another program than rank 0 listens at " + place;
  } else {
    search.reason = "the program that listens at " + place + " does not answer";
  }
  return false;
}

void Rendezvous::send_hello() {
  const RankEnvironment& ranks = options_.ranks;
  const auto first_here = static_cast<std::uint32_t>(ranks.rank - ranks.local_rank);
  const bool knows = ranks.knows_local && ranks.rank >= ranks.local_rank;
  output_ += kRankGreeting;
  output_ += MessageWriter(MessageKind::kHello)
                 .text(options_.point.job)
                 .number(options_.round)
                 .number(static_cast<std::uint32_t>(ranks.rank))
                 .number(static_cast<std::uint32_t>(ranks.world_size))
                 .number(knows ? first_here : 0)
                 .number(knows ? static_cast<std::uint32_t>(ranks.local_world_size) : 0)
                 .rank({host_, address_, static_cast<std::uint32_t>(::getpid())})
                 .text(key_)
                 .text(to_bytes(options_.record))
                 .take();
}

void Rendezvous::set(const std::string& key, const std::string& value) {
  output_ += MessageWriter(MessageKind::kSet).text(key).text(value).take();
  pump(milliseconds(0));
}

bool Rendezvous::has(const std::string& key) {
  if (!all_done_) pump(milliseconds(0));
  return values_.count(key) > 0;
}

std::string Rendezvous::get(const std::string& key) {
  std::optional<std::size_t> waited_with;  // number of values when kWaits was last sent
  wait_for([&] {
    if (values_.count(key) > 0) return true;
    if (waited_with != values_.size()) output_ += MessageWriter(MessageKind::kWaits).take();
    waited_with = values_.size();
    return false;
  });
  return values_[key];
}

void Rendezvous::finish() {
  if (all_done_) return;
  output_ += MessageWriter(MessageKind::kDone).take();
  wait_for([this] { return all_done_; });
  socket_.close();
  hub_.reset();
}

void Rendezvous::wait_for(const std::function<bool()>& condition) {
  while (!condition()) {
    if (all_done_ || over_) {
      throw Error(ErrorCode::kDistributed, "the rendezvous of the ranks is over", own_name(), "");
    }
    pump(kSlice);
    if (condition()) return;
    throw_if_due();
    take_notice(missing_ + (all_came_ ? " to connect" : loopback_hint()));
  }
}

void Rendezvous::throw_if_due() {
  if (options_.cancel.is_cancelled()) leave_interrupted();
  if (Clock::now() >= deadline_) throw_late();
}

void Rendezvous::look() {
  pump(milliseconds(0));
  throw_if_due();
}

/// Sends pending output, waits up to `most` until the connection is ready, and handles received
/// messages.
void Rendezvous::pump(milliseconds most) {
  const bool sent = send_some(socket_, output_);
  const short output = output_.empty() ? short{0} : short{POLLOUT};
  pollfd ready{socket_.fd(), static_cast<short>(POLLIN | output), 0};
  ::poll(&ready, 1, static_cast<int>(most.count()));
  std::string bytes;
  const Received received = receive_some(socket_, bytes);
  if (!bytes.empty()) heard_ = Clock::now();
  const bool is_hub = input_.add(bytes);
  while (is_hub) {
    const auto message = input_.next();
    if (!message) break;
    handle(*message);
  }
  if ((received == Received::kEnded || !sent || !is_hub) && !all_done_) {
    over_ = true;
    const std::string host =
        ranks_.empty() ? in_quotes(options_.point.address) : escaped(ranks_.front().host);
    throw Error(ErrorCode::kDistributed, "rank 0 ended during the rendezvous of the ranks",
                "host " + host, "read the last messages of rank 0, then start all ranks again");
  }
}

void Rendezvous::handle(const std::string& message) {
  MessageReader reader(message);
  switch (reader.kind()) {
    case MessageKind::kWelcome:
      welcome_ = true;
      num_missing_ = 1;
      missing_ = "other ranks";
      break;
    case MessageKind::kRefused: {
      const auto why = static_cast<Refusal>(reader.number());
      refusal_ = {why, escaped(reader.text())};
      break;
    }
    case MessageKind::kWaiting:
      all_came_ = reader.number() != 0;
      num_missing_ = reader.number();
      missing_ = escaped(reader.text());
      break;
    case MessageKind::kRoster:
      ranks_.clear();
      for (int rank = 0; rank < options_.ranks.world_size; ++rank) {
        ranks_.push_back(reader.rank());
      }
      address_ =
          ranks_.empty() ? "" : ranks_[static_cast<std::size_t>(options_.ranks.rank)].address;
      all_came_ = true;
      break;
    case MessageKind::kSet: {
      std::string key = reader.text();
      values_[std::move(key)] = reader.text();
      break;
    }
    case MessageKind::kAllDone:
      all_done_ = true;
      break;
    case MessageKind::kFailed: {
      over_ = true;
      const std::string what = escaped(reader.text());
      const std::string where = escaped(reader.text());
      throw Error(ErrorCode::kDistributed, what, where, escaped(reader.text()));
    }
    default:
      break;
  }
  if (reader.ok()) return;
  over_ = true;
  throw Error(ErrorCode::kDistributed, "rank 0's messages are malformed", "on " + host_,
              "check which program listens at the port of rank 0, then start all ranks again");
}

/// Called in loops that wait for something other than the hub's messages. Throws Cancelled after a
/// cancel, and calls `notice` after a long wait. After a cancel, a rank first tries to reach the
/// hub for some seconds, because the other ranks would otherwise wait for it.
void Rendezvous::check_time(const std::string& waiting_for) {
  constexpr milliseconds kLastTry{5'000};
  constexpr milliseconds kSilence{500};  // if the hub is reached sooner, no notice is needed
  const auto now = Clock::now();
  if (options_.cancel.is_cancelled() && !cancelled_) cancelled_ = now;
  if (cancelled_ && (now - *cancelled_ > kLastTry || now >= deadline_)) {
    throw Cancelled("interrupted during the rendezvous of the ranks", own_name(), "");
  }
  const bool looks_on = cancelled_ && now - *cancelled_ > kSilence && options_.ranks.rank != 0;
  if (looks_on && options_.notice && !std::exchange(said_last_try_, true)) {
    options_.notice("interrupted; trying for a few seconds to notify " + waiting_for);
  }
  if (cancelled_) return;
  take_notice(waiting_for);
}

void Rendezvous::take_notice(const std::string& text) {
  const auto now = Clock::now();
  if (!options_.notice || now < next_notice_) return;
  next_notice_ = now + options_.notice_after;
  constexpr auto kRepeat = std::chrono::seconds(60);
  if (text == noticed_ && now - last_notice_ < kRepeat) return;
  noticed_ = text;
  last_notice_ = now;
  options_.notice("waiting for " + text);
}

void Rendezvous::leave_interrupted() {
  leave("a rank was interrupted during the rendezvous of the ranks", own_name(),
        "start all ranks again");
  if (hub_ && !all_came_ && options_.notice) {
    options_.notice("interrupted; waiting a few seconds to notify " + missing_);
  }
  throw Cancelled("interrupted during the rendezvous of the ranks", own_name(), "");
}

void Rendezvous::leave(const std::string& what, const std::string& where,
                       const std::string& remedy) {
  output_ += MessageWriter(MessageKind::kLeave).text(what).text(where).text(remedy).take();
  send_some(socket_, output_);
  over_ = true;
}

void Rendezvous::throw_if_over(milliseconds most) {
  const auto end = Clock::now() + most;
  while (Clock::now() < end) pump(kSlice);
}

void Rendezvous::throw_late() {
  const std::string world = std::to_string(options_.ranks.world_size);
  std::string what;
  std::string where = missing_;
  if (Clock::now() - heard_ > std::chrono::seconds(5)) {
    what = "rank 0 does not answer";
    where =
        in_quotes(options_.point.address) + " port " + std::to_string(options_.point.ports.front());
  } else if (all_came_) {
    what = std::to_string(num_missing_) + " of " + world +
           " ranks started, but did not connect to the other ranks in time";
  } else {
    what = std::to_string(num_missing_) + " of " + world + " ranks did not start in time";
    where = "missing " + missing_;
  }
  leave(what, where, kWho);
  throw Error(ErrorCode::kDistributed, what, where, kWho);
}

std::pair<int, int> local_rank_of(const std::vector<RankInfo>& ranks, int rank) {
  int before = 0;
  int all = 0;
  const std::string& host = ranks[static_cast<std::size_t>(rank)].host;
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    if (ranks[other].host != host) continue;
    ++all;
    if (static_cast<int>(other) < rank) ++before;
  }
  return {before, all};
}

}  // namespace shardwise::detail
