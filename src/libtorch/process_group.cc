#include "shardwise/libtorch/process_group.h"

#include <torch/torch.h>
#include <torch/version.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <optional>
#include <random>
#include <sstream>
#include <string_view>
#include <thread>
#include <type_traits>

#include "base/agreement.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/fork.h"
#include "base/rank_environment.h"
#include "base/text.h"
#include "libtorch/call_queue.h"
#include "libtorch/group_access.h"
#include "libtorch/reduction.h"
#include "libtorch/rendezvous/own_address.h"
#include "libtorch/rendezvous/peer_probe.h"
#include "libtorch/rendezvous/rendezvous.h"
#include "libtorch/rendezvous_store.h"
#include "libtorch/require_distributed.h"
#include "shardwise/libtorch/adopt.h"

#ifdef SHARDWISE_HAVE_C10D
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "libtorch/collectives.h"
#endif
#ifdef SHARDWISE_HAVE_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace shardwise::libtorch {
namespace {

#ifndef SHARDWISE_HAVE_GLOO
[[noreturn]] void throw_no_gloo(const std::string& where) {
#ifdef SHARDWISE_HAVE_C10D
  constexpr const char* kLack = "it was built without Gloo's headers";
  constexpr const char* kOr = ", or give adopt_process_group() a group of c10d";
#else
  constexpr const char* kLack = "it was built without c10d";
  constexpr const char* kOr = "";
#endif
  throw Error(
      ErrorCode::kDistributed, std::string("this build can run one rank only (") + kLack + ")",
      where,
      std::string("build it with a LibTorch that comes with c10d and Gloo's headers, as the "
                  "distribution's does (libtorch-dev and libgloo-dev)") +
          kOr);
}
#endif

/// What every build has of a group.
struct GroupBase {
  RankEnvironment environment;
  std::shared_ptr<StopState> stop;  // nullptr: the ranks do not stop together
  GroupAccess::Counts counts;
};

}  // namespace

#ifdef SHARDWISE_HAVE_C10D

namespace {

/// The first line of what LibTorch says, without its stack trace.
std::string reason_of(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  const std::string text = error != nullptr ? error->what_without_backtrace() : e.what();
  return escaped(text.substr(0, text.find('\n')));
}

/// What every collective begins with, the same size on all ranks whatever they call: an exchange of
/// these never fails for what the ranks disagree about. What is small goes along.
struct Announcement {
  static constexpr std::size_t kRoom = 200;

  std::uint64_t number = 0;
  std::int64_t num_elements = 0;
  std::int64_t count = 0;  // goes along; may differ
  std::int32_t root = 0;
  std::uint8_t op = 0;
  std::int8_t type = 0;
  std::array<char, 13> name{};
  bool saves = false;  // a checkpoint is due; rank 0's counts
  // Why this rank wants to stop; the reason's text follows if it is news to all.
  StopLevel stop = StopLevel::kGoOn;
  std::uint8_t exit_code = 0;
  std::uint16_t reason_size = 0;
  std::array<char, kRoom> payload{};
};
static_assert(std::is_trivially_copyable_v<Announcement> && sizeof(Announcement) == 248);

void set_name(Announcement& call, const char* name) {
  std::string_view(name).copy(call.name.data(), call.name.size() - 1);
}

/// "all_reduce(max) of 3 long int".
std::string describe(const Announcement& call) {
  std::string text(call.name.data());
  constexpr std::array<const char*, 4> kOps = {"sum", "min", "max", ""};
  if (text == "broadcast") text += " from rank " + std::to_string(call.root);
  if (text == "all_reduce")
    text += "(" + std::string(kOps[std::min<std::size_t>(call.op, 3)]) + ")";
  if (call.num_elements > 0) {
    text += " of " + std::to_string(call.num_elements) + " " +
            c10::toString(static_cast<torch::ScalarType>(call.type));
  }
  return text;
}

std::string random_name() {
  std::random_device random;
  return std::to_string(random()) + "-" + std::to_string(random());
}

/// The name of a call that is made instead of the one that the other ranks are at.
constexpr std::string_view kGivenUp = "given up";

bool is_given_up(const Announcement& call) { return call.name.data() == kGivenUp; }

/// The record by which all ranks' calls are the same.
Record record_of(const Announcement& call) {
  return {{"call", std::to_string(call.number) + ", " + describe(call)}};
}

bool is_same(const Announcement& a, const Announcement& b) {
  return a.number == b.number && a.num_elements == b.num_elements && a.root == b.root &&
         a.op == b.op && a.type == b.type && a.name == b.name;
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

bool fits(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.nbytes()) <= Announcement::kRoom;
}

}  // namespace

