#include "shardwise/libtorch/process_group.h"
#include "base/rank_environment.h"

#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "libtorch/meeting.h"
#include "libtorch/store_server.h"
#include "shardwise/base/error.h"

#ifdef SHARDWISE_HAVE_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace shardwise::libtorch {
namespace {

/// The first line of what LibTorch says, without its stack trace.
std::string reason_of(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  const std::string text = error != nullptr ? error->what_without_backtrace() : e.what();
  return escaped(text.substr(0, text.find('\n')));
}

std::string name_of(const RankEnvironment& environment) {
  return "rank " + std::to_string(environment.rank) + " of " +
         std::to_string(environment.world_size);
}

}  // namespace

#ifdef SHARDWISE_HAVE_GLOO

struct ProcessGroup::Impl {
  RankEnvironment environment;
  std::int64_t timeout_ms = 0;
  c10::intrusive_ptr<c10d::Store> store;         // outlives gloo
  std::unique_ptr<c10d::ProcessGroupGloo> gloo;  // nullptr: one rank
  std::mutex mutex;
  bool broken = false;  // guarded by mutex

  /// Calls `collective` with the group, or throws what it failed with.
  template <class Collective>
  void call(const char* action, Collective&& collective) {
    const std::lock_guard lock(mutex);
    if (broken) {
      throw Error(ErrorCode::kDistributed, action,
                  name_of(environment) + ", after an earlier failure", "start all ranks again");
    }
    try {
      collective(*gloo)->wait();
    } catch (const std::exception& e) {
      broken = true;
      throw Error(ErrorCode::kDistributed, std::string(action) + " (" + reason_of(e) + ")",
                  name_of(environment),
                  "a peer ended or hangs: look at what the other ranks said last, then start all "
                  "ranks again from the last checkpoint");
    }
  }
};

namespace {

using Clock = std::chrono::steady_clock;

/// Meets the others in the store: each claims its rank, tells its address, and waits for all.
class Meeting {
 public:
  Meeting(c10d::Store& store, const RankEnvironment& environment, Clock::time_point deadline)
      : store_(store), environment_(environment), deadline_(deadline) {}

