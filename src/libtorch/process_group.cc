#include "shardwise/libtorch/process_group.h"

#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error_types.h"
#include "base/fork.h"
#include "base/rank_environment.h"
#include "base/text.h"
#include "libtorch/listener.h"
#include "libtorch/rendezvous.h"
#include "libtorch/store_server.h"

#ifdef SHARDWISE_HAVE_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace shardwise::libtorch {

#ifdef SHARDWISE_HAVE_GLOO

namespace {

/// The first line of what LibTorch says, without its stack trace.
std::string reason_of(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  const std::string text = error != nullptr ? error->what_without_backtrace() : e.what();
  return escaped(text.substr(0, text.find('\n')));
}

}  // namespace

struct ProcessGroup::Impl {
  RankEnvironment environment;
  std::chrono::milliseconds timeout{};
  c10::intrusive_ptr<c10d::Store> store;         // outlives gloo
  std::unique_ptr<c10d::ProcessGroupGloo> gloo;  // nullptr: one rank
  LongMutex mutex;                               // held for as long as a collective takes
  bool broken SHARDWISE_GUARDED_BY(mutex) = false;

  /// Calls `collective` with the group, or throws what it failed with.
  template <class Collective>
  void call(const char* action, Collective&& collective) {
    const Lock lock(mutex);
    if (broken) {
      throw Error(ErrorCode::kDistributed, action,
                  describe(environment) + ", after an earlier failure", "start all ranks again");
    }
    try {
      collective(*gloo)->wait();
    } catch (const std::exception& e) {
      broken = true;
      throw Error(ErrorCode::kDistributed, std::string(action) + " (" + reason_of(e) + ")",
                  describe(environment),
                  "a peer ended or hangs: look at what the other ranks said last, then start all "
                  "ranks again from the last checkpoint");
    }
  }
};

namespace {

using Clock = std::chrono::steady_clock;

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
                                              std::chrono::milliseconds timeout) {
  auto options =
      store_options(environment.rank == 0 && !environment.launcher_store, environment.master_port);
  options.timeout = timeout;
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

c10d::ReduceOp to_c10d(ProcessGroup::ReduceOp op) {
  switch (op) {
    case ProcessGroup::ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ProcessGroup::ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ProcessGroup::ReduceOp::kMax:
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
                                   const ProcessGroup::Options& options) {
  auto impl = std::make_shared<Impl>();
  impl->environment = environment;
  impl->timeout = options.timeout;
  if (environment.world_size == 1) return ProcessGroup(std::move(impl));

  const auto deadline = Clock::now() + options.connect_timeout;
  const bool listens = environment.rank == 0 && !environment.launcher_store;
  c10::intrusive_ptr<c10d::Store> root;
  if (listens) root = open_store(environment, options.connect_timeout);
  // TCPStore would wait for the listener, too, but writes warnings to stderr while it does.
  std::string own_address =
      detail::wait_for_listener(environment.master_address, environment.master_port, deadline);
  if (!listens) root = open_store(environment, options.connect_timeout);

  std::string stage = "cannot meet the other ranks";
  try {
    impl->store = c10::make_intrusive<c10d::PrefixStore>("shardwise/" + environment.attempt, root);
    impl->store->setTimeout(options.connect_timeout);
    detail::rendezvous(*impl->store, environment, own_address, deadline);

    stage = "cannot connect to the other ranks";
    auto gloo_options = c10d::ProcessGroupGloo::Options::create();
    gloo_options->timeout = options.timeout;
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
    throw Error(ErrorCode::kDistributed, stage + " (" + reason_of(e) + ")", describe(environment),
                "look at what the other ranks said last, and start all ranks again");
  }
  ProcessGroup group(std::move(impl));
  group.barrier();  // nobody needs the store after this: rank 0 may leave when it likes
  return group;
}

void ProcessGroup::all_reduce(const torch::Tensor& tensor, ProcessGroup::ReduceOp op) const {
  if (world_size() == 1) return;
  on_plain_tensor(tensor, [&](std::vector<torch::Tensor>& tensors) {
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    options.timeout = impl_->timeout;
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
    options.timeout = impl_->timeout;
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

ProcessGroup ProcessGroup::connect(const RankEnvironment& environment,
                                   const ProcessGroup::Options&) {
  if (environment.world_size != 1) throw_no_gloo(describe(environment));
  auto impl = std::make_shared<Impl>();
  impl->environment = environment;
  return ProcessGroup(std::move(impl));
}

void ProcessGroup::all_reduce(const torch::Tensor&, ProcessGroup::ReduceOp) const {}
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

std::int64_t ProcessGroup::all_reduce(std::int64_t value, ProcessGroup::ReduceOp op) const {
  const auto tensor = torch::full({1}, value, torch::kInt64);
  all_reduce(tensor, op);
  return tensor.item<std::int64_t>();
}

double ProcessGroup::all_reduce(double value, ProcessGroup::ReduceOp op) const {
  const auto tensor = torch::full({1}, value, torch::kFloat64);
  all_reduce(tensor, op);
  return tensor.item<double>();
}

// A reduction whose result all ranks need cannot end before every rank has begun.
void ProcessGroup::barrier() const { all_reduce(std::int64_t{0}); }

ProcessGroup init_process_group(const ProcessGroup::Options& options) {
  return ProcessGroup::connect(rank_environment(), options);
}

}  // namespace shardwise::libtorch
