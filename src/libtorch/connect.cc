// Connects the ranks of a launcher to a group over Gloo.
#include <torch/torch.h>

#include "libtorch/group_access.h"
#include "libtorch/require_distributed.h"

#ifdef SHARDWISE_HAVE_GLOO
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/fault_point.h"
#include "base/text.h"
#include "libtorch/c10d_collectives.h"
#include "libtorch/rendezvous/rendezvous.h"
#include "libtorch/rendezvous_store.h"
#endif

#include "base/error_types.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch {

#ifdef SHARDWISE_HAVE_GLOO

namespace detail {
namespace {

using std::chrono::milliseconds;

/// Returns the number of this rendezvous. A process needs one rendezvous for each group.
std::uint32_t next_round() {
  static std::atomic<std::uint32_t> rounds{0};
  return rounds++;
}

/// A group whose timeout can be changed: connecting needs another timeout than calls. In LibTorch
/// 1.13 most calls use only the timeout that their group was made with.
class GlooGroup final : public c10d::ProcessGroupGloo {
 public:
  using c10d::ProcessGroupGloo::ProcessGroupGloo;

  /// Sets the timeout of all later calls.
  void set_timeout(milliseconds timeout) {
    options_->timeout = timeout;
    for (const auto& context : contexts_) Timeout::set(*context, timeout);
  }

 private:
  /// Replaces Gloo's own setter: the program need not link the library that defines it.
  struct Timeout : ::gloo::Context {
    static void set(::gloo::Context& context, milliseconds timeout) {
      context.*(&Timeout::timeout_) = timeout;
    }
  };
};
using GlooPointer = c10::intrusive_ptr<GlooGroup>;

/// Gathers in a logarithmic number of rounds, in each of which a rank sends everything it has. The
/// ring of c10d has a round per rank. With 64 ranks it takes eight times as long.
class GlooCollectives final : public CollectivesOf<BaseOf<GlooGroup>> {
 public:
  using CollectivesOf::CollectivesOf;

