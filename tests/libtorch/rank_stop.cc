// Cases in which ranks stop together.

#include <torch/torch.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(SHARDWISE_HAVE_GLOO) && TORCH_VERSION_MAJOR < 2  // c10d::Reducer differs in LibTorch 2
#define SHARDWISE_HAVE_REDUCER
#include <torch/csrc/distributed/c10d/reducer.hpp>
#endif

#include "base/error_types.h"
#include "libtorch/group_access.h"
#include "rank_case.h"
#include "rank_group.h"
#include "shardwise/libtorch/advanced.h"

namespace shardwise::test {
namespace {

namespace sl = shardwise::libtorch;

constexpr std::uint64_t kEpochs = 2;
constexpr std::int64_t kGlobalBatch = 7;

/// The single event of a run: what happens, and where.
enum class Act : std::uint8_t { kNone, kSignal, kThrow, kRequest, kLate };
enum class Place : std::uint8_t {
  kNone,
  kBeforeStep,
  kInUpdate,
  kAfterStep,
  kDecoder,  // a signal comes while the loop waits for the decoder
  kEvaluation,
  kMeeting
};
struct Event {
  Act act = Act::kNone;
  Place place = Place::kNone;

  bool is(Act other, Place where) const { return act == other && place == where; }
};
constexpr std::array<Event, 13> kEvents = {{{Act::kNone, Place::kNone},
                                            {Act::kSignal, Place::kBeforeStep},
                                            {Act::kSignal, Place::kAfterStep},
                                            {Act::kRequest, Place::kBeforeStep},
                                            {Act::kLate, Place::kNone},
                                            {Act::kThrow, Place::kBeforeStep},
                                            {Act::kThrow, Place::kInUpdate},
                                            {Act::kThrow, Place::kAfterStep},
                                            {Act::kThrow, Place::kDecoder},
                                            {Act::kSignal, Place::kDecoder},
                                            {Act::kSignal, Place::kEvaluation},
                                            {Act::kThrow, Place::kEvaluation},
                                            {Act::kSignal, Place::kMeeting}}};

struct Plan {
  Event event;
  bool is_mine = false;
  std::uint64_t step = 0;    ///< step of the event
  std::uint64_t sample = 0;  ///< sample in whose decoder it happens
  int signal = SIGTERM;
};

/// The column's function, which the loader's threads call.
struct Decoder {
  explicit Decoder(const Plan& plan)
      : acts_at(plan.event.place == Place::kDecoder ? static_cast<std::int64_t>(plan.sample) : -1),
        act(plan.event.act),
        signal(plan.signal) {}

  void make(const Sample& sample, columns::Row& row) const {
    const auto number = static_cast<std::int64_t>(sample.index());
    if (number == acts_at) {
      if (act == Act::kThrow) throw BadField("thrown on purpose", "by the decoder", "");
      ::kill(::getpid(), signal);
      while (!is_released) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    row.values<float>()[0] = static_cast<float>(number % 16);
  }

  const std::int64_t acts_at;
  const Act act;
  const int signal;
  std::atomic<bool> is_released{false};
};

/// Trains a vector of weights with integer gradients, so that sums are equal on any number of
/// ranks.
class Trainer {
 public:
  Trainer(const Dataset& data, const sl::ProcessGroup& group, const std::string& path,
          sl::StopGuard* guard, const Plan& plan, std::uint64_t passes)
      : data_(data),
        passes_(passes),
        group_(group),
        guard_(guard),
        plan_(plan),
        decoder_(plan),
        file_(path, group),
        loader_(data, options(), sl::make_reducer(group)),
        averager_({weight_}) {
    if (const auto last = file_.read()) {
      weight_.copy_(last->tensor("weight"));
      step_ = static_cast<std::uint64_t>(last->integer("step"));
      loader_.restore(last->token());
    }
  }
  ~Trainer() { decoder_.is_released = true; }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// @param check  called after each step with its number.
  void run(const std::function<void(std::uint64_t, const torch::Tensor&)>& check) {
    for (auto epoch : loader_.epochs(kEpochs)) {
      std::uint64_t passes = 0;
      std::int64_t samples = 0;
      weight_.mutable_grad() = torch::zeros_like(weight_);
      for (auto& batch : epoch) {
        happen(Place::kBeforeStep);
        if (batch.size() > 0) weight_.mutable_grad() += sl::to_tensor(batch["value"]).sum();
        samples += static_cast<std::int64_t>(batch.size());
        if (++passes % passes_ != 0 && loader_.steps_left() > 0) continue;
        averager_.average(std::exchange(samples, 0), group_);
        happen(Place::kInUpdate);
        weight_.sub_(weight_.grad(), 0.5);
        weight_.mutable_grad().zero_();
        ++step_;
        check(step_, weight_);
        happen(Place::kAfterStep);
        if (guard_ != nullptr && guard_->should_stop()) return;
        if (step_ % 4 == 0) save();
      }
      epoch.prove();
      evaluate();
    }
    has_ended = true;
  }

