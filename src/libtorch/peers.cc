#include "libtorch/peers.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <tuple>

#include "base/error_types.h"
#include "base/text.h"
#include "libtorch/rendezvous/own_address.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch::detail {

void Peers::find_local_ranks() {
  std::tie(environment.local_rank, environment.local_world_size) =
      shardwise::detail::local_rank_of(ranks, environment.rank);
}

std::string Peers::host_of(int rank) const {
  return ranks.empty() ? own_host_name() : ranks[static_cast<std::size_t>(rank)].host;
}

std::string Peers::name_of(std::size_t rank) const {
  return "rank " + std::to_string(rank) + " of " + std::to_string(environment.world_size) +
         " (host " + escaped(ranks[rank].host) + ", process " +
         std::to_string(ranks[rank].process) + ")";
}

bool Peers::reach_each_other() {
  // Try to reach the peers, since an address may belong to another machine. The trial uses another
  // key, so that a later ask() ignores its letters.
  PeerProbe::Options trial = letters;
  trial.key += " trial";
  trial.most = std::chrono::seconds(5);
  const PeerProbe::Lost lost = probe->ask(trial);
  return lost.ended.empty() && lost.silent.empty() && !lost.is_own;
}

void Peers::throw_lost(const std::string& action, const std::string& reason,
                       const std::string& history) {
  const std::string own = describe(environment);
  if (!probe) {
    throw Error(ErrorCode::kDistributed, action + " (" + reason + ")", own,
                "read the last messages of the other ranks (a rank ended or hangs), then start all "
                "ranks again from the last checkpoint");
  }
  const PeerProbe::Lost lost = probe->ask(letters);
  std::string what = reason;
  std::vector<int> gone = lost.ended;
  if (!lost.ended.empty()) {
    what = lost.ended.size() == 1 ? "a rank ended" : "ranks ended";
  } else if (lost.is_own) {
    what = "the other ranks dropped this one because it did not answer in time";
  } else if (!lost.silent.empty()) {
    gone = lost.silent;
    what = gone.size() == 1 ? "a rank does not answer" : "ranks do not answer";
  }
  std::string where = own;
  for (const int rank : gone) {
    where += (rank == gone.front() ? " lost " : ", ") + name_of(static_cast<std::size_t>(rank));
  }
  throw Error(ErrorCode::kDistributed, action + " (" + what + ")", where + "; " + history,
              std::string("read the last messages ") +
                  (gone.empty() ? "of the other ranks" : "of these ranks") +
                  ", then start all ranks again from the last checkpoint");
}

std::string text_of(const std::exception& e) {
  const auto* const error = dynamic_cast<const c10::Error*>(&e);
  if (error == nullptr) return e.what();
  const std::string text = error->what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

std::string reason_of(const std::exception& e) {
  const std::string text = text_of(e);
  return escaped(text.substr(0, text.find('\n')));
}

}  // namespace shardwise::libtorch::detail
