#include "libtorch/rendezvous.h"

#ifdef SHARDWISE_HAVE_GLOO

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "libtorch/listener.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch::detail {
namespace {

// How the ranks of a run meet, in ProcessGroup::connect(). The waits for the listener and for the
// cards end at one deadline.
//
//   1. Rank 0 opens the store at the master address and port, unless the launcher listens there.
//      Every rank waits until something listens (wait_for_listener()), and learns on the way from
//      which of its own addresses it got there: the one by which the others are to reach it.
//   2. Each rank counts up claims/<rank>. A process that is not the first to do so is a second one
//      of that rank, and fails; the first one is not disturbed.
//   3. Each rank then writes cards/<rank>, "<world size> <own address>", and waits for all cards.
//      It polls instead of blocking in the store, so that at the deadline it can name the ranks
//      that did not come.
//   4. Each rank checks all cards: one world size, and either all addresses are loopback or none.
//      With a mix, ranks of other machines would connect to themselves.
//   5. Gloo connects by these addresses, through the store, below the prefix "gloo".
//   6. A barrier: nobody needs the store any more, so rank 0 may leave when it likes.
//
// Every key lies below "shardwise/<attempt>/". A launcher that restarts its ranks keeps the store
// alive, and what the attempt before left there must not be taken for this one's.

/// Meets the others in the store: each claims its rank, tells its address, and waits for all.
class Rendezvous {
 public:
  Rendezvous(c10d::Store& store, const RankEnvironment& environment,
             std::chrono::steady_clock::time_point deadline)
      : store_(store), environment_(environment), deadline_(deadline) {}

  void meet(const std::string& own_address) {
    // Before the card: a second process of this rank must not overwrite the first one's.
    if (store_.add(key("claims", environment_.rank), 1) != 1) {
      throw Error(ErrorCode::kDistributed, "two processes are the same rank",
                  describe(environment_),
                  "end what is left of an earlier run, and start each rank once");
    }
    const std::string card = std::to_string(environment_.world_size) + " " + own_address;
    store_.set(key("cards", environment_.rank),
               std::vector<std::uint8_t>(card.begin(), card.end()));
    wait_for_all();
    check_cards(own_address);
  }

 private:
  static std::string key(const char* what, int rank) {
    return std::string(what) + "/" + std::to_string(rank);
  }

  void wait_for_all() {
    auto pause = std::chrono::milliseconds(1);
    int next = 0;  // ranks below it have come
    while (next < environment_.world_size) {
      if (store_.check({key("cards", next)})) {
        ++next;
        continue;
      }
      if (std::chrono::steady_clock::now() > deadline_) throw_missing(next);
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::milliseconds(100));
    }
  }

  [[noreturn]] void throw_missing(int first) {
    std::string missing;
    int num_missing = 0;
    for (int rank = first; rank < environment_.world_size; ++rank) {
      if (store_.check({key("cards", rank)})) continue;
      if (++num_missing <= 8) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (num_missing > 8) missing += ", ...";
    throw Error(ErrorCode::kDistributed,
                std::to_string(num_missing) + " of " + std::to_string(environment_.world_size) +
                    " ranks did not come in time",
                "missing rank " + missing,
                "look at what they said last, and start all ranks again");
  }

  void check_cards(const std::string& own_address) {
    for (int rank = 0; rank < environment_.world_size; ++rank) {
      const auto bytes = store_.get(key("cards", rank));
      const std::string card(bytes.begin(), bytes.end());
      const std::size_t blank = card.find(' ');
      if (card.substr(0, blank) != std::to_string(environment_.world_size)) {
        throw Error(ErrorCode::kDistributed, "the ranks do not agree on the world size",
                    describe(environment_) + ", but rank " + std::to_string(rank) +
                        " has a world size of " + card.substr(0, blank),
                    "start all ranks with the same world size");
      }
      const std::string address = card.substr(blank + 1);
      if (is_loopback(address) != is_loopback(own_address)) {
        throw Error(ErrorCode::kDistributed, "the ranks cannot reach each other",
                    "rank " + std::to_string(rank) + " is at " + address + " and rank " +
                        std::to_string(environment_.rank) + " at " + own_address,
                    "set MASTER_ADDR to an address that every machine can reach, or "
                    "GLOO_SOCKET_IFNAME to the network interface to use");
      }
    }
  }

  c10d::Store& store_;
  const RankEnvironment& environment_;
  const std::chrono::steady_clock::time_point deadline_;
};

}  // namespace

void rendezvous(c10d::Store& store, const RankEnvironment& environment,
                const std::string& own_address, std::chrono::steady_clock::time_point deadline) {
  Rendezvous(store, environment, deadline).meet(own_address);
}

}  // namespace shardwise::libtorch::detail

#endif