  void save() {
    sl::Checkpoint checkpoint(loader_.state());
    checkpoint.put("weight", weight_);
    checkpoint.put("step", static_cast<std::int64_t>(step_));
    file_.write(checkpoint);
  }

  std::uint64_t step() const { return step_; }
  bool has_ended = false;

 private:
  Loader::Options options() {
    Loader::Options options;
    options.columns = {
        columns::function("value", DType::kFloat32, {},
                          [this](const Sample& sample, const Hash128&, columns::Row& row) {
                            decoder_.make(sample, row);
                          })};
    options.order = {.seed = 5, .kind = Chunked{.chunk_size = 5, .window = 2}};
    options.global_batch_size = kGlobalBatch;
    options.threads = 2;
    return options;
  }

  void evaluate() {
    const sl::Measure measure = [&](const torch::Tensor& images, const torch::Tensor&) {
      happen(Place::kEvaluation);
      return torch::ones({images.size(0)});
    };
    const auto means = sl::exact_means(measure, data_, group_, {.batch_size = 3, .threads = 1});
    REQUIRE(means.at(0).value() == 1);
  }

  void happen(Place place) {
    if (place != plan_.event.place || !plan_.is_mine) return;
    if (place != Place::kEvaluation && step_ < plan_.step) return;
    plan_.is_mine = false;
    if (plan_.event.act == Act::kThrow) throw std::runtime_error("thrown on purpose");
    if (plan_.event.act == Act::kSignal) ::kill(::getpid(), plan_.signal);
    if (plan_.event.act == Act::kRequest) {
      std::thread([&] { guard_->request("asked by a thread"); }).join();
    }
  }

  const Dataset& data_;
  const std::uint64_t passes_;
  const sl::ProcessGroup group_;
  sl::StopGuard* const guard_;
  Plan plan_;
  Decoder decoder_;
  sl::CheckpointFile file_;
  Loader loader_;
  torch::Tensor weight_ = torch::zeros({1000}).requires_grad_();
  sl::GradientAverager averager_;
  std::uint64_t step_ = 0;
};

/// Runs that are stopped in all ways, and continued, until they end.
class Lives {
 public:
  /// @param passes  number of batches per step.
  Lives(const Dataset& data, std::string path, std::uint64_t passes, std::string kind)
      : data_(data),
        path_(std::move(path)),
        passes_(passes),
        kind_(std::move(kind)),
        control_(sl::init_process_group()) {
    Trainer whole(data_, control_, path_ + ".whole", nullptr, {}, passes_);
    whole.run(
        [&](std::uint64_t, const torch::Tensor& weight) { known_.push_back(weight.clone()); });
    const std::uint64_t batches = (data_.size() + 6) / 7;
    REQUIRE(whole.has_ended && known_.size() == kEpochs * ((batches + passes_ - 1) / passes_));
  }

  /// @return  how often the run was stopped.
  int live(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::string path = path_ + "." + std::to_string(seed);
    int stops = 0;
    while (!live_piece(path, random, seed)) ++stops;
    return stops;
  }