struct ProcessGroup::Impl : GroupBase {
  using Calls = std::vector<Announcement>;  // by rank

  std::chrono::milliseconds timeout{};
  std::unique_ptr<detail::Collectives> collectives;  // nullptr: one rank
  LongMutex mutex;                                   // held for as long as a collective takes
  bool broken SHARDWISE_GUARDED_BY(mutex) = false;
  std::uint64_t num_calls SHARDWISE_GUARDED_BY(mutex) = 0;
  std::vector<RankInfo> peers;  // by rank
  std::optional<PeerProbe> box;
  PeerProbe::Options letters;
  std::string last_call = "none";  // that all ranks made
  std::uint64_t num_steps = 0;     // gradients that were averaged
  detail::CallQueue queue;         // the last member: its thread uses the others

  /// Calls `collective(calls)` once every rank has announced the same call, with what goes along.
  /// @param action  what cannot be done, for errors.
  template <class Collective>
  void call(const char* action, Announcement own, Collective&& collective) {
    const Lock lock(mutex);
    if (broken) {
      throw Error(ErrorCode::kDistributed, action,
                  describe(environment) + ", after an earlier failure", "start all ranks again");
    }
    if (stop && stop->is_closed()) throw_given_up();
    broken = true;  // until it has ended well
    own.number = ++num_calls;
    StopWord word;
    if (stop) {
      stop->end_update();
      word = stop->own();
      word.reason.resize(std::min(word.reason.size(), kMostReason));
      own.saves = stop->is_save_due();
      own.stop = word.level;
      own.exit_code = word.exit_code;
      own.reason_size = static_cast<std::uint16_t>(word.reason.size());
    }
    const Calls calls = run(action, [&] { return exchange(own); });
    if (stop) {
      run(action, [&] {
        hear(calls, word.reason);
        return 0;
      });
      if (std::any_of(calls.begin(), calls.end(), is_given_up)) {
        stop->close(!is_given_up(calls[0]) || calls[0].count == 0);
        broken = false;  // all ranks have made the call
        if (!is_given_up(own)) throw_given_up();
        return;
      }
    }
    require_same_call(action, calls);
    last_call = std::to_string(own.number) + ", " + describe(own);
    run(action, [&] {
      collective(calls);
      return 0;
    });
    broken = false;
  }

  bool is_usable() {
    const Lock lock(mutex);
    return !broken;
  }

  /// "rank 1 of 3 (host b, process 811)".
  std::string name_of(std::size_t rank) const {
    return "rank " + std::to_string(rank) + " of " + std::to_string(environment.world_size) +
           " (host " + escaped(peers[rank].host) + ", process " +
           std::to_string(peers[rank].process) + ")";
  }

 private:
  static constexpr std::size_t kMostReason = 4000;

  /// Takes the largest word of the ranks, and of these the lowest rank's, if it is news.
  void hear(const Calls& calls, const std::string& own_reason) {
    if (calls[0].saves) stop->agree_on_save();
    const auto first = std::max_element(
        calls.begin(), calls.end(),
        [](const Announcement& a, const Announcement& b) { return a.stop < b.stop; });
    if (first->stop <= stop->agreed().level) return;
    std::int64_t most = 1;
    for (const Announcement& each : calls) {
      most = std::max<std::int64_t>(most, each.reason_size);
    }
    const std::vector<std::string> reasons = gather_texts(own_reason, most);
    const auto rank = static_cast<std::size_t>(first - calls.begin());
    const std::string text = reasons[rank].substr(0, first->reason_size);
    stop->agree({first->stop, first->exit_code,
                 first->stop == StopLevel::kFailed
                     ? name_of(rank) + ": " + text
                     : text + " (rank " + std::to_string(rank) + ")"});
  }

