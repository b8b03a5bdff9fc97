#include "shardwise/loader/loader.h"

#include <algorithm>
#include <utility>

#include "base/cores.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/fork.h"
#include "base/rank_environment.h"
#include "loader/agreed_options.h"
#include "loader/bad_field.h"
#include "loader/batch_finisher.h"
#include "loader/buffer_pool.h"
#include "loader/engine.h"
#include "loader/epoch_plan.h"
#include "loader/load_meter.h"
#include "loader/loader_access.h"
#include "loader/rank_agreement.h"
#include "loader/read_ahead.h"
#include "loader/sample_groups.h"
#include "loader/step_watch.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/order/epoch_audit.h"

namespace shardwise {
namespace {

using detail::BadRow;
using detail::BufferPool;
using detail::Engine;
using detail::EpochPlan;
using detail::LoadMeter;
using detail::RankAgreement;
using detail::StepWatch;
using detail::throw_all_bad;
using detail::throw_too_many_bad;

/// Number of items at the end of common() that may differ while ranks are within an epoch.
constexpr std::size_t kStepItems = 2;

/// The progress of one rank in a plan.
struct Position {
  std::uint64_t steps_taken = 0;
  std::uint64_t steps_failed = 0;  ///< failed steps since the last batch that was handed out
  std::uint64_t steps_lost = 0;    ///< failed steps before that batch
  std::size_t num_bad = 0;         ///< samples left out
  EpochAudit::Sum delivered{};  ///< samples delivered in the epoch, including those before the plan

  /// Steps that a token counts: steps that failed after the last batch was handed out do not count.
  std::uint64_t steps_done() const { return steps_taken - steps_failed; }
};

std::size_t batches_ahead(const Loader::Options& options) {
  if (options.prefetch != 0) return options.prefetch;
  return std::max<std::size_t>(std::size_t{2} * options.threads, 1);
}

/// Quick batches in flight, if Options set neither their number nor the memory.
constexpr std::size_t kMaxQuickAhead = 64;

/// A run fails if its first samples, this many or more, are all bad.
constexpr std::size_t kMaxBadFirst = 100;

/// Returns the Reducer of a single process. Errors: InvalidArgument if a launcher started several
/// processes; those of rank_environment().
std::shared_ptr<Reducer> only_rank() {
  const RankEnvironment found = rank_environment();
  if (found.world_size == 1) return single_process();
  throw InvalidArgument(
      "the loader was given no ranks", describe(found) + ", by " + found.launcher,
      "give the loader the run's Reducer, or single_process() to deliver every sample");
}

[[noreturn]] void throw_stopped() { throw Cancelled("the loader was stopped"); }

}  // namespace

struct Loader::Impl {
  Impl(MixedDataset dataset, Loader::Options loader_options, std::shared_ptr<Reducer> reducer)
      : data(std::move(dataset)),
        options(std::move(loader_options)),
        ranks(reducer ? std::move(reducer) : only_rank()),
        watch(dynamic_cast<StepWatch*>(ranks.get())),
        plan(EpochPlan::make(data, options, ranks->rank(), ranks->world_size())),  // checks options
        // Enough blocks for each array of the consumer's batch and of all batches ahead.
        pool(std::make_shared<BufferPool>(
            options.memory, (options.columns.size() + 5) * (batches_ahead(options) + 2))),
        meter(std::make_shared<LoadMeter>(Loader::Stats{
            .threads = options.threads,
            .fetch_threads =
                data.num_parts() == 1 && data.part(0).cache() ? options.fetch_threads : 0,
            .prefetch = batches_ahead(options),
            .cores = usable_cores()})) {}

  const Sampler& sampler() const { return plan->sampler(); }
  std::uint64_t epoch() const { return sampler().epoch(); }

  /// Destroys the engine, and the batches made ahead.
  void drop_engine() {
    std::unique_ptr<Engine> dropped;  // destroyed without the mutex, as this joins threads
    const Lock lock(mutex);
    stopped = false;
    dropped.swap(engine);
    if (dropped) waited_before += dropped->waited();
  }

  bool is_stopped() {
    const Lock lock(mutex);
    return stopped;
  }