 private:
  Plan draw(std::mt19937_64& random) const {
    constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    Plan plan;
    plan.event = kEvents[random() % kEvents.size()];
    plan.is_mine = static_cast<int>(random() % static_cast<unsigned>(control_.world_size())) ==
                   control_.rank();
    plan.step = random() % known_.size();
    plan.sample = random() % data_.size();
    plan.signal = kSignals[random() % kSignals.size()];
    return plan;
  }

  /// Runs until the next stop. Returns true if the run has ended.
  bool live_piece(const std::string& path, std::mt19937_64& random, std::uint64_t seed) {
    const Plan plan = draw(random);
    const auto late = std::chrono::milliseconds(1 + random() % 200);
    where_ = "life " + std::to_string(seed) + ", event " +
             std::to_string(static_cast<int>(plan.event.act)) + " at " +
             std::to_string(static_cast<int>(plan.event.place)) + ", step " +
             std::to_string(plan.step);
    const bool is_late = plan.event.act == Act::kLate && plan.is_mine;
    sl::StopGuard guard({.max_time = is_late ? late : std::chrono::milliseconds(0)});
    std::string error;
    ErrorCode code = ErrorCode::kIo;
    bool has_ended = false;
    std::optional<std::uint64_t> step;
    try {
      if (plan.event.place == Place::kMeeting && plan.is_mine) ::raise(plan.signal);
      const std::string meeting = path_ + ".meeting." + std::to_string(num_groups_++);
      const auto group = make_group(kind_, meeting, &guard);
      Trainer trainer(data_, group, path, &guard, plan, passes_);
      bool saved = false;
      try {
        guard.run(
            [&] {
              trainer.run([&](std::uint64_t number, const torch::Tensor& weight) {
                REQUIRE(weight.equal(known_.at(number - 1)));
              });
            },
            [&] {
              trainer.save();
              saved = true;
            });
      } catch (const std::exception& e) {
        error = e.what();
        if (const auto* known = dynamic_cast<const Error*>(&e)) code = known->code();
      }
      has_ended = trainer.has_ended;
      if (saved) step = trainer.step();
    } catch (const Error& e) {
      if (plan.event.place != Place::kMeeting) throw;
      error = e.what();
      code = e.code();
    }
    check(plan, guard, has_ended, error, code);
    check_checkpoint(path, plan, step);
    return has_ended;
  }

  void check(const Plan& plan, const sl::StopGuard& guard, bool has_ended, const std::string& error,
             ErrorCode code) {
    // The signal interrupted the wait for other ranks, unless all ranks had already met.
    if (plan.event.place == Place::kMeeting && !error.empty()) {
      require(code == (plan.is_mine ? ErrorCode::kCancelled : ErrorCode::kDistributed), error);
      require(guard.exit_code() == (plan.is_mine ? 128 + plan.signal : 0), error);
      return;
    }
    // All ranks must have ended in the same way.
    control_.require_same({{"reason", guard.reason()},
                           {"exit code", std::to_string(guard.exit_code())},
                           {"error", error.empty() ? "no" : "yes"},
                           {"end", has_ended ? "yes" : "no"}});
    const bool failed = control_.any(!error.empty());
    require(!failed || plan.event.act == Act::kThrow, error);
    require(guard.exit_code() == 1 || !failed, guard.reason());
    if (!failed && !guard.reason().empty()) {
      require(guard.exit_code() == (plan.event.act == Act::kSignal ? 128 + plan.signal : 0),
              guard.reason());
    }
    if (!failed) return;
    const bool is_own = error.find("thrown on purpose") != std::string::npos;
    const bool is_of_other = code == ErrorCode::kDistributed;
    require(is_own && guard.reason().find("thrown on purpose") != std::string::npos, error);
    if (control_.world_size() > 1) {
      require(control_.all_reduce(std::int64_t{is_of_other}) == control_.world_size() - 1, error);
      require(!is_of_other || error.find("a rank failed: rank ") != std::string::npos, error);
    }
  }