  std::vector<torch::Tensor> all_gather(const torch::Tensor& input) override {
    constexpr int kTag = 0;
    const int rank = group().getRank();
    const int size = group().getSize();
    std::vector<std::int64_t> shape = input.sizes().vec();
    shape.insert(shape.begin(), size);
    const auto all = torch::empty(shape, input.options());  // tensors from this rank on
    all[0].copy_(input);
    for (int have = 1; have < size; have *= 2) {
      const int count = std::min(have, size - have);
      std::vector<torch::Tensor> own = {all.narrow(0, 0, count)};
      std::vector<torch::Tensor> theirs = {all.narrow(0, have, count)};
      const auto receiving = group().recv(theirs, (rank + have) % size, kTag);
      const auto sending = group().send(own, (rank - have + size) % size, kTag);
      receiving->wait(timeout());
      sending->wait(timeout());
    }
    std::vector<torch::Tensor> outputs;
    for (int of = 0; of < size; ++of) outputs.push_back(all[(of - rank + size) % size]);
    return outputs;
  }
};

/// Connects in another thread, since Gloo notices neither a cancel nor a lost rank meanwhile. If
/// this function throws, that thread runs until Gloo's timeout.
/// Errors: those of Rendezvous and of c10d.
GlooPointer connect_gloo(const c10::intrusive_ptr<RendezvousStore>& store,
                         const RankEnvironment& environment,
                         const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options) {
  constexpr milliseconds kSlice{20};
  std::promise<GlooPointer> promise;
  auto result = promise.get_future();
  std::thread thread([promise = std::move(promise), store, rank = environment.rank,
                      size = environment.world_size, options]() mutable {
    try {
      SHARDWISE_FAULT_POINT("process_group.connect");
      promise.set_value(c10::make_intrusive<GlooGroup>(store, rank, size, options));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  });
  try {
    while (result.wait_for(kSlice) != std::future_status::ready) store->look();
  } catch (...) {
    thread.detach();
    throw;
  }
  thread.join();
  return result.get();
}

/// Connects the ranks that have met, and sets up the probe for lost ranks.
std::unique_ptr<Collectives> connect(Rendezvous& meeting, Peers& peers, milliseconds timeout) {
  const RankEnvironment& own = peers.environment;
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->timeout = std::max(meeting.time_left(), milliseconds(1000));
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(
      interface != nullptr
          ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
          : c10d::ProcessGroupGloo::createDeviceForHostname(meeting.own_address()));
  peers.probe.emplace(meeting.own_address());
  if (own.rank == 0) meeting.set("letters", shardwise::detail::random_key());
  meeting.set("letters " + std::to_string(own.rank), std::to_string(peers.probe->port()));
  const auto store = c10::make_intrusive<RendezvousStore>(meeting);
  const GlooPointer gloo = connect_gloo(store, own, options);
  gloo->set_timeout(timeout);
  store->close();
  peers.letters.rank = own.rank;
  peers.letters.key = meeting.get("letters");
  for (int rank = 0; rank < own.world_size; ++rank) {
    const auto port = parse_int64(meeting.get("letters " + std::to_string(rank))).value_or(0);
    peers.letters.addresses.push_back({meeting.ranks()[static_cast<std::size_t>(rank)].address,
                                       static_cast<std::uint16_t>(port)});
  }
  meeting.finish();  // from here on rank 0 may end
  return std::make_unique<GlooCollectives>(gloo.get(), std::make_shared<GlooPointer>(gloo),
                                           timeout);
}

}  // namespace

std::shared_ptr<AgreedCalls> connect(const RankEnvironment& environment,
                                     const ProcessGroup::Options& options,
                                     std::shared_ptr<StopState> stop) {
  Peers peers;
  peers.environment = environment;
  std::unique_ptr<Collectives> collectives;
  if (environment.world_size > 1) {
    Rendezvous meeting({.ranks = environment,
                        .point = meeting_point(environment),
                        .round = next_round(),
                        .timeout = options.connect_timeout,
                        .cancel = options.cancel,
                        .notice = options.notice,
                        .record = versions(stop != nullptr)});
    peers.ranks = meeting.ranks();
    if (!environment.knows_local) peers.find_local_ranks();
    try {
      collectives = connect(meeting, peers, options.timeout);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      meeting.throw_if_over(milliseconds(1000));  // throws an error with the lost rank, if the hub
                                                  // knows it
      const std::string what = "cannot connect to the other ranks (" + reason_of(e) + ")";
      const char* const remedy =
          "read the last messages of the other ranks, then start all ranks again";
      meeting.leave(what, describe(environment), remedy);
      throw Error(ErrorCode::kDistributed, what, describe(environment), remedy);
    }
  }
  return std::make_shared<AgreedCalls>(std::move(peers), std::move(collectives), std::move(stop));
}

void require_distributed(int) {}

}  // namespace detail

bool has_distributed() noexcept { return true; }

#else

namespace detail {
namespace {

[[noreturn]] void throw_no_gloo(const std::string& where) {
#ifdef SHARDWISE_HAVE_C10D
  constexpr const char* kLack = "Shardwise was built without Gloo's headers";
  constexpr const char* kOr = ", or give a c10d process group to adopt_process_group()";
#else
  constexpr const char* kLack = "Shardwise was built without c10d";
  constexpr const char* kOr = "";
#endif
  throw Error(ErrorCode::kDistributed,
              std::string("this build can run one rank only (") + kLack + ")", where,
              std::string("build Shardwise with a LibTorch that has c10d and with Gloo's headers, "
                          "e.g. of the packages libtorch-dev and libgloo-dev") +
                  kOr);
}

}  // namespace

std::shared_ptr<AgreedCalls> connect(const RankEnvironment& environment,
                                     const ProcessGroup::Options&,
                                     std::shared_ptr<StopState> stop) {
  if (environment.world_size != 1) throw_no_gloo(describe(environment));
  Peers peers;
  peers.environment = environment;
  return std::make_shared<AgreedCalls>(std::move(peers), nullptr, std::move(stop));
}

void require_distributed(int num_ranks) {
  if (num_ranks != 1) throw_no_gloo(std::to_string(num_ranks) + " local ranks");
}

}  // namespace detail

bool has_distributed() noexcept { return false; }

#endif

}  // namespace shardwise::libtorch