  /// Starts the threads.
  void start() {
    follow();
    std::function<void(std::uint64_t)> note_read;
    if (prefetcher) {
      note_read = [this](std::uint64_t rows) { prefetcher->note_read(plan->slot_read(rows)); };
    }
    auto started = std::make_unique<Engine>(
        data, detail::columns_by_group(options.columns, plan->groups()), pool,
        detail::ReadAheadSource(plan->source(), data, options.columns),
        detail::EngineOptions{
            .seed = options.order.seed,
            .epoch = epoch(),
            .threads = options.threads,
            .max_batches = batches_ahead(options),
            .max_quick_batches = options.prefetch == 0 && !options.memory ? kMaxQuickAhead : 0,
            .max_bytes = options.max_bytes_ahead,
            .max_expanded_bytes = options.max_expanded_bytes,
            .skip_bad = options.max_bad > 0,
            .note_read = std::move(note_read),
            .has_repeated_samples = !sampler().is_exact(),
            .finish = detail::batch_finisher(options, plan->groups(), epoch(), pool)},
        meter);
    const Lock lock(mutex);
    engine = std::move(started);
    if (stopped) engine->stop();
  }

  /// Announces to the cache, if there is one, which shards this node's ranks will read.
  void follow() {
    // If several data sets share a cache, the shards that they need are not known in advance.
    if (data.num_parts() > 1 || !data.part(0).cache()) return;
    if (prefetcher) return prefetcher->begin_epoch(sampler());
    const ShardPrefetcher::Options ahead{
        .fetch_threads = options.fetch_threads, .node = node(), .window = plan->window()};
    prefetcher = std::make_unique<ShardPrefetcher>(data.part(0), sampler(), ahead);
  }

  /// The ranks whose shards this node reads. With batches by length or group these are all ranks.
  RankOptions::Range node() const {
    if (plan->window() > 0) return {.first = 0, .count = ranks->world_size()};
    return {.first = ranks->rank() - ranks->local_rank(), .count = ranks->local_world_size()};
  }

  /// The items that must be equal on all ranks, so that the ranks' batches together are one epoch.
  RankAgreement common() const {
    ResumeToken order = plan->token_after(0);
    ResumeToken left_out;
    left_out.skip = std::exchange(order.skip, {});
    const std::string begin = std::to_string(order.position) + " " +
                              std::to_string(order.batches ? order.batches->delivered : 0) + " " +
                              left_out.to_text();
    // Keep only the description of the order.
    order.fingerprint = {};
    order.epoch = 0;
    order.position = 0;
    order.batches.reset();
    order.history.clear();
    detail::Record alike = detail::agreed_options(options);
    // Lengths and groups may come from columns, which the fingerprint does not cover.
    for (auto& [name, value] : alike) {
      if (name.starts_with("rule of batches") && value != "none") value += plan->rule();
    }
    alike.insert(alike.begin(),
                 {{"data set", to_string(data.fingerprint())},
                  // Add the seed: the token omits the seed of an order without random draws, but
                  // random transforms use it.
                  {"order", order.to_text() + " " + std::to_string(options.order.seed)}});
    alike.insert(alike.end(), {{"epoch", std::to_string(epoch())},
                               {"starting point", begin},
                               {"number of lost batches", std::to_string(at.steps_lost)},
                               {"number of steps taken", std::to_string(at.steps_done())}});
    return RankAgreement(std::move(alike));
  }

  /// Sums up the ranks' deliveries of the epoch by replica, and shares the bad samples. Collective.
  /// Errors: Mismatch, on all ranks, if items of common() differ. With `in_step`, these include the
  /// number of steps taken.
  std::vector<EpochAudit::Sum> agree(bool in_step) {
    constexpr std::size_t kWords = EpochAudit::Sum::kNumWords;
    const RankAgreement alike = common();
    // The number of words must be equal on all ranks, even if options differ.
    std::vector<std::int64_t> words = alike.words();
    const std::size_t first = words.size();
    words.resize(first + kWords + 1);
    const auto own = at.delivered.to_words();
    // This rank's number among the ranks that get the same batches.
    const std::uint64_t replica = sampler().rank() % sampler().replicas();
    const bool speaks = replica == 0;  // other replicas found the same bad samples
    if (speaks) {
      std::copy(own.begin(), own.end(), words.begin() + static_cast<std::ptrdiff_t>(first));
      words.back() = static_cast<std::int64_t>(bad_here.size());
    }
    ranks->add(words);
    alike.require(words, sampler().world_size(), in_step ? 0 : kStepItems);
    // Sums of replicas 1 and up.
    std::vector<std::int64_t> others(kWords * (sampler().replicas() - 1));
    if (!speaks) {
      std::copy(own.begin(), own.end(),
                others.begin() + static_cast<std::ptrdiff_t>(kWords * (replica - 1)));
    }
    if (!others.empty()) ranks->add(others);
    std::vector sums{EpochAudit::Sum::from_words(std::span(words).subspan(first).first<kWords>())};
    for (std::size_t i = 0; i < others.size(); i += kWords) {
      sums.push_back(EpochAudit::Sum::from_words(std::span(others).subspan(i).first<kWords>()));
    }
    bad_everywhere.clear();
    if (words.back() != 0) exchange_bad(speaks);
    return sums;
  }