  /// Checks that the checkpoint is of a complete step, and of the last step if the ranks wrote it
  /// when they stopped.
  void check_checkpoint(const std::string& path, const Plan& plan,
                        const std::optional<std::uint64_t>& step) {
    const auto last = sl::CheckpointFile(path, control_).read();
    if (step) require(last.has_value(), "no checkpoint");
    if (!last) return;
    const auto number = static_cast<std::size_t>(last->integer("step"));
    const auto weight = number == 0 ? torch::zeros({1000}) : known_.at(number - 1);
    require(last->tensor("weight").equal(weight), "the weight is not that of the step");
    const bool is_behind = plan.event.is(Act::kThrow, Place::kInUpdate) && plan.is_mine;
    if (step && !is_behind) require(*step == number, "the step is not the last one");
  }

  void require(bool holds, const std::string& what) const {
    if (!holds) throw std::runtime_error(where_ + ": " + what);
  }

  const Dataset& data_;
  const std::string path_;
  const std::uint64_t passes_;
  const std::string kind_;
  int num_groups_ = 0;
  const sl::ProcessGroup control_;  // a separate group, by which the ranks compare results
  std::vector<torch::Tensor> known_;
  std::string where_;
};

/// lives OUT INDEX STOPS SEED PASSES own|adopted: runs lives until there have been STOPS stops.
void lives(const Arguments& arguments) {
  const auto data = Dataset::open(arguments[2]);
  Lives all(data, arguments[1], std::stoull(arguments[5]), arguments[6]);
  std::uint64_t seed = std::stoull(arguments[4]);
  for (int stops = 0; stops < std::stoi(arguments[3]); ++seed) stops += all.live(seed);
}

/// count OUT INDEX own|adopted: the group makes one exchange per step, and one collective call,
/// which sums the gradients.
void count(const Arguments& arguments) {
  const auto data = Dataset::open(arguments[2]);
  sl::StopGuard guard;
  const auto group = make_group(arguments[3], arguments[1] + ".meeting", &guard);
  auto weight = torch::zeros({1000}).requires_grad_();
  sl::GradientAverager averager({weight});
  Loader loader(data, {.columns = {columns::integer("cls")}, .batch_size = 2, .threads = 1},
                sl::make_reducer(group));
  guard.run([&] {
    auto epoch = loader.epoch();
    auto before = sl::GroupAccess::calls(group).counts();
    for (auto& batch : epoch) {
      weight.mutable_grad() = torch::ones_like(weight);
      averager.average(static_cast<std::int64_t>(batch.size()), group);
      REQUIRE(!guard.should_stop() && !guard.should_save());
      const auto after = sl::GroupAccess::calls(group).counts();
      REQUIRE(after.exchanges == before.exchanges + 1);
      REQUIRE(after.collectives == before.collectives + 1);
      before = after;
    }
    epoch.prove();
  });
  REQUIRE(guard.reason().empty() && guard.exit_code() == 0);
}

#ifdef SHARDWISE_HAVE_REDUCER

/// An identity function. In the backward pass it throws or sends a signal if requested.
struct Trap : torch::autograd::Function<Trap> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& input) {
    return input.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list gradients) {
    if (std::exchange(signal, 0) != 0) ::kill(::getpid(), SIGTERM);
    if (std::exchange(is_set, false)) throw std::runtime_error("thrown on purpose");
    return gradients;
  }
  static inline bool is_set = false;
  static inline int signal = 0;
};

/// A run whose gradients c10d's Reducer averages during the backward pass, one bucket per layer.
/// The event happens between two buckets.
class ReducerRun {
 public:
  static constexpr std::int64_t kSteps = 12;
  static constexpr std::size_t kLayers = 6;
  enum class Trouble : std::uint8_t { kNone, kThrow, kSignal };