  [[noreturn]] void throw_given_up() const {
    const std::string& reason = stop->agreed().reason;
    if (stop->agreed().level == StopLevel::kFailed) {
      throw Error(ErrorCode::kDistributed, "a rank failed", reason, "");
    }
    throw Cancelled("the ranks stop", reason, "");
  }

  template <class Work>
  auto run(const char* action, Work&& work) {
    try {
      return work();
    } catch (const std::exception& e) {
      throw_lost(action, reason_of(e));
    }
  }

  /// Says who is gone. The connections are closed first: ranks that wait for this one fail then,
  /// too, and do not wait until their timeout.
  [[noreturn]] void throw_lost(const std::string& action, const std::string& reason) {
    if (!box) {  // of a group of the program, whose ranks do not reach each other
      throw Error(ErrorCode::kDistributed, action + " (" + reason + ")", describe(environment),
                  "a peer ended or hangs: look at what the other ranks said last, then start all "
                  "ranks again from the last checkpoint");
    }
    collectives->close();
    const PeerProbe::Lost lost = box->ask(letters);
    std::string what = reason;
    std::vector<int> ranks = lost.ended;
    if (!lost.ended.empty()) {
      what = lost.ended.size() == 1 ? "a rank ended" : "ranks ended";
    } else if (lost.is_own) {
      what = "the other ranks gave this one up, since it did not answer in time";
    } else if (!lost.silent.empty()) {
      ranks = lost.silent;
      what = ranks.size() == 1 ? "a rank does not answer" : "ranks do not answer";
    }
    std::string where = describe(environment);
    for (const int rank : ranks) {
      where += (rank == ranks.front() ? " lost " : ", ") + name_of(static_cast<std::size_t>(rank));
    }
    where += "; the last call of all ranks was " + last_call;
    if (num_steps > 0) where += ", after " + std::to_string(num_steps) + " steps";
    throw Error(ErrorCode::kDistributed, action + " (" + what + ")", where,
                ranks.empty() ? "look at what the other ranks said last, then start all ranks "
                                "again from the last checkpoint"
                              : "look at what was said there last, then start all ranks again from "
                                "the last checkpoint");
  }

  /// What each rank says: as many lines of text on each. One exchange, and a gathering.
  std::vector<std::vector<std::string>> introduce(const std::vector<std::string>& own) {
    constexpr std::size_t kMost = 1024;
    std::string text;
    for (const std::string& line : own) text += escaped(line) + '\n';
    text.resize(std::min(text.size(), kMost));
    Announcement announcement;
    set_name(announcement, "introduce");
    std::vector<std::vector<std::string>> all;
    call("cannot introduce the ranks to each other", announcement, [&](const Calls&) {
      for (const std::string& bytes : gather_texts(text, kMost)) {
        std::istringstream in(bytes);
        auto& lines = all.emplace_back(own.size());
        for (std::string& line : lines) std::getline(in, line);
      }
    });
    return all;
  }

  /// Tries it, by letters that count for nothing else: an address may be another machine's, too.
  bool reaches_all() {
    PeerProbe::Options trial = letters;
    trial.key += " trial";
    trial.most = std::chrono::seconds(5);
    const PeerProbe::Lost lost = box->ask(trial);
    return lost.ended.empty() && lost.silent.empty() && !lost.is_own;
  }