  /// Sends each rank's bad samples to all ranks as tokens, whose format has lists of samples. A
  /// sample that was bad twice is listed twice. Collective.
  void exchange_bad(bool speaks) {
    std::string text;
    for (const BadRow& found : bad_here) {
      if (!speaks) break;
      ResumeToken carrier;
      carrier.skip.add_sample(found.sample, found.reason, {epoch(), found.position});
      text += carrier.to_text() + "\n";
    }
    text = ranks->gather(text);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const auto one = ResumeToken::from_text(std::string_view(text).substr(begin, end - begin));
      bad_everywhere.push_back(one.skip.samples().begin()->first);
      bad.merge(one.skip);
      begin = end + 1;
    }
    const std::size_t found = bad.samples().size();
    if (found <= options.max_bad) return;
    const auto& [sample, entry] = *bad.samples().begin();
    throw_too_many_bad(found, options.max_bad,
                       "the first is sample " + std::to_string(sample) + ": " + entry.reason);
  }

  /// Returns the proof of the epoch. Collective. Errors: NotExact; those of agree().
  std::string prove(bool in_step) {
    const std::vector<EpochAudit::Sum> sums = agree(in_step);
    const Hash128 fingerprint = data.fingerprint();
    if (sampler().is_exact() && !expected_all) {
      expected_all = EpochAudit::Sum::of_range(0, sampler().num_samples(), fingerprint);
    }
    EpochAudit::Expectation expectation =
        sampler().expectation(expected_all.value_or(EpochAudit::Sum{}));
    expectation.leave_out(bad_everywhere);
    if (!bad_everywhere.empty() && sums.front().count == 0 && !may_all_be_bad) {
      throw_all_bad("all " + counted(bad_everywhere.size(), "sample") + " of epoch " +
                        std::to_string(epoch()) + " are bad",
                    bad.samples().begin()->second.reason);
    }
    std::string text;
    for (std::size_t r = sums.size(); r-- > 0;) {
      EpochAudit whole(fingerprint);
      whole.set_sum(sums[r]);
      const EpochAudit::Verdict verdict = whole.verdict(expectation);
      text = verdict.text(epoch());
      if (verdict.proven) continue;
      if (sums.size() > 1) text = "replica " + std::to_string(r) + ", " + text;
      throw NotExact(text);
    }
    return text;
  }

  /// The token of all ranks after `num_steps` steps of this epoch, without the audit.
  ResumeToken token_after(std::uint64_t num_steps) const {
    ResumeToken token = plan->token_after(num_steps);
    token.skip.merge(bad);
    return token;
  }

  /// Counts a batch as delivered.
  void deliver(detail::MadeBatch& made) {
    samples_read.assign(made.batch.samples().begin(), made.batch.samples().end());
    at.delivered += EpochAudit::Sum::of(samples_read, data.fingerprint());
    has_good_sample |= !samples_read.empty();
    meter->add_batch(made.batch, made.bad.size());
    if (prefetcher) prefetcher->reached(plan->slot_after(at.steps_taken));
    if (made.bad.empty()) return;
    std::ranges::move(made.bad, std::back_inserter(bad_here));
    at.num_bad = bad_here.size();
    if (bad.samples().size() + bad_here.size() > options.max_bad) {
      SkipList known = bad;  // a sample may be in both
      for (const BadRow& found : bad_here) known.add_sample(found.sample);
      if (known.samples().size() > options.max_bad) {
        throw_too_many_bad(known.samples().size(), options.max_bad,
                           "the last: " + bad_here.back().reason);
      }
    }
    if (!has_good_sample && bad_here.size() >= kMaxBadFirst && !may_all_be_bad) {
      throw_all_bad("all of the first " + std::to_string(bad_here.size()) + " samples are bad",
                    bad_here.front().reason);
    }
  }