  ReducerRun(const std::string& meeting, const std::string& path, sl::StopGuard& guard)
      : guard_(guard),
        own_(make_gloo(meeting)),
        group_(sl::adopt_process_group(own_, &guard)),
        file_(path, group_) {
    for (std::size_t i = 0; i < kLayers; ++i) {
      layers_.push_back(torch::full({100}, 1.0 + 0.1 * static_cast<double>(i)));
    }
    if (const auto last = file_.read()) {
      step_ = last->integer("step");
      for (std::size_t i = 0; i < kLayers; ++i) {
        layers_[i].copy_(last->tensor("layer" + std::to_string(i)));
      }
    }
    for (auto& layer : layers_) layer.requires_grad_();
    const std::vector<bool> sparse(kLayers, false);
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(layers_, {1}, sparse);
    std::reverse(buckets.begin(), buckets.end());  // gradients are ready in this order
    reducer_ =
        std::make_unique<c10d::Reducer>(layers_, buckets, limits, own_, sparse, 1, false, false,
                                        std::unordered_map<std::size_t, std::string>{}, 1);
    reducer_->register_comm_hook(sl::reducer_hook(group_, [this] { return samples_; }));
  }

  /// @param depth  layer of the event; the backward pass begins at the last layer.
  void run(Trouble trouble, std::int64_t at_step, std::size_t depth) {
    guard_.run(
        [&] {
          while (step_ < kSteps) {
            const auto before = sl::GroupAccess::calls(group_).counts();
            const bool is_now = step_ == at_step;
            Trap::is_set = is_now && trouble == Trouble::kThrow;
            Trap::signal = is_now && trouble == Trouble::kSignal ? SIGTERM : 0;
            make_step(depth);
            const auto after = sl::GroupAccess::calls(group_).counts();
            // One call for each layer's gradients. If the run stops, one more call sends the
            // reason's text.
            const std::uint64_t calls = group_.world_size() > 1 ? kLayers : 0;
            const std::uint64_t texts = calls > 0 && guard_.should_stop() ? 1 : 0;
            REQUIRE(after.exchanges == before.exchanges + calls);
            REQUIRE(after.collectives == before.collectives + calls + texts);
            if (guard_.should_stop()) return;
          }
        },
        [&] {
          sl::Checkpoint now((ResumeToken()));
          now.put("step", step_);
          for (std::size_t i = 0; i < kLayers; ++i) {
            now.put("layer" + std::to_string(i), layers_[i].detach());
          }
          file_.write(now);
        });
  }

  std::int64_t step() const { return step_; }
  torch::Tensor weights() const { return torch::stack(layers_).detach(); }
  const sl::ProcessGroup& group() const { return group_; }

 private:
  void make_step(std::size_t depth) {
    const torch::AutoGradMode enabled(true);
    samples_ = (group_.rank() + step_) % 3;  // 0 on some ranks
    torch::Tensor value = torch::full({100}, static_cast<double>(samples_) / 4);
    for (std::size_t i = 0; i < kLayers; ++i) {
      if (i == depth) value = Trap::apply(value + layers_[i] * 0);
      value = value * layers_[i];
    }
    for (auto& layer : layers_) layer.mutable_grad().reset();
    reducer_->prepare_for_backward({});
    value.sum().backward();
    const torch::NoGradGuard no_grad;
    for (auto& layer : layers_) layer.sub_(layer.grad(), 1e-3);
    ++step_;
  }