  void hold(const std::string& own_address) {
    // Before the card: a second process of this rank must not overwrite the first one's.
    if (store_.add(key("claims", environment_.rank), 1) != 1) {
      throw Error(ErrorCode::kDistributed, "two processes are the same rank", name_of(environment_),
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
      if (Clock::now() > deadline_) throw_missing(next);
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
                    name_of(environment_) + ", but rank " + std::to_string(rank) +
                        " has a world size of " + card.substr(0, blank),
                    "start all ranks with the same world size");
      }
      const std::string address = card.substr(blank + 1);
      if (detail::is_loopback(address) != detail::is_loopback(own_address)) {
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
  const Clock::time_point deadline_;
};

c10d::TCPStoreOptions store_options(bool is_server, std::uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = is_server;
  options.waitWorkers = false;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  // From 2.4 on the default is libuv, which distributions build LibTorch without. Both kinds of
  // store speak the same protocol, so a client need not know which a launcher opened.
  options.useLibUV = false;
#endif
  return options;
}

c10::intrusive_ptr<c10d::TCPStore> open_store(const RankEnvironment& environment,
                                              std::int64_t timeout_ms) {
  auto options =
      store_options(environment.rank == 0 && !environment.launcher_store, environment.master_port);
  options.timeout = std::chrono::milliseconds(timeout_ms);
  const std::string place =
      environment.master_address + ":" + std::to_string(environment.master_port);
  try {
    return c10::make_intrusive<c10d::TCPStore>(environment.master_address, options);
  } catch (const std::exception& e) {
    throw Error(ErrorCode::kDistributed,
                (options.isServer ? "rank 0 cannot open the ranks' meeting point ("
                                  : "cannot join the ranks' meeting point (") +
                    reason_of(e) + ")",
                place,
                options.isServer
                    ? "set MASTER_PORT to a free port of this machine"
                    : (environment.launcher_store
                           ? "if torchrun belongs to another LibTorch, set "
                             "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before it"
                           : "check that rank 0 runs, and MASTER_ADDR and MASTER_PORT"));
  }
}

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::SUM;
}

/// Runs `collective` on a tensor that Gloo can take: on the CPU and contiguous.
template <class Collective>
void on_plain_tensor(const torch::Tensor& tensor, Collective&& collective) {
  const torch::NoGradGuard no_grad;
  torch::Tensor plain = tensor.detach();
  if (!plain.device().is_cpu() || !plain.is_contiguous()) plain = plain.cpu().contiguous();
  std::vector<torch::Tensor> tensors = {plain};
  collective(tensors);
  if (plain.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(plain);
}

}  // namespace

ProcessGroup ProcessGroup::connect(const RankEnvironment& environment,
                                   const ProcessGroupOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->environment = environment;
  impl->timeout_ms = options.timeout_ms;
  if (environment.world_size == 1) return ProcessGroup(std::move(impl));

  const auto deadline = Clock::now() + std::chrono::milliseconds(options.connect_timeout_ms);
  const bool listens = environment.rank == 0 && !environment.launcher_store;
  c10::intrusive_ptr<c10d::Store> root;
  if (listens) root = open_store(environment, options.connect_timeout_ms);
  // TCPStore would wait for the listener, too, but writes warnings to stderr while it does.
  std::string own_address =
      detail::wait_for_listener(environment.master_address, environment.master_port, deadline);
  if (!listens) root = open_store(environment, options.connect_timeout_ms);

  std::string stage = "cannot meet the other ranks";
  try {
    impl->store = c10::make_intrusive<c10d::PrefixStore>("shardwise/" + environment.attempt, root);
    impl->store->setTimeout(std::chrono::milliseconds(options.connect_timeout_ms));
    Meeting(*impl->store, environment, deadline).hold(own_address);

    stage = "cannot connect to the other ranks";
    auto gloo_options = c10d::ProcessGroupGloo::Options::create();
    gloo_options->timeout = std::chrono::milliseconds(options.timeout_ms);
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    gloo_options->devices.push_back(
        interface != nullptr ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                             : c10d::ProcessGroupGloo::createDeviceForHostname(own_address));
    auto gloo_store = c10::make_intrusive<c10d::PrefixStore>("gloo", impl->store);
    impl->gloo = std::make_unique<c10d::ProcessGroupGloo>(gloo_store, environment.rank,
                                                          environment.world_size, gloo_options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(ErrorCode::kDistributed, stage + " (" + reason_of(e) + ")", name_of(environment),
                "look at what the other ranks said last, and start all ranks again");
  }
  ProcessGroup group(std::move(impl));
  group.barrier();  // nobody needs the store after this: rank 0 may leave when it likes
  return group;
}

void ProcessGroup::all_reduce(const torch::Tensor& tensor, ReduceOp op) const {
  if (world_size() == 1) return;
  on_plain_tensor(tensor, [&](std::vector<torch::Tensor>& tensors) {
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    options.timeout = std::chrono::milliseconds(impl_->timeout_ms);
    impl_->call("cannot reduce over the ranks",
                [&](c10d::ProcessGroupGloo& gloo) { return gloo.allreduce(tensors, options); });
  });
}

void ProcessGroup::broadcast(const torch::Tensor& tensor, int root) const {
  if (root < 0 || root >= world_size()) {
    throw OutOfRange("no such rank", std::to_string(root),
                     "ranks are 0 to " + std::to_string(world_size() - 1));
  }
  if (world_size() == 1) return;
  on_plain_tensor(tensor, [&](std::vector<torch::Tensor>& tensors) {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = std::chrono::milliseconds(impl_->timeout_ms);
    impl_->call("cannot broadcast to the ranks",
                [&](c10d::ProcessGroupGloo& gloo) { return gloo.broadcast(tensors, options); });
  });
}

namespace detail {

StoreServer start_store_server(int) {
  try {
    const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store_options(true, 0));
    return {std::make_shared<c10::intrusive_ptr<c10d::TCPStore>>(store), store->getPort()};
  } catch (const std::exception& e) {
    throw Error(ErrorCode::kDistributed, "cannot open a meeting point (" + reason_of(e) + ")",
                "127.0.0.1", "check the limits on sockets and threads");
  }
}

}  // namespace detail

bool has_distributed() noexcept { return true; }

#else  // one rank only

struct ProcessGroup::Impl {
  RankEnvironment environment;
};

namespace {

[[noreturn]] void throw_no_gloo(const std::string& where) {
  throw Error(ErrorCode::kDistributed, "this build can run one rank only", where,
              "build it with a LibTorch that comes with Gloo's headers, as the distribution's does "
              "(libtorch-dev and libgloo-dev)");
}

}  // namespace

ProcessGroup ProcessGroup::connect(const RankEnvironment& environment, const ProcessGroupOptions&) {
  if (environment.world_size != 1) throw_no_gloo(name_of(environment));
  auto impl = std::make_shared<Impl>();
  impl->environment = environment;
  return ProcessGroup(std::move(impl));
}

void ProcessGroup::all_reduce(const torch::Tensor&, ReduceOp) const {}
void ProcessGroup::broadcast(const torch::Tensor&, int) const {}

namespace detail {

StoreServer start_store_server(int num_ranks) {
  if (num_ranks != 1) throw_no_gloo(std::to_string(num_ranks) + " local ranks");
  return {};
}

}  // namespace detail

bool has_distributed() noexcept { return false; }

#endif

ProcessGroup::ProcessGroup() : impl_(std::make_shared<Impl>()) {}

int ProcessGroup::rank() const noexcept { return impl_->environment.rank; }
int ProcessGroup::world_size() const noexcept { return impl_->environment.world_size; }
int ProcessGroup::local_rank() const noexcept { return impl_->environment.local_rank; }
int ProcessGroup::local_world_size() const noexcept { return impl_->environment.local_world_size; }

std::int64_t ProcessGroup::all_reduce(std::int64_t value, ReduceOp op) const {
  const auto tensor = torch::full({1}, value, torch::kInt64);
  all_reduce(tensor, op);
  return tensor.item<std::int64_t>();
}

double ProcessGroup::all_reduce(double value, ReduceOp op) const {
  const auto tensor = torch::full({1}, value, torch::kFloat64);
  all_reduce(tensor, op);
  return tensor.item<double>();
}

// A reduction whose result all ranks need cannot end before every rank has begun.
void ProcessGroup::barrier() const { all_reduce(std::int64_t{0}); }

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  return ProcessGroup::connect(rank_environment(), options);
}

}  // namespace shardwise::libtorch