  /// Replaces the plan by `begin`, and goes to its beginning.
  /// @param before  sum of this rank's earlier deliveries in the epoch; set only within an epoch.
  void stand(std::unique_ptr<EpochPlan> begin,
             const std::optional<EpochAudit::Sum>& before = std::nullopt) {
    drop_engine();
    plan = std::move(begin);
    delivered_before = before;
    begin_again();
  }
  /// Returns to the beginning of the plan.
  void begin_again() {
    drop_engine();
    waiting_since.reset();
    at = {.delivered = delivered_before.value_or(EpochAudit::Sum{})};
    ended = false;
    last_whole.reset();
    bad_here.clear();
  }

  /// At the start of a step, records the position, as go_back() needs it.
  void keep_place() {
    if (watch == nullptr) return;
    const std::uint64_t whole = watch->num_whole_steps();
    if (last_whole && watch->counts_steps() && last_whole->number == whole) return;
    last_whole = {whole, at};
  }

  /// Waits for the next batch. Errors: Cancelled if this rank must stop.
  /// @return  true if it had to wait.
  bool wait_unless_stopping() {
    constexpr std::chrono::milliseconds kSlice{50};
    if (watch == nullptr || options.threads == 0 || engine->wait({})) return false;
    do {
      if (watch->wants_to_stop()) throw_stopped();
    } while (!engine->wait(kSlice));
    return true;
  }

  /// The ranks gave up a step: returns to the end of the last step that all ranks completed.
  /// Batches handed out since then are not delivered. The loader is stopped. Collective.
  /// Errors: Mismatch.
  void go_back() {
    const bool is_open = last_whole && last_whole->number == watch->num_whole_steps();
    const auto own_epoch = static_cast<std::int64_t>(epoch());
    const Position& own = is_open ? last_whole->end : at;
    const std::int64_t last_epoch = watch->largest(own_epoch);
    const bool is_last = own_epoch == last_epoch;
    const auto agreed = static_cast<std::uint64_t>(
        watch->largest(is_last ? static_cast<std::int64_t>(own.steps_taken) : 0));
    const bool has_ended_before =
        own_epoch + 1 == last_epoch && at.steps_taken == plan->steps() && agreed == 0;
    const bool is_ahead = is_last && at.steps_taken > agreed;
    const bool has_way = is_ahead ? last_whole && last_whole->end.steps_taken == agreed
                                  : has_ended_before || (is_last && at.steps_taken == agreed);
    if (watch->largest(has_way ? 0 : 1) != 0) {  // true on all ranks or on none
      throw Mismatch(
          "the ranks returned to different steps",
          "epoch " + std::to_string(epoch()) + ", step " + std::to_string(at.steps_taken),
          "take the same number of batches on each rank between two steps, then resume from the "
          "last checkpoint");
    }
    if (is_ahead) {
      const std::uint64_t lost = at.steps_lost;
      at = last_whole->end;
      at.steps_failed = 0;
      at.steps_lost = lost;
      bad_here.resize(at.num_bad);
    }
    last_whole.reset();
    if (has_ended_before) stand(plan->whole(static_cast<std::uint64_t>(last_epoch), bad));
  }