  Calls exchange(const Announcement& own) {
    ++counts.exchanges;
    const auto size = static_cast<std::int64_t>(sizeof own);
    auto input = torch::empty({size}, torch::kUInt8);
    std::memcpy(input.data_ptr(), &own, sizeof own);
    const auto bytes = gather(input);
    Calls calls(bytes.size());
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      std::memcpy(static_cast<void*>(&calls[rank]), bytes[rank].data_ptr(), sizeof own);
      calls[rank].name.back() = 0;
    }
    return calls;
  }

  void require_same_call(const char* action, const Calls& calls) const {
    std::vector<Record> records;
    records.reserve(calls.size());
    for (const Announcement& call : calls) {
      if (is_same(call, calls[0])) continue;
      records.clear();
      for (const Announcement& each : calls) records.push_back(record_of(each));
      throw Error(ErrorCode::kDistributed, std::string(action) + " (the ranks are out of step)",
                  describe(environment) + ": " + find_disagreement(records).value_or(""),
                  "every rank must make the same calls in the same order: look for one that only "
                  "some ranks make, then start all ranks again from the last checkpoint");
    }
  }

 public:
  /// Of each rank the bytes that it gives, with zeros behind them up to `size`.
  std::vector<std::string> gather_texts(const std::string& own, std::int64_t size) {
    auto padded = torch::zeros({size}, torch::kUInt8);
    std::memcpy(padded.data_ptr(), own.data(), own.size());
    ++counts.collectives;
    std::vector<std::string> texts;
    for (const torch::Tensor& bytes : gather(padded)) {
      texts.emplace_back(static_cast<const char*>(bytes.data_ptr()),
                         static_cast<std::size_t>(size));
    }
    return texts;
  }

  /// For a group that did not meet here: finds out where its ranks are. Each gets a letter box, if
  /// all of them reach all others at theirs. Four exchanges.
  void introduce_ranks() {
    const auto of_ranks =
        introduce({own_host_name(), std::to_string(::getpid()), own_network(), random_name()});
    bool is_one_network = true;
    for (const auto& lines : of_ranks) {
      const auto process = static_cast<std::uint32_t>(parse_int64(lines[1]).value_or(0));
      peers.push_back({.host = lines[0], .address = {}, .process = process});
      is_one_network = is_one_network && !lines[2].empty() && lines[2] == of_ranks[0][2];
    }
    letters.rank = environment.rank;
    letters.key = of_ranks[0][3];
    const std::string address = is_one_network ? "127.0.0.1" : own_address();
    try {
      box.emplace(address);
    } catch (const Error&) {  // they do without
    }
    const std::string port = std::to_string(box ? box->port() : 0);
    bool has_all = true;
    for (const auto& lines : introduce({address, port})) {
      const auto at = static_cast<std::uint16_t>(parse_int64(lines[1]).value_or(0));
      letters.addresses.push_back({lines[0], at});
      has_all = has_all && at != 0;
    }
    const bool is_reached = has_all && reaches_all();
    for (const auto& lines : introduce({is_reached ? "yes" : "no"})) {
      if (lines[0] != "yes") box.reset();
    }
  }

  void reduce(const torch::Tensor& tensor, ProcessGroup::ReduceOp op) {
    std::vector<torch::Tensor> wide = {detail::widened(tensor)};
    torch::Tensor nans;  // backends compare them in ways of their own, but all add them alike
    if (op != ProcessGroup::ReduceOp::kSum && wide[0].is_floating_point()) {
      nans = wide[0].mul(0).masked_fill_(wide[0].isnan().logical_not_(), 0);
      reduce(nans, ProcessGroup::ReduceOp::kSum);
    }
    ++counts.collectives;
    collectives->all_reduce(wide, to_c10d(op), timeout);
    if (nans.defined()) wide[0].masked_fill_(nans.isnan(), NAN);
    detail::narrow_into(tensor, wide[0]);
  }

  /// Of each rank a tensor like `input`, on the CPU.
  std::vector<torch::Tensor> gather(const torch::Tensor& input) {
    auto outputs = collectives->all_gather(collectives->prepared(input), timeout);
    for (torch::Tensor& output : outputs) output = output.cpu();
    return outputs;
  }
};