  sl::StopGuard& guard_;
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> own_;
  const sl::ProcessGroup group_;
  sl::CheckpointFile file_;
  std::vector<torch::Tensor> layers_;
  std::unique_ptr<c10d::Reducer> reducer_;
  std::int64_t step_ = 0;
  std::int64_t samples_ = 0;
};

/// reducer OUT STOPS SEED: a rank throws or gets a signal during a backward pass with c10d's
/// Reducer. All ranks must leave at once, after the same step, with a checkpoint of that step, from
/// which the run continues.
void reducer(const Arguments& arguments) {
  using Trouble = ReducerRun::Trouble;
  const auto control = sl::init_process_group();
  int num_groups = 0;
  const auto meeting = [&] { return arguments[1] + ".meeting." + std::to_string(num_groups++); };
  torch::Tensor whole;
  {
    sl::StopGuard guard;
    ReducerRun run(meeting(), arguments[1] + ".whole", guard);
    run.run(Trouble::kNone, 0, 0);
    REQUIRE(run.step() == ReducerRun::kSteps && guard.reason().empty());
    whole = run.weights();
  }
  std::mt19937_64 random(std::stoull(arguments[3]));
  const auto draw = [&](std::uint64_t below) { return random() % below; };
  int stops = 0;
  for (int life = 0; stops < std::stoi(arguments[2]); ++life) {
    const std::string path = arguments[1] + "." + std::to_string(life);
    for (bool has_ended = false; !has_ended;) {
      const auto trouble = static_cast<Trouble>(draw(3));
      const auto rank = static_cast<int>(draw(static_cast<std::uint64_t>(control.world_size())));
      const auto at_step = static_cast<std::int64_t>(draw(ReducerRun::kSteps));
      const std::size_t depth = draw(ReducerRun::kLayers);
      const bool is_mine = rank == control.rank();
      sl::StopGuard guard;
      ReducerRun run(meeting(), path, guard);
      const std::int64_t first = run.step();
      std::string error;
      const auto start = std::chrono::steady_clock::now();
      try {
        run.run(is_mine ? trouble : Trouble::kNone, at_step, depth);
      } catch (const std::exception& e) {
        error = e.what();
      }
      const bool is_stopped = trouble != Trouble::kNone && at_step >= first;
      const std::int64_t left_at = trouble == Trouble::kThrow ? at_step : at_step + 1;
      REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
      REQUIRE(run.step() == (is_stopped ? left_at : ReducerRun::kSteps));
      REQUIRE(guard.exit_code() == (!is_stopped ? 0 : trouble == Trouble::kThrow ? 1 : 143));
      REQUIRE(error.empty() == !(is_stopped && trouble == Trouble::kThrow));
      REQUIRE(error.find("thrown on purpose") != std::string::npos || error.empty());
      REQUIRE(error.find("a rank failed: rank " + std::to_string(rank)) == 0 || is_mine ||
              error.empty());
      // The group must be usable, and the replicas equal.
      REQUIRE(run.group().all_reduce(std::int64_t{1}) == run.group().world_size());
      control.require_same({{"step", std::to_string(run.step())}, {"reason", guard.reason()}});
      const auto last = sl::CheckpointFile(path, control).read();
      if (is_stopped) REQUIRE(last && last->integer("step") == left_at);
      has_ended = run.step() == ReducerRun::kSteps;
      if (has_ended) REQUIRE(run.weights().equal(whole));
      stops += is_stopped ? 1 : 0;
    }
  }
}

/// reducer-lost OUT: a rank without a guard throws in the backward pass, and is killed. The other
/// ranks must name it.
void reducer_lost(const Arguments& arguments) {
  std::signal(SIGTERM, SIG_IGN);
  const torch::AutoGradMode enabled(true);
  const auto own = make_gloo(arguments[1] + ".meeting");
  const auto group = sl::adopt_process_group(own);
  std::vector<torch::Tensor> layers;
  for (int i = 0; i < 3; ++i) layers.push_back(torch::ones({100}, torch::requires_grad()));
  const std::vector<bool> sparse(3, false);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(layers, {1}, sparse);
  std::reverse(buckets.begin(), buckets.end());  // gradients are ready in this order
  c10d::Reducer reducer(layers, buckets, limits, own, sparse, 1, false, false, {}, 1);
  reducer.register_comm_hook(sl::reducer_hook(group, [] { return 1; }));
  const auto pass = [&] {
    reducer.prepare_for_backward({});
    (Trap::apply(layers[0] * 2) * layers[1] * layers[2]).sum().backward();
  };
  pass();
  Trap::is_set = group.rank() == 1;
  try {
    pass();
    REQUIRE(!"the pass came to its end");
  } catch (const std::exception& e) {
    if (group.rank() == 1) std::raise(SIGKILL);
    tell(arguments[1], e.what());
  }
}

#endif

/// saves: should_save() is true on all ranks at the same time, by rank 0's clock.
void saves(const Arguments&) {
  const int rank = std::stoi(std::getenv("RANK"));
  constexpr std::chrono::milliseconds kEvery{30};  // interval of rank 0
  auto last = std::chrono::steady_clock::now();
  sl::StopGuard guard({.save_every = rank == 0 ? kEvery : std::chrono::milliseconds(1)});
  const auto group = sl::init_process_group({.guard = &guard});
  int num_saves = 0;
  while (num_saves < 3) {
    auto asked = last;
    bool is_due = false;
    while (!is_due) {
      group.barrier();
      asked = std::chrono::steady_clock::now();
      is_due = guard.should_save();
      REQUIRE(group.all_reduce(std::int64_t{is_due}) == (is_due ? group.world_size() : 0));
    }
    REQUIRE(rank != 0 || asked - last >= kEvery);
    last = asked;
    ++num_saves;
  }
}

/// guards OUT: a guard has one group. Either all ranks of a group have a guard, or none.
void guards(const Arguments& arguments) {
  sl::StopGuard guard;
  const bool has_guard = std::string(std::getenv("RANK")) != "1";
  const auto adopt = [&](const char* name, sl::StopGuard* with) {
    return make_group("adopted", arguments[1] + name, with);
  };
  REQUIRE(text_of(ErrorCode::kMismatch, [&] {
            adopt(".a", has_guard ? &guard : nullptr);
          }).find("StopGuard is 'not given' on rank 1 and 'given' on rank 0") != std::string::npos);
  // A guard whose first group failed may get another group.
  const auto group = adopt(".b", &guard);
#ifdef SHARDWISE_HAVE_GLOO
  // A rank that fails must not close its connections before the other rank has made its own.
  const auto third = make_gloo(arguments[1] + ".c");
  group.barrier();
  REQUIRE(text_of(ErrorCode::kInvalidArgument, [&] { sl::adopt_process_group(third, &guard); })
              .find("the StopGuard already has a group: rank " + std::to_string(group.rank()) +
                    " of 2") != std::string::npos);
#endif
  // A request on one rank is enough.
  if (group.rank() == 1) guard.request("enough");
  REQUIRE(!guard.should_stop());
  group.barrier();
  REQUIRE(guard.should_stop());
  REQUIRE(guard.reason() == "enough (rank 1)");
  // The error names the failed rank, its host and its process.
  try {
    guard.run([&] {
      if (group.rank() == 1) throw std::runtime_error("thrown on purpose");
      group.barrier();
    });
    REQUIRE(!"the run went on");
  } catch (const Error& e) {
    const std::string text = e.what();
    REQUIRE(group.rank() == 0 && text.find("a rank failed: rank 1 of 2 (host ") == 0);
    REQUIRE(text.find(", process ") != std::string::npos);
  } catch (const std::runtime_error& e) {
    REQUIRE(group.rank() == 1 && std::string(e.what()) == "thrown on purpose");
  }
}

/// second OUT SIGNAL...: sends itself the signals, of which only the first one counts as the reason
/// to stop. When the last signal is sent again, it must end the process at once.
void second(const Arguments& arguments) {
  sl::StopGuard guard;
  std::vector<int> signals;
  for (std::size_t i = 2; i < arguments.size(); ++i) signals.push_back(std::stoi(arguments[i]));
  REQUIRE(signals.size() >= 2);
  // Like `timeout`, which sends the signal to the process and then at once to its group.
  for (const int signal : signals) {
    ::kill(::getpid(), signal);
    REQUIRE(guard.should_stop() && guard.exit_code() == 128 + signals[0]);
    REQUIRE(guard.token().is_cancelled());
  }
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(::getpid(), signals.back());
  }
}

/// Resets SIGINT, which background jobs ignore, and turns autograd off: gradients are set by hand.
template <void (*kCase)(const Arguments&)>
void guarded(const Arguments& arguments) {
  std::signal(SIGINT, SIG_DFL);
  const torch::NoGradGuard no_grad;
  kCase(arguments);
}

}  // namespace

const Cases& stop_cases() {
  static const Cases cases = {
#ifdef SHARDWISE_HAVE_REDUCER
      {"reducer", guarded<reducer>}, {"reducer-lost", guarded<reducer_lost>},
#endif
      {"lives", guarded<lives>},     {"count", guarded<count>},
      {"saves", guarded<saves>},     {"guards", guarded<guards>},
      {"second", guarded<second>}};
  return cases;
}

}  // namespace shardwise::test