  const MixedDataset data;
  const Loader::Options options;
  const std::shared_ptr<Reducer> ranks;
  StepWatch* const watch;  ///< `ranks` as a StepWatch; nullptr if the ranks do not stop together
  std::unique_ptr<EpochPlan> plan;  ///< of this epoch, or of its rest after restore()
  const std::shared_ptr<BufferPool> pool;
  Position at;
  /// Sum of the samples that this rank's part delivered before the plan. Not set if the plan is a
  /// whole epoch.
  std::optional<EpochAudit::Sum> delivered_before;
  const std::shared_ptr<LoadMeter> meter;
  std::optional<EpochAudit::Sum> expected_all;  ///< sum of every sample once; equal in all epochs
  struct WholeStep {
    std::uint64_t number;  ///< number of the step in the run
    Position end;
  };
  std::optional<WholeStep> last_whole;        ///< set only with `watch`
  bool ended = false;                         ///< next() has returned the end
  bool has_good_sample = false;               ///< a batch of this rank had a good sample
  bool may_all_be_bad = false;                ///< see LoaderAccess
  std::vector<BadRow> bad_here;               ///< this rank's, in this epoch or its rest
  std::vector<std::uint64_t> bad_everywhere;  ///< all ranks', at the last agreement
  SkipList bad;                               ///< all ranks', in all epochs, at the last agreement
  std::vector<std::uint64_t> samples_read;    ///< numbers of the last batch's samples
  std::chrono::nanoseconds waited_before{};
  std::optional<LoadMeter::Clock::time_point> waiting_since;  ///< set by LoaderAccess::wait()
  std::unique_ptr<ShardPrefetcher> prefetcher;
  const std::uint64_t process = process_generation();
  Mutex mutex;                     ///< stop() may be called from any thread
  std::unique_ptr<Engine> engine;  ///< nullptr until start(); changed under the mutex
  bool stopped = false;            ///< under the mutex
};

Loader::Loader(MixedDataset data, Options options, std::shared_ptr<Reducer> ranks)
    : impl_(std::make_unique<Impl>(std::move(data), std::move(options), std::move(ranks))) {}

Loader::~Loader() = default;

void Loader::validate(const MixedDataset& data, const Options& options, std::uint64_t world_size) {
  EpochPlan::validate(data, options, world_size);
}

void Loader::set_epoch(std::uint64_t epoch) {
  const bool keeps_place = epoch == epoch_number() && impl_->delivered_before && !has_ended();
  keeps_place ? impl_->begin_again() : impl_->stand(impl_->plan->whole(epoch, impl_->bad));
}

void Loader::start() {
  if (impl_->options.threads > 0 && impl_->process != process_generation()) {
    throw Unsupported("a loader with threads cannot be used in a forked child", "",
                      "make the loader in the child, or use 0 threads");
  }
  if (!impl_->engine && impl_->at.steps_taken < impl_->plan->steps()) impl_->start();
}

void Loader::stop() noexcept {
  const Lock lock(impl_->mutex);
  impl_->stopped = true;
  if (impl_->engine) impl_->engine->stop();
}

std::optional<Batch> Loader::next() {
  Impl& impl = *impl_;
  if (impl.is_stopped()) throw_stopped();
  impl.keep_place();
  if (impl.at.steps_taken == impl.plan->steps()) {
    if (impl.engine) impl.engine->note_end();
    impl.ended = true;
    return std::nullopt;
  }
  // Count the start of threads as waiting, even if the batch is ready before this thread waits.
  auto since = std::exchange(impl.waiting_since, std::nullopt);
  const auto asked = LoadMeter::Clock::now();
  if (!impl.engine && !since) since = asked;
  start();
  if (impl.wait_unless_stopping() && !since) since = asked;
  const Position before = impl.at;
  ++impl.at.steps_taken;
  ++impl.at.steps_failed;  // counts as failed until the batch is made
  auto made = impl.engine->next(since);
  if (!made) {
    impl.at = before;  // the batch was not handed out, so tokens must not count it
    throw_stopped();
  }
  impl.at.steps_lost += std::exchange(impl.at.steps_failed, 0) - 1;
  impl.deliver(*made);
  return std::move(made->batch);
}

ResumeToken Loader::state() {
  Impl& impl = *impl_;
  if (impl.watch != nullptr && impl.watch->gave_up_step()) {
    stop();
    impl.go_back();
  }
  const std::uint64_t done = impl.at.steps_done();
  if (done == impl.plan->steps()) {
    impl.prove(true);
    return impl.token_after(done);
  }
  const std::vector<EpochAudit::Sum> sums = impl.agree(true);
  if (impl.at.steps_lost > 0) {
    throw NotExact("batches are missing before later batches that were delivered",
                   "epoch " + std::to_string(epoch_number()) + ": " +
                       human_count(impl.at.steps_lost) + " of " + human_count(done) +
                       " are missing",
                   "resume from an earlier state of the loader");
  }
  ResumeToken token = impl.token_after(done);
  // Use the replica that delivered least: the proof needs all replicas to deliver each sample.
  token.audit = *std::ranges::min_element(sums, {}, &EpochAudit::Sum::count);
  return token;
}