namespace {

/// Runs `collective` on a tensor that the group can take; on the CPU, if it goes with the call.
template <class Collective>
void on_plain_tensor(const detail::Collectives& collectives, const torch::Tensor& tensor,
                     Collective&& collective) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor whole = tensor.detach().resolve_conj().resolve_neg();
  const torch::Tensor plain = fits(whole) ? whole.cpu().contiguous() : collectives.prepared(whole);
  collective(plain);
  if (plain.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(plain);
}

/// Announces a call on `tensor`, which goes along if it is small.
Announcement announcement_of(const char* name, const torch::Tensor& tensor) {
  Announcement call;
  set_name(call, name);
  call.type = static_cast<std::int8_t>(tensor.scalar_type());
  call.num_elements = tensor.numel();
  if (fits(tensor)) std::memcpy(call.payload.data(), tensor.data_ptr(), tensor.nbytes());
  return call;
}

/// The tensor that went along with a call.
torch::Tensor payload_of(const Announcement& call, const torch::Tensor& like) {
  auto tensor = torch::empty_like(like);
  std::memcpy(tensor.data_ptr(), call.payload.data(), tensor.nbytes());
  return tensor;
}

/// Reduces what went along with a call.
void reduce_payloads(const std::vector<Announcement>& calls, ProcessGroup::ReduceOp op,
                     const torch::Tensor& tensor) {
  std::vector<torch::Tensor> of_ranks;
  for (const Announcement& call : calls) {
    of_ranks.push_back(detail::widened(payload_of(call, tensor)));
  }
  detail::narrow_into(tensor, detail::reduced(of_ranks, op));
}

template <class Group>
std::unique_ptr<detail::Collectives> collectives_of(Group* group, std::shared_ptr<void> owner) {
  using Base = std::conditional_t<std::is_convertible_v<Group*, c10d::ProcessGroup*>,
                                  c10d::ProcessGroup, c10d::Backend>;
  return std::make_unique<detail::CollectivesOf<Base>>(group, std::move(owner));
}

/// What all ranks must have alike to understand each other.
Record basics(bool has_guard) {
  return {{"version of shardwise", SHARDWISE_VERSION},
          {"version of LibTorch", TORCH_VERSION},
          {"StopGuard", has_guard ? "given" : "not given"}};
}

}  // namespace

#ifdef SHARDWISE_HAVE_GLOO

namespace {

/// One more for each group of this process: what ranks meet for.
std::uint32_t next_round() {
  static std::atomic<std::uint32_t> rounds{0};
  return rounds++;
}

/// Connecting has a timeout of its own: of LibTorch 1.13 most calls know no other than that with
/// which their group was made.
class GlooGroup final : public c10d::ProcessGroupGloo {
 public:
  using c10d::ProcessGroupGloo::ProcessGroupGloo;

  /// Of all calls from now on.
  void set_timeout(std::chrono::milliseconds timeout) {
    options_->timeout = timeout;
    for (const auto& context : contexts_) Timeout::set(*context, timeout);
  }

 private:
  /// Gloo's own setter is in its library, with which a program need not be linked.
  struct Timeout : ::gloo::Context {
    static void set(::gloo::Context& context, std::chrono::milliseconds timeout) {
      context.*(&Timeout::timeout_) = timeout;
    }
  };
};

/// Gloo hears of no cancel while it connects, and of no rank that has left, so a thread does it.
/// Where this one gives up, that one goes on by itself until Gloo's timeout.
/// Errors: those of Rendezvous; what c10d throws.
c10::intrusive_ptr<GlooGroup> connect_gloo(
    const c10::intrusive_ptr<detail::RendezvousStore>& store, const RankEnvironment& environment,
    const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options) {
  constexpr std::chrono::milliseconds kSlice{20};
  std::promise<c10::intrusive_ptr<GlooGroup>> promise;
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

/// Where the ranks' letter boxes are.
PeerProbe::Options letters_of(Rendezvous& meeting, const RankEnvironment& ranks) {
  PeerProbe::Options letters;
  letters.rank = ranks.rank;
  letters.key = meeting.get("letters");
  for (int rank = 0; rank < ranks.world_size; ++rank) {
    const auto port = parse_int64(meeting.get("letters " + std::to_string(rank))).value_or(0);
    letters.addresses.push_back({meeting.ranks()[static_cast<std::size_t>(rank)].address,
                                 static_cast<std::uint16_t>(port)});
  }
  return letters;
}

}  // namespace

ProcessGroup ProcessGroup::connect(const RankEnvironment& environment,
                                   const ProcessGroup::Options& options,
                                   std::shared_ptr<StopState> stop) {
  auto impl = std::make_shared<Impl>();
  impl->environment = environment;
  impl->stop = std::move(stop);
  impl->timeout = options.timeout;
  if (environment.world_size == 1) return ProcessGroup(std::move(impl));

  Rendezvous meeting({.ranks = environment,
                      .point = meeting_point(environment),
                      .round = next_round(),
                      .timeout = options.connect_timeout,
                      .cancel = options.cancel,
                      .notice = options.notice,
                      .record = basics(impl->stop != nullptr)});
  impl->peers = meeting.ranks();
  if (!environment.knows_local) {
    const auto [rank, count] = shardwise::detail::local_rank_of(meeting.ranks(), environment.rank);
    impl->environment.local_rank = rank;
    impl->environment.local_world_size = count;
  }
  try {
    auto gloo_options = c10d::ProcessGroupGloo::Options::create();
    gloo_options->timeout = std::max(meeting.time_left(), std::chrono::milliseconds(1000));
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    gloo_options->devices.push_back(
        interface != nullptr
            ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
            : c10d::ProcessGroupGloo::createDeviceForHostname(meeting.own_address()));
    impl->box.emplace(meeting.own_address());
    if (environment.rank == 0) meeting.set("letters", random_name());
    meeting.set("letters " + std::to_string(environment.rank), std::to_string(impl->box->port()));
    const auto store = c10::make_intrusive<detail::RendezvousStore>(meeting);
    auto gloo = connect_gloo(store, environment, gloo_options);
    gloo->set_timeout(options.timeout);
    impl->collectives = collectives_of(gloo.get(), std::make_shared<decltype(gloo)>(gloo));
    store->close();
    impl->letters = letters_of(meeting, environment);
    meeting.finish();  // nobody needs rank 0 after this
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    meeting.throw_if_over(std::chrono::milliseconds(1000));  // who was lost
    const std::string what = "cannot connect to the other ranks (" + reason_of(e) + ")";
    const char* const remedy = "look at what the other ranks said last, and start all ranks again";
    meeting.leave(what, describe(environment), remedy);
    throw Error(ErrorCode::kDistributed, what, describe(environment), remedy);
  }
  return ProcessGroup(std::move(impl));
}
#endif

void ProcessGroup::all_reduce(const torch::Tensor& tensor, ProcessGroup::ReduceOp op) const {
  detail::require_reducible(tensor, op);
  if (world_size() == 1) return;
  on_plain_tensor(*impl_->collectives, tensor, [&](const torch::Tensor& plain) {
    auto call = announcement_of("all_reduce", plain);
    call.op = static_cast<std::uint8_t>(op);
    impl_->call("cannot reduce over the ranks", call, [&](const Impl::Calls& calls) {
      fits(plain) ? reduce_payloads(calls, op, plain) : impl_->reduce(plain, op);
    });
  });
}

std::int64_t GroupAccess::add_with_count(const ProcessGroup& group, const torch::Tensor& tensor,
                                         std::int64_t count, const char* name, bool ends_step) {
  auto& impl = *group.impl_;
  if (group.world_size() == 1) {
    if (impl.stop && ends_step) impl.stop->begin_update();
    return count;
  }
  std::int64_t total = 0;
  on_plain_tensor(*impl.collectives, tensor, [&](const torch::Tensor& plain) {
    constexpr auto kSum = ProcessGroup::ReduceOp::kSum;
    auto call = announcement_of(name, plain);
    call.count = count;
    impl.call("cannot reduce over the ranks", call, [&](const std::vector<Announcement>& calls) {
      for (const Announcement& each : calls) total += each.count;
      fits(plain) ? reduce_payloads(calls, kSum, plain) : impl.reduce(plain, kSum);
    });
  });
  if (!ends_step) return total;
  ++impl.num_steps;
  if (impl.stop) impl.stop->begin_update();
  return total;
}

detail::CallQueue& GroupAccess::queue(const ProcessGroup& group) { return group.impl_->queue; }

ProcessGroup GroupAccess::unowned(const ProcessGroup& group) {
  return ProcessGroup(
      std::shared_ptr<ProcessGroup::Impl>(std::shared_ptr<void>(), group.impl_.get()));
}

void GroupAccess::end_queued(const ProcessGroup& group) { group.impl_->queue.drain(); }

bool GroupAccess::is_usable(const ProcessGroup& group) {
  return group.world_size() == 1 || group.impl_->is_usable();
}

void GroupAccess::end_run(const ProcessGroup& group) {
  Announcement call;
  set_name(call, "end of run");
  group.impl_->call("cannot end the run with the other ranks", call, [](const auto&) {});
}

void GroupAccess::give_up(const ProcessGroup& group) {
  Announcement call;
  set_name(call, kGivenUp.data());
  call.count = group.impl_->stop->updates() ? 1 : 0;
  group.impl_->call("cannot tell the other ranks", call, [](const auto&) {});
}

void GroupAccess::throw_if_stopping(const ProcessGroup& group, const char* name) {
  const auto& stop = group.impl_->stop;
  if (!stop) return;
  if (group.world_size() == 1) {
    stop->agree(stop->own());
  } else {
    Announcement call;
    set_name(call, name);
    group.impl_->call("cannot go on with the other ranks", call, [](const auto&) {});
  }
  if (stop->agreed().is_at_once()) throw Cancelled("the ranks stop", stop->agreed().reason, "");
}

void ProcessGroup::broadcast(const torch::Tensor& tensor, int root) const {
  if (root < 0 || root >= world_size()) {
    throw OutOfRange("no such rank", std::to_string(root),
                     "ranks are 0 to " + std::to_string(world_size() - 1));
  }
  if (world_size() == 1) return;
  on_plain_tensor(*impl_->collectives, tensor, [&](const torch::Tensor& plain) {
    auto call = announcement_of("broadcast", plain);
    call.root = root;
    impl_->call("cannot broadcast to the ranks", call, [&](const Impl::Calls& calls) {
      if (fits(plain)) {
        plain.copy_(payload_of(calls[static_cast<std::size_t>(root)], plain));
        return;
      }
      ++impl_->counts.collectives;
      impl_->collectives->broadcast(plain, root, impl_->timeout);
    });
  });
}

void ProcessGroup::barrier() const {
  if (world_size() == 1) return;
  Announcement call;
  set_name(call, "barrier");
  impl_->call("cannot wait for the ranks", call, [](const Impl::Calls&) {});
}

void ProcessGroup::require_same(
    const std::vector<std::pair<std::string, std::string>>& record) const {
  if (world_size() == 1) return;
  const std::string own = shardwise::detail::to_bytes(record);
  Announcement call;
  set_name(call, "require_same");
  call.count = static_cast<std::int64_t>(own.size());
  std::vector<Record> records;
  impl_->call("cannot compare what the ranks go by", call, [&](const Impl::Calls& calls) {
    std::int64_t most = 1;
    for (const Announcement& each : calls) most = std::max(most, each.count);
    const std::vector<std::string> all = impl_->gather_texts(own, most);
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      const std::string bytes = all[rank].substr(0, static_cast<std::size_t>(calls[rank].count));
      records.push_back(shardwise::detail::record_from(bytes).value_or(Record()));
    }
  });
  if (const auto different = find_disagreement(records)) {
    throw Mismatch("the ranks do not go by the same", *different,
                   "start all ranks with the same data and options");
  }
}