void Loader::restore(const ResumeToken& token, Sampler::Changes changes) {
  Impl& impl = *impl_;
  const std::string where =
      "epoch " + std::to_string(token.epoch) + ", position " + std::to_string(token.position);
  std::unique_ptr<EpochPlan> rest = impl.plan->resume(token, changes);
  const std::uint64_t due = rest->delivered_before();
  const std::uint64_t counted = token.audit ? token.audit->count : 0;
  const auto refuse = [&](const std::string& what) {
    throw Mismatch("the resume token " + what, where, "take tokens from the loader's state()");
  };
  if (!token.audit && due > 0) {
    refuse("is within an epoch, but lacks the delivered samples");
  }
  if (counted != due) {
    refuse("counts " + std::to_string(counted) + " delivered samples, but " + std::to_string(due) +
           " were due");
  }
  const EpochAudit::Sum delivered = token.audit.value_or(EpochAudit::Sum{});
  if (rest->is_rest() && rest->steps() == 0) {
    EpochAudit audit(impl.data.fingerprint());
    audit.merge(delivered);
    audit.prove(rest->sampler().expectation(), token.epoch);
    return impl.stand(rest->whole(token.epoch + 1, {}));
  }
  const bool speaks = impl.ranks->rank() < rest->sampler().replicas();  // one rank of each replica
  std::optional<EpochAudit::Sum> before;
  if (rest->is_rest()) before = speaks ? delivered : EpochAudit::Sum{};
  impl.has_good_sample |= due > 0 || token.epoch > 0;
  impl.stand(std::move(rest), before);
}

const SkipList& Loader::bad_samples() const noexcept { return impl_->bad; }

std::uint64_t Loader::steps_left() const noexcept {
  return impl_->plan->steps() - impl_->at.steps_taken;
}

std::chrono::nanoseconds Loader::waited() const noexcept {
  return impl_->waited_before +
         (impl_->engine ? impl_->engine->waited() : std::chrono::nanoseconds{});
}

Loader::Stats Loader::stats() const { return impl_->meter->stats(); }

std::string Loader::prove() { return impl_->prove(false); }

std::uint64_t Loader::epoch_number() const noexcept { return impl_->epoch(); }

std::uint64_t Loader::steps() const noexcept { return impl_->plan->steps(); }

bool Loader::has_ended() const noexcept {
  return impl_->ended || (impl_->plan->steps() > 0 && steps_left() == 0);
}

std::optional<std::string> Loader::cache_warning() const {
  const Impl& impl = *impl_;
  if (impl.data.num_parts() > 1 || !impl.data.part(0).cache()) return std::nullopt;
  return small_cache_warning(impl.data.part(0), impl.sampler(), impl.node(), impl.plan->window());
}

std::optional<std::string> Loader::stream_warning() const {
  const Impl& impl = *impl_;
  std::uint64_t num_shards = 0;
  for (std::size_t i = 0; i < impl.data.num_parts(); ++i) {
    num_shards += impl.data.part(i).index().num_shards();
  }
  return shared_stream_warning(impl.sampler(), num_shards);
}

namespace detail {

bool LoaderAccess::wait(Loader& loader, std::chrono::nanoseconds time) {
  Loader::Impl& impl = *loader.impl_;
  if (impl.is_stopped() || impl.at.steps_taken == impl.plan->steps()) return true;
  const auto now = LoadMeter::Clock::now();
  const bool waits = !impl.engine || impl.options.threads == 0;
  loader.start();
  if (!impl.waiting_since && (waits || !impl.engine->wait({}))) impl.waiting_since = now;
  return impl.engine->wait(time);
}

std::uint64_t LoaderAccess::steps_done(const Loader& loader) {
  return loader.impl_->at.steps_done();
}

const std::vector<BadRow>& LoaderAccess::bad_rows(const Loader& loader) {
  return loader.impl_->bad_here;
}

void LoaderAccess::accept_all_bad(Loader& loader) { loader.impl_->may_all_be_bad = true; }

const EpochPlan& LoaderAccess::plan(const Loader& loader) { return *loader.impl_->plan; }

void LoaderAccess::keep_events(Loader& loader, std::size_t max_events) {
  loader.impl_->meter->keep_events(max_events);
}

std::vector<TraceEvent> LoaderAccess::events(const Loader& loader) {
  return loader.impl_->meter->events();
}

}  // namespace detail

}  // namespace shardwise