ProcessGroup GroupAccess::adopt(std::unique_ptr<detail::Collectives> collectives,
                                std::shared_ptr<StopState> stop) {
  auto impl = std::make_shared<ProcessGroup::Impl>();
  impl->environment.rank = collectives->rank();
  impl->environment.world_size = collectives->size();
  impl->environment.launcher = "a group of the program";
  impl->timeout = c10d::kUnsetTimeout;  // the group's own
  ProcessGroup group(impl);
  if (group.world_size() > 1) {
    impl->collectives = std::move(collectives);
    group.require_same(basics(stop != nullptr));
    impl->introduce_ranks();
    const auto [rank, count] = shardwise::detail::local_rank_of(impl->peers, group.rank());
    impl->environment.local_rank = rank;
    impl->environment.local_world_size = count;
  }
  impl->stop = std::move(stop);
  return group;
}

namespace detail {
namespace {

template <class Group>
ProcessGroup adopt_any(Group* group, std::shared_ptr<void> owner, StopGuard* guard) {
  auto collectives = collectives_of(group, std::move(owner));
  if (guard == nullptr) return GroupAccess::adopt(std::move(collectives), nullptr);
  return GroupAccess::join(*guard, [&](const std::shared_ptr<StopState>& state) {
    return GroupAccess::adopt(std::move(collectives), state);
  });
}

}  // namespace

ProcessGroup adopt(c10d::ProcessGroup* group, std::shared_ptr<void> owner, StopGuard* guard) {
  return adopt_any(group, std::move(owner), guard);
}

ProcessGroup adopt(c10d::Backend* group, std::shared_ptr<void> owner, StopGuard* guard) {
  return adopt_any(group, std::move(owner), guard);
}

}  // namespace detail

#else  // one rank only

namespace {

[[noreturn]] void throw_no_c10d() {
  throw Error(ErrorCode::kDistributed, "this build knows no groups of c10d",
              "adopt_process_group()", "build it with a LibTorch that comes with c10d's headers");
}

}  // namespace

struct ProcessGroup::Impl : GroupBase {};

void ProcessGroup::all_reduce(const torch::Tensor& tensor, ProcessGroup::ReduceOp op) const {
  detail::require_reducible(tensor, op);
}
void ProcessGroup::broadcast(const torch::Tensor&, int) const {}
void ProcessGroup::barrier() const {}
void ProcessGroup::require_same(const std::vector<std::pair<std::string, std::string>>&) const {}

std::int64_t GroupAccess::add_with_count(const ProcessGroup& group, const torch::Tensor&,
                                         std::int64_t count, const char*, bool ends_step) {
  if (group.impl_->stop && ends_step) group.impl_->stop->begin_update();
  return count;
}

void GroupAccess::end_queued(const ProcessGroup&) {}

bool GroupAccess::is_usable(const ProcessGroup&) { return true; }
void GroupAccess::end_run(const ProcessGroup&) {}
void GroupAccess::give_up(const ProcessGroup&) {}

void GroupAccess::throw_if_stopping(const ProcessGroup& group, const char*) {
  const auto& stop = group.impl_->stop;
  if (!stop) return;
  stop->agree(stop->own());
  if (stop->agreed().is_at_once()) throw Cancelled("the ranks stop", stop->agreed().reason, "");
}

namespace detail {

ProcessGroup adopt(c10d::ProcessGroup*, std::shared_ptr<void>, StopGuard*) { throw_no_c10d(); }

ProcessGroup adopt(c10d::Backend*, std::shared_ptr<void>, StopGuard*) { throw_no_c10d(); }

}  // namespace detail

#endif

#ifdef SHARDWISE_HAVE_GLOO

bool has_distributed() noexcept { return true; }
void detail::require_distributed(int) {}

#else

bool has_distributed() noexcept { return false; }

void detail::require_distributed(int num_ranks) {
  if (num_ranks != 1) throw_no_gloo(std::to_string(num_ranks) + " local ranks");
}

ProcessGroup ProcessGroup::connect(const RankEnvironment& environment, const ProcessGroup::Options&,
                                   std::shared_ptr<StopState> stop) {
  if (environment.world_size != 1) throw_no_gloo(describe(environment));
  auto impl = std::make_shared<Impl>();
  impl->environment = environment;
  impl->stop = std::move(stop);
  return ProcessGroup(std::move(impl));
}

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

std::shared_ptr<StopState> GroupAccess::stop_state(const ProcessGroup& group) {
  return group.impl_->stop;
}

GroupAccess::Counts GroupAccess::counts(const ProcessGroup& group) { return group.impl_->counts; }

}  // namespace shardwise::libtorch
