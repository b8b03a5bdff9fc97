#include "shardwise/loader/loader.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/error_types.h"
#include "base/fork.h"
#include "base/rank_environment.h"
#include "base/spelling.h"
#include "base/text.h"
#include "loader/agreed_options.h"
#include "loader/batch_mixer.h"
#include "loader/buffer_pool.h"
#include "loader/engine.h"
#include "loader/fields.h"
#include "loader/length_batches.h"
#include "loader/load_meter.h"
#include "loader/loader_access.h"
#include "loader/rank_agreement.h"
#include "loader/read_ahead.h"
#include "loader/step_watch.h"
#include "loader/window_progress.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/order/epoch_audit.h"

namespace shardwise {
namespace {

using detail::BadRow;
using detail::BatchPlan;
using detail::BufferPool;
using detail::Engine;
using detail::LengthBatches;
using detail::LoadMeter;
using detail::MadeBatch;
using detail::RankAgreement;
using detail::SampleLengths;
using detail::StepWatch;
using detail::WindowProgress;

/// At the end of what ranks have alike: what they need not while an epoch is under way.
constexpr std::size_t kStepItems = 2;

/// Errors: InvalidArgument, for what cannot go together.
void require_by_length(const Loader::Options& options) {
  const auto refuse = [](std::string_view what, std::string_view advice) {
    throw InvalidArgument("batches by length cannot be made", what, advice);
  };
  if (options.by_length->window == 0) refuse("the window is 0", "give it 1 or more positions");
  if (options.by_length->window > std::uint64_t{1} << 32) {
    refuse("the window is larger than 2^32", "choose a smaller one");
  }
  if (options.global_batch_size != 0) {
    refuse("global_batch_size is set", "say batch_size instead");
  }
  if (options.order.balance_bytes) refuse("balance_bytes is set", "choose one of the two");
  if (options.order.tail != Order::Tail::kExact) {
    refuse("the order's tail is " + std::string(tail_name(options.order.tail)),
           "choose the exact one: ranks have equal numbers of batches anyway");
  }
  if (std::holds_alternative<Wids>(options.order.kind)) {
    refuse("the order is that of wids", "choose another order");
  }
  const Loader::ByLength& rule = *options.by_length;
  if (rule.pack.empty() != (rule.pack_to == 0)) {
    refuse("of pack and pack_to only one is set",
           "name the column to pack, and the length of rows");
  }
  if (rule.pack_to > std::uint64_t{1} << 31) {
    refuse("pack_to is larger than 2^31", "choose shorter rows");
  }
  if (rule.pack_to != 0 && rule.max_tokens != 0) {
    refuse("both pack_to and max_tokens are set",
           "packed batches have batch_size * pack_to tokens: leave max_tokens out");
  }
  if (rule.pack_to == 0) return;
  const auto packed = std::ranges::find(options.columns, rule.pack, &Column::name);
  if (packed == options.columns.end()) {
    refuse("there is no column " + in_quotes(rule.pack), "pack one of the loader's columns");
  }
  detail::Packer::require(*packed, rule.padding);
}

/// What tokens say of how batches are made: if it is the same, so are the batches.
std::string rule_text(const Loader::Options& options, const SampleLengths& lengths) {
  return lengths.name() + ", window " + std::to_string(options.by_length->window) +
         ", batch_size " + std::to_string(options.batch_size) + ", max_tokens " +
         std::to_string(options.by_length->max_tokens) +
         (options.by_length->pack_to == 0
              ? ""
              : ", pack_to " + std::to_string(options.by_length->pack_to));
}

/// Returns `options`. Errors: InvalidArgument for a number that is larger than its field may be.
Loader::Options checked(Loader::Options options) {
  detail::visit_fields<Loader::Options>(
      [&]<class Value>(const detail::Field<Loader::Options, Value>& field) {
        if constexpr (std::is_integral_v<Value>) {
          const std::uint64_t most = field.text.most;
          if (most == 0 || options.*field.member <= most) return;
          throw InvalidOption(std::string(field.name) + " is out of range",
                              std::to_string(options.*field.member),
                              "choose 0 to " + std::to_string(most));
        }
      });
  return options;
}

std::unique_ptr<Sampler> sampler_for(const MixedDataset& data, const Loader::Options& options,
                                     std::uint64_t rank, std::uint64_t world_size) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24;
  // Where global_batch_size says how large steps are, batch_size does not count.
  const std::uint64_t batch_size = options.global_batch_size != 0 ? 1 : options.batch_size;
  if (batch_size < 1 || batch_size > kMost) {
    throw InvalidOption("the batch size is out of range", std::to_string(options.batch_size),
                        "choose 1 to 16,777,216");
  }
  if (options.max_bad > 0 && std::holds_alternative<Wids>(options.order.kind)) {
    throw InvalidArgument(spelled("max_bad") + " cannot be used with the order of wids", {},
                          "that order cannot leave samples out; choose another order, or " +
                              spelled("max_bad") + " 0");
  }
  if (options.by_length) require_by_length(options);
  if (options.mix) detail::BatchMixer(*options.mix, options.columns, options.order.seed);
  std::set<std::string> names;  // of all arrays
  if (options.mix) names = {options.mix->column + "_lambda", options.mix->column + "_partner"};
  if (options.by_length && options.by_length->pack_to != 0) {
    names.insert({options.by_length->pack + "_segments", options.by_length->pack + "_positions"});
  }
  for (const Column& column : options.columns) {
    if (!names.insert(column.name()).second) {
      throw InvalidArgument("two columns have one name", in_quotes(column.name()),
                            "give one another name with named()");
    }
  }
  return make_sampler(data, options.order,
                      {.rank = rank,
                       .world_size = world_size,
                       .batch_size = batch_size,
                       .global_batch_size = options.global_batch_size,
                       .replicas = options.replicas});
}

std::uint64_t bytes_of(const Batch& batch) {
  std::uint64_t bytes = 0;
  for (const Batch::Array& array : batch.arrays()) bytes += array.bytes().size();
  return bytes;
}

std::size_t batches_ahead(const Loader::Options& options) {
  if (options.prefetch != 0) return options.prefetch;
  return std::max<std::size_t>(std::size_t{2} * options.threads, 1);
}

[[noreturn]] void throw_too_many_bad(std::size_t found, std::uint64_t max_bad,
                                     const std::string& which) {
  throw BadField(std::to_string(found) + " bad samples, more than the " + std::to_string(max_bad) +
                     " that " + spelled("max_bad") + " allows",
                 which, "or raise " + spelled("max_bad"));
}

/// A run whose first samples are all bad, this many, is an error.
constexpr std::size_t kMaxBadFirst = 100;

[[noreturn]] void throw_all_bad(const std::string& which, const std::string& first) {
  throw BadField(which, "the first: " + first,
                 spelled("max_bad") +
                     " is for single samples: mend the columns and their functions; samples "
                     "that are bad in a row can be left out of the data");
}

/// The only rank. Errors: InvalidArgument if this process was launched as one of several; those of
/// rank_environment().
std::shared_ptr<Reducer> only_rank() {
  const RankEnvironment found = rank_environment();
  if (found.world_size == 1) return single_process();
  throw InvalidArgument("the loader was given no ranks", describe(found) + ", by " + found.launcher,
                        "give it the Reducer of the run; or single_process(), to get every sample");
}

[[noreturn]] void throw_stopped() { throw Cancelled("the loader was stopped"); }

}  // namespace

struct Loader::Impl {
  Impl(MixedDataset dataset, Loader::Options loader_options, std::shared_ptr<Reducer> reducer)
      : data(std::move(dataset)),
        options(checked(std::move(loader_options))),
        ranks(reducer ? std::move(reducer) : only_rank()),
        watch(dynamic_cast<StepWatch*>(ranks.get())),
        // For each array one block is with the consumer, and those of the batches ahead.
        pool(std::make_shared<BufferPool>(
            options.memory, (options.columns.size() + 5) * (batches_ahead(options) + 2))),
        sampler(sampler_for(data, options, ranks->rank(), ranks->world_size())),
        audit(data.fingerprint()),
        meter(std::make_shared<LoadMeter>(Loader::Stats{
            .threads = options.threads,
            .fetch_threads =
                data.num_parts() == 1 && data.part(0).cache() ? options.fetch_threads : 0,
            .prefetch = batches_ahead(options),
            .cores = usable_cores()})) {
    if (options.by_length) {
      lengths = std::make_shared<const SampleLengths>(data, *options.by_length);
      rule = rule_text(options, *lengths);
      by_length = batches_from(*sampler, {});
    }
    begin_steps();
  }

  /// The batches by length of the epoch of `from`, from `begin` on, which is where `from` stands.
  std::unique_ptr<LengthBatches> batches_from(const Sampler& from,
                                              LengthBatches::Place begin) const {
    Order order = options.order;
    order.skip = {};
    auto whole = make_sampler(data, order, {});
    whole->set_epoch(from.epoch());
    auto kept = whole->clone();
    ResumeToken token = from.token_after(0);  // with what is left out
    token.epoch = from.epoch();               // at the end of an epoch it stands in the next one
    token.position = begin.position;
    kept->resume(token);
    return std::make_unique<LengthBatches>(lengths, *options.by_length, options.batch_size,
                                           std::move(kept), std::move(whole), begin);
  }

  /// Ranks that get different samples, and which of them this one is.
  std::uint64_t num_shares() const { return sampler->world_size() / sampler->replicas(); }
  std::uint64_t share() const { return sampler->rank() / sampler->replicas(); }

  void begin_steps() {
    steps = sampler->steps();
    if (by_length) {
      steps = by_length->size() / num_shares() + (by_length->size() % num_shares() != 0);
    }
    steps_taken = 0;
    steps_failed = 0;
    steps_lost = 0;
    ended = false;
    bad_here.clear();
  }

  /// Drops the engine, with what was made ahead.
  void drop_engine() {
    if (engine) waited_before += engine->waited();
    const std::unique_ptr<Engine> dropped = take_engine();
  }
  std::unique_ptr<Engine> take_engine() {
    const Lock lock(mutex);
    stopped = false;
    return std::move(engine);
  }

  bool is_stopped() {
    const Lock lock(mutex);
    return stopped;
  }

  /// The steps that are left, batch by batch. It has a sampler of its own, which runs ahead of what
  /// is delivered.
  Engine::Source source() const {
    auto planned = std::make_shared<std::uint64_t>(steps_taken);
    if (by_length) {
      return [this, ahead = std::make_shared<LengthBatches>(*by_length), planned, num_steps = steps,
              shares = num_shares(), own = share()]() -> std::optional<BatchPlan> {
        if (*planned == num_steps) return std::nullopt;
        const std::uint64_t batch = (*planned)++ * shares + own;
        BatchPlan next = batch < ahead->size() ? ahead->batch(batch) : BatchPlan{};
        windows->plan(next.samples.size(), window_slot(*planned));
        return next;
      };
    }
    return [ahead = std::shared_ptr<Sampler>(sampler->clone()), planned,
            num_steps = steps]() -> std::optional<BatchPlan> {
      if (*planned == num_steps) return std::nullopt;
      BatchPlan next;
      const std::uint64_t first = ahead->first_of_step(*planned);
      ++*planned;
      next.samples.resize(ahead->first_of_step(*planned) - first);
      next.samples.resize(ahead->next_batch(next.samples));
      for (std::size_t i = 0; i < next.samples.size(); ++i) {
        next.positions.push_back(ahead->position_in_epoch(first + i));
      }
      return next;
    };
  }

  /// What is done with a batch whose rows are made.
  std::function<void(Batch&, const BatchPlan&)> finish() const {
    std::optional<detail::Packer> packer;
    if (options.by_length && options.by_length->pack_to != 0) {
      packer.emplace(options.by_length->pack, options.batch_size, options.by_length->pack_to,
                     options.by_length->padding);
    }
    std::optional<detail::BatchMixer> mixer;
    if (options.mix) mixer.emplace(*options.mix, options.columns, options.order.seed);
    if (!packer && !mixer) return {};
    return
        [to = pool, packer, mixer, epoch = sampler->epoch()](Batch& batch, const BatchPlan& plan) {
          if (packer) packer->pack(batch, plan.positions, plan.starts, plan.lengths, *to);
          if (mixer) mixer->mix(batch, epoch, *to);
        };
  }

  /// What is told of rows in the making.
  std::function<void(std::uint64_t)> note_read() const {
    if (!prefetcher) return {};
    if (by_length) {
      return
          [this](std::uint64_t num_rows) { prefetcher->note_read(windows->slot_after(num_rows)); };
    }
    return [to = prefetcher.get(), from = delivered](std::uint64_t num_rows) {
      to->note_read(from + num_rows);
    };
  }

  /// Starts the threads.
  void start() {
    follow();
    if (by_length) windows = std::make_unique<WindowProgress>(window_slot(steps_taken));
    auto started = std::make_unique<Engine>(
        data, options.columns, pool, detail::ReadAheadSource(source(), data, options.columns),
        detail::EngineOptions{.seed = options.order.seed,
                              .epoch = sampler->epoch(),
                              .threads = options.threads,
                              .max_batches = batches_ahead(options),
                              .max_bytes = options.max_bytes_ahead,
                              .max_expanded_bytes = options.max_expanded_bytes,
                              .skip_bad = options.max_bad > 0,
                              .note_read = note_read(),
                              .has_repeated_samples = !sampler->is_exact(),
                              .finish = finish()},
        meter);
    const Lock lock(mutex);
    engine = std::move(started);
    if (stopped) engine->stop();
  }

  /// Tells the cache, if there is one, what this node's ranks will read.
  void follow() {
    // The shards that several data sets need from one cache are not known in advance.
    if (data.num_parts() > 1 || !data.part(0).cache()) return;
    delivered = by_length ? 0 : sampler->position();
    if (prefetcher) {
      prefetcher->begin_epoch(*sampler);
      return;
    }
    ShardPrefetcher::Options ahead;
    ahead.fetch_threads = options.fetch_threads;
    ahead.node = node();
    ahead.window = window();
    prefetcher = std::make_unique<ShardPrefetcher>(data.part(0), *sampler, ahead);
  }

  /// Positions whose samples come in any order, as ShardPrefetcher::Options::window.
  std::uint64_t window() const { return by_length ? options.by_length->window : 0; }

  /// The ranks of this node. Batches by length go to whichever rank is next, so all shards of a
  /// window are needed by every node.
  RankOptions::Range node() const {
    if (by_length) return {.first = 0, .count = ranks->world_size()};
    return {.first = ranks->rank() - ranks->local_rank(), .count = ranks->local_world_size()};
  }

  /// Which of the ranks that get the same batches this one is.
  std::uint64_t replica() const { return sampler->rank() % sampler->replicas(); }

  /// What all ranks must have alike, so that their batches together are an epoch.
  RankAgreement common() const {
    ResumeToken order = sampler->token_after(0);
    ResumeToken left_out;
    left_out.skip = std::exchange(order.skip, {});
    const std::string begin = std::to_string(order.position) + " " +
                              std::to_string(by_length ? place_after(0).batches : 0);
    // What is left says nothing but what the order is made of.
    order.fingerprint = {};
    order.epoch = 0;
    order.position = 0;
    order.history.clear();
    detail::Record alike = detail::agreed_options(options);
    alike.insert(alike.begin(),
                 {{"data set", to_string(data.fingerprint())},
                  // A token has no seed of an order in which nothing is drawn; what
                  // is random of a row has it all the same.
                  {"order", order.to_text() + " " + std::to_string(options.order.seed)}});
    alike.insert(alike.end(), {{"epoch", std::to_string(sampler->epoch())},
                               {"point from which it goes on", begin + " " + left_out.to_text()},
                               {"batches that could not be made", std::to_string(steps_lost)},
                               {"number of steps taken", std::to_string(steps_done())}});
    return RankAgreement(std::move(alike));
  }

  /// Adds up what the ranks delivered in this epoch, by replica; afterwards every rank knows all
  /// bad samples, too. Collective.
  /// Errors: Mismatch, on all ranks, if they differ; also in the steps taken, if `in_step`.
  std::vector<EpochAudit::Sum> agree(bool in_step) {
    constexpr std::size_t kWords = EpochAudit::Sum::kNumWords;
    const RankAgreement alike = common();
    // As many words on all ranks, however they differ.
    std::vector<std::int64_t> words = alike.words();
    const std::size_t first = words.size();
    words.resize(first + kWords + 1);
    const auto own = audit.sum().to_words();
    const bool speaks = replica() == 0;  // the other replicas found the same
    if (speaks) {
      std::copy(own.begin(), own.end(), words.begin() + static_cast<std::ptrdiff_t>(first));
      words.back() = static_cast<std::int64_t>(bad_here.size());
    }
    ranks->add(words);
    alike.require(words, sampler->world_size(), in_step ? 0 : kStepItems);
    // Of the other replicas.
    std::vector<std::int64_t> others(kWords * (sampler->replicas() - 1));
    if (!speaks) {
      std::copy(own.begin(), own.end(),
                others.begin() + static_cast<std::ptrdiff_t>(kWords * (replica() - 1)));
    }
    if (!others.empty()) ranks->add(others);
    std::vector<EpochAudit::Sum> sums;
    sums.push_back(EpochAudit::Sum::from_words(std::span(words).subspan(first).first<kWords>()));
    for (std::size_t i = 0; i < others.size(); i += kWords) {
      sums.push_back(EpochAudit::Sum::from_words(std::span(others).subspan(i).first<kWords>()));
    }
    bad_everywhere.clear();
    if (words.back() != 0) exchange_bad(speaks);
    return sums;
  }

  /// Tells all ranks the bad samples of each, as tokens, which hold lists already; a sample that
  /// was bad twice counts twice. Collective.
  void exchange_bad(bool speaks) {
    std::string text;
    for (const BadRow& found : bad_here) {
      if (!speaks) break;
      ResumeToken carrier;
      carrier.skip.add_sample(found.sample, found.reason, {sampler->epoch(), found.position});
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
    throw_too_many_bad(
        found, options.max_bad,
        "the first of them is sample " + std::to_string(sample) + ": " + entry.reason);
  }

  /// Collective. Errors: NotExact; Mismatch, also if the steps taken differ, if `in_step`.
  std::string prove(bool in_step) {
    const std::vector<EpochAudit::Sum> sums = agree(in_step);
    const Hash128 fingerprint = data.fingerprint();
    if (sampler->is_exact() && !expected_all) {
      expected_all = EpochAudit::Sum::of_range(0, sampler->num_samples(), fingerprint);
    }
    EpochAudit::Expectation expectation =
        sampler->expectation(expected_all.value_or(EpochAudit::Sum{}));
    expectation.leave_out(bad_everywhere);
    if (!bad_everywhere.empty() && sums.front().count == 0 && !may_all_be_bad) {
      throw_all_bad("all " + std::to_string(bad_everywhere.size()) + " samples of epoch " +
                        std::to_string(sampler->epoch()) + " are bad",
                    bad.samples().begin()->second.reason);
    }
    std::string text;
    for (std::size_t r = sums.size(); r-- > 0;) {
      EpochAudit whole(fingerprint);
      whole.set_sum(sums[r]);
      const EpochAudit::Verdict verdict = whole.verdict(expectation);
      text = verdict.text(sampler->epoch());
      if (verdict.proven) continue;
      if (sums.size() > 1) text = "replica " + std::to_string(r) + ", " + text;
      throw NotExact(text);
    }
    return text;
  }

  [[noreturn]] void throw_lost() const {
    throw NotExact("batches could not be made, and later ones were handed out",
                   "epoch " + std::to_string(sampler->epoch()) + ": " + std::to_string(steps_lost) +
                       " of " + std::to_string(steps_done()) + " are missing",
                   "go on from a state that was taken before");
  }

  /// Counts a batch as delivered.
  void deliver(MadeBatch& made) {
    samples_read.assign(made.batch.samples().begin(), made.batch.samples().end());
    audit.add(samples_read);
    has_good_sample |= !samples_read.empty();
    meter->add_batch(samples_read.size(), made.bad.size(), bytes_of(made.batch));
    delivered = by_length ? window_slot(steps_taken) : delivered + made.planned;
    if (prefetcher) prefetcher->reached(delivered);
    if (made.bad.empty()) return;
    std::ranges::move(made.bad, std::back_inserter(bad_here));
    SkipList known = bad;
    for (const BadRow& found : bad_here) known.add_sample(found.sample);
    if (known.samples().size() > options.max_bad) {
      throw_too_many_bad(known.samples().size(), options.max_bad,
                         "the last of them: " + bad_here.back().reason);
    }
    if (!has_good_sample && bad_here.size() >= kMaxBadFirst && !may_all_be_bad) {
      throw_all_bad("none of the first " + std::to_string(bad_here.size()) + " samples is good",
                    bad_here.front().reason);
    }
  }

  /// Where the window begins of which this rank's batch is behind `num_steps`: in samples that all
  /// ranks deliver from where the sampler stands.
  std::uint64_t window_slot(std::uint64_t num_steps) const {
    const std::uint64_t next = std::min(num_steps * num_shares() + share(), by_length->size());
    return sampler->deliveries_before(by_length->place_after(next).position) -
           sampler->deliveries_before(by_length->place_after(0).position);
  }
  LengthBatches::Place place_after(std::uint64_t num_steps) const {
    return by_length->place_after(std::min(num_steps * num_shares(), by_length->size()));
  }

  /// The token of all ranks after `num_steps` steps of this epoch, without an audit.
  ResumeToken token_after(std::uint64_t num_steps) const {
    ResumeToken token;
    if (!by_length) {
      token = sampler->token_after(num_steps);
    } else if (num_steps == steps) {
      token = sampler->token_after(sampler->steps());
    } else {
      token = sampler->token_after(0);
      token.epoch = sampler->epoch();  // if all is left out, it stands in the next one
      const LengthBatches::Place place = place_after(num_steps);
      token.position = place.position;
      if (place.position > 0 || place.batches > 0) token.batches = {rule, place.batches};
    }
    token.skip.merge(bad);
    return token;
  }

  /// A sampler to resume from `token`. Within a window all that is left out comes from the token,
  /// see without_batches(): the order's own list would hold from the beginning of the window.
  std::unique_ptr<Sampler> sampler_for_rest(const ResumeToken& token) const {
    Loader::Options rest = options;
    if (token.batches) rest.order.skip = {};
    return sampler_for(data, rest, ranks->rank(), ranks->world_size());
  }

  /// The token for a sampler, which knows nothing of batches by length.
  /// Errors: Mismatch if the token's batches are not those of this loader.
  ResumeToken without_batches(const ResumeToken& token, const std::string& where) const {
    const std::string there = token.batches ? token.batches->rule : "";
    if ((token.batches || token.position > 0) && there != rule) {
      const auto shown = [](const std::string& text) {
        return text.empty() ? std::string("none") : in_quotes(text);
      };
      throw Mismatch("within an epoch, batches by length must be made as before",
                     where + ": " + shown(there) + " there, " + shown(rule) + " here",
                     "go on with the same by_length and batch_size, or at the end of the epoch");
    }
    if (token.batches && token.position % options.by_length->window != 0) {
      throw Mismatch("the resume token says that a window begins where none does", where,
                     "take tokens from the loader's state()");
    }
    ResumeToken plain = token;
    plain.batches.reset();
    if (token.batches) {
      // What is delivered of this window stays delivered, so new entries hold behind it.
      plain.skip.merge_from(options.order.skip,
                            {token.epoch, token.position + options.by_length->window});
    }
    return plain;
  }

  /// Begins where `at` stands.
  /// @param before  within an epoch, what this rank counts as delivered before.
  void stand(std::unique_ptr<Sampler> at, std::unique_ptr<LengthBatches> batches,
             const std::optional<EpochAudit::Sum>& before = std::nullopt) {
    drop_engine();
    sampler = std::move(at);
    by_length = std::move(batches);
    delivered_before = before;
    begin_again();
  }
  /// Goes back to where stand() put the loader.
  void begin_again() {
    drop_engine();
    waiting_since.reset();
    audit.set_sum(delivered_before.value_or(EpochAudit::Sum{}));
    last_whole.reset();
    begin_steps();
  }

  /// Notes where the batches of the step begin that is not whole yet.
  void keep_place() {
    if (watch == nullptr) return;
    const std::uint64_t whole = watch->num_whole_steps();
    if (last_whole && watch->counts_steps() && last_whole->whole_steps == whole) return;
    last_whole = Place{whole, steps_taken, audit, bad_here.size()};
  }

  /// Waits for the next batch, as long as this rank is not to stop: what is ready is handed out.
  /// @return  true if it had to wait. Errors: Cancelled.
  bool wait_unless_stopping() {
    constexpr std::chrono::milliseconds kSlice{50};
    if (watch == nullptr || options.threads == 0 || engine->wait({})) return false;
    do {
      if (watch->wants_to_stop()) throw_stopped();
    } while (!engine->wait(kSlice));
    return true;
  }

  /// After a step that was given up: back to where the last whole one ended, as all ranks have it.
  /// What was handed out since is not delivered; the loader is as after stop(). Collective.
  /// Errors: Mismatch.
  void go_back() {
    const bool is_open = last_whole && last_whole->whole_steps == watch->num_whole_steps();
    const auto epoch = static_cast<std::int64_t>(sampler->epoch());
    const auto own = static_cast<std::int64_t>(is_open ? last_whole->steps_taken : steps_taken);
    const std::int64_t last_epoch = watch->largest(epoch);
    const std::int64_t last_step = watch->largest(epoch == last_epoch ? own : 0);
    const auto agreed = static_cast<std::uint64_t>(last_step);
    const bool has_ended_before = epoch + 1 == last_epoch && steps_taken == steps && agreed == 0;
    const bool is_ahead = epoch == last_epoch && steps_taken > agreed;
    const bool has_way = is_ahead
                             ? last_whole && last_whole->steps_taken == agreed
                             : has_ended_before || (epoch == last_epoch && steps_taken == agreed);
    if (watch->largest(has_way ? 0 : 1) != 0) throw_no_way_back();  // on all ranks, or on none
    if (is_ahead) {
      steps_taken = agreed;
      steps_failed = 0;
      audit = last_whole->audit;
      bad_here.resize(last_whole->num_bad);
    }
    last_whole.reset();
    if (has_ended_before) to_epoch(static_cast<std::uint64_t>(last_epoch));
  }

  [[noreturn]] void throw_no_way_back() const {
    throw Mismatch(
        "the ranks gave up a step, and were not at the same one",
        "epoch " + std::to_string(sampler->epoch()) + ", step " + std::to_string(steps_taken),
        "take as many batches on each rank between two steps, and go on from the last "
        "checkpoint");
  }

  /// Moves to the beginning of an epoch.
  void to_epoch(std::uint64_t epoch) {
    ResumeToken token = token_after(0);  // with the samples that are known to be bad
    token.epoch = epoch;
    token.position = 0;
    token.batches.reset();
    // After a token within a window the sampler's list holds behind that window only.
    token.skip.merge_from(options.order.skip, {epoch, 0});
    auto at = sampler->clone();
    at->resume(token);
    auto batches = by_length ? batches_from(*at, {}) : nullptr;
    stand(std::move(at), std::move(batches));
  }

  /// Steps that a token counts: those up to the last batch that was handed out.
  std::uint64_t steps_done() const { return steps_taken - steps_failed; }

  bool is_done() const { return ended || (steps > 0 && steps_taken == steps); }

  const MixedDataset data;
  const Loader::Options options;
  const std::shared_ptr<Reducer> ranks;
  StepWatch* const watch;  ///< the same object; nullptr: the ranks do not stop together
  const std::shared_ptr<BufferPool> pool;
  std::unique_ptr<Sampler> sampler;  ///< stands where this epoch, or the resumed rest, began
  std::shared_ptr<const SampleLengths> lengths;  ///< of batches by length
  std::string rule;                              ///< of them
  std::unique_ptr<LengthBatches> by_length;      ///< from where the sampler stands
  EpochAudit audit;                              ///< of what this rank handed out
  /// Of it, before `sampler` began, if that is within an epoch.
  std::optional<EpochAudit::Sum> delivered_before;
  const std::shared_ptr<LoadMeter> meter;
  std::optional<EpochAudit::Sum> expected_all;  ///< of every sample once: the same in every epoch
  struct Place {
    std::uint64_t whole_steps;  ///< of the run
    std::uint64_t steps_taken;
    EpochAudit audit;
    std::size_t num_bad;
  };
  std::optional<Place> last_whole;  ///< behind the batches of the last whole step; of a watch only
  std::uint64_t steps = 0;          ///< from there to the end
  std::uint64_t steps_taken = 0;
  std::uint64_t steps_failed = 0;  ///< of these, those since the last batch that was handed out
  std::uint64_t steps_lost = 0;    ///< and those before it: their batches could not be made
  bool ended = false;              ///< next() has said so
  bool has_good_sample = false;    ///< a batch of this rank had one
  bool may_all_be_bad = false;     ///< see LoaderAccess
  std::vector<BadRow> bad_here;    ///< of this rank, in this epoch or its rest
  std::vector<std::uint64_t> bad_everywhere;  ///< of all ranks, as agreed last
  SkipList bad;                               ///< of all ranks in all epochs, as agreed last
  std::vector<std::uint64_t> samples_read;    ///< of the last batch
  std::chrono::nanoseconds waited_before{};
  std::optional<LoadMeter::Clock::time_point> waiting_since;  ///< by LoaderAccess::wait()
  /// Of this rank's epoch; of batches by length, as window_slot().
  std::uint64_t delivered = 0;
  /// Of batches by length, as the engine reads them. Outlives it.
  std::unique_ptr<WindowProgress> windows;
  std::unique_ptr<ShardPrefetcher> prefetcher;
  Mutex mutex;                     ///< for stop(), which comes from any thread
  std::unique_ptr<Engine> engine;  ///< nullptr: not started; changed under the mutex
  bool stopped = false;            ///< under the mutex
};

Loader::Loader(MixedDataset data, Options options, std::shared_ptr<Reducer> ranks)
    : impl_(std::make_unique<Impl>(std::move(data), std::move(options), std::move(ranks))) {}

Loader::~Loader() = default;

void Loader::validate(const MixedDataset& data, const Options& options, std::uint64_t world_size) {
  sampler_for(data, checked(options), 0, world_size);
  if (options.by_length) SampleLengths(data, *options.by_length);
}

void Loader::set_epoch(std::uint64_t epoch) {
  const bool keeps_place = epoch == epoch_number() && impl_->delivered_before && !has_ended();
  keeps_place ? impl_->begin_again() : impl_->to_epoch(epoch);
}

void Loader::start() {
  if (!impl_->engine && impl_->steps_taken < impl_->steps) impl_->start();
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
  if (impl.steps_taken == impl.steps) {
    if (impl.engine) impl.engine->note_end();
    impl.ended = true;
    return std::nullopt;
  }
  // The time that threads take to start is waited, too, also where they are quicker than this one.
  auto since = std::exchange(impl.waiting_since, std::nullopt);
  const auto asked = LoadMeter::Clock::now();
  if (!impl.engine && !since) since = asked;
  start();
  if (impl.wait_unless_stopping() && !since) since = asked;
  ++impl.steps_taken;
  ++impl.steps_failed;  // if the batch cannot be made
  auto made = impl.engine->next(since);
  if (!made) {
    --impl.steps_taken;  // it was not handed out, and a token says so
    --impl.steps_failed;
    throw_stopped();
  }
  impl.steps_lost += std::exchange(impl.steps_failed, 0) - 1;
  impl.deliver(*made);
  return std::move(made->batch);
}

ResumeToken Loader::state() {
  Impl& impl = *impl_;
  if (impl.watch != nullptr && impl.watch->gave_up_step()) {
    stop();
    impl.go_back();
  }
  const std::uint64_t done = impl.steps_done();
  if (done == impl.steps) {
    impl.prove(true);
    return impl.token_after(done);
  }
  const std::vector<EpochAudit::Sum> sums = impl.agree(true);
  if (impl.steps_lost > 0) impl.throw_lost();
  ResumeToken token = impl.token_after(done);
  // Of replicas that got the same it does not matter which; what one of them lacks is not proven.
  token.audit = *std::ranges::min_element(sums, {}, &EpochAudit::Sum::count);
  return token;
}

void Loader::restore(const ResumeToken& token, Sampler::Changes changes) {
  Impl& impl = *impl_;
  const std::string where =
      "epoch " + std::to_string(token.epoch) + ", position " + std::to_string(token.position);
  auto resumed = impl.sampler_for_rest(token);
  resumed->resume(impl.without_batches(token, where), changes);
  const std::uint64_t in_window = token.batches ? token.batches->delivered : 0;
  auto batches =
      impl.by_length ? impl.batches_from(*resumed, {token.position, in_window}) : nullptr;
  const std::uint64_t due =
      resumed->deliveries_before(token.position) + (batches ? batches->delivered_before() : 0);
  const std::uint64_t counted = token.audit ? token.audit->count : 0;
  if (!token.audit && due > 0) {
    throw Mismatch("the resume token stands within an epoch and does not say what was delivered",
                   where, "take tokens from the loader's state()");
  }
  if (counted != due) {
    throw Mismatch("the resume token says that " + std::to_string(counted) +
                       " samples were delivered, and " + std::to_string(due) + " were due",
                   where, "take tokens from the loader's state()");
  }
  const EpochAudit::Sum delivered = token.audit.value_or(EpochAudit::Sum{});
  const bool is_within = token.position > 0 || in_window > 0;
  if (is_within) {
    const std::uint64_t left = batches ? batches->size() : resumed->steps();
    if (left == 0) {
      EpochAudit audit(impl.data.fingerprint());
      audit.merge(delivered);
      audit.prove(resumed->expectation(), token.epoch);
      resumed->set_epoch(token.epoch + 1);
      if (batches) batches = impl.batches_from(*resumed, {});
      impl.stand(std::move(resumed), std::move(batches));
      return;
    }
  }
  const bool speaks = impl.ranks->rank() < resumed->replicas();  // one rank of each replica
  std::optional<EpochAudit::Sum> before;
  if (is_within) before = speaks ? delivered : EpochAudit::Sum{};
  impl.has_good_sample |= due > 0 || token.epoch > 0;
  impl.stand(std::move(resumed), std::move(batches), before);
}

const SkipList& Loader::bad_samples() const noexcept { return impl_->bad; }

std::uint64_t Loader::steps_left() const noexcept { return impl_->steps - impl_->steps_taken; }

std::chrono::nanoseconds Loader::waited() const noexcept {
  return impl_->waited_before +
         (impl_->engine ? impl_->engine->waited() : std::chrono::nanoseconds{});
}

Loader::Stats Loader::stats() const { return impl_->meter->stats(); }

std::string Loader::prove() { return impl_->prove(false); }

std::uint64_t Loader::epoch_number() const noexcept { return impl_->sampler->epoch(); }

std::uint64_t Loader::steps() const noexcept { return impl_->steps; }

bool Loader::has_ended() const noexcept { return impl_->is_done(); }

std::optional<std::string> Loader::cache_warning() const {
  const Impl& impl = *impl_;
  if (impl.data.num_parts() > 1 || !impl.data.part(0).cache()) return std::nullopt;
  return small_cache_warning(impl.data.part(0), *impl.sampler, impl.node(), impl.window());
}

namespace detail {

bool LoaderAccess::wait(Loader& loader, std::chrono::nanoseconds time) {
  Loader::Impl& impl = *loader.impl_;
  if (impl.is_stopped() || impl.steps_taken == impl.steps) return true;
  const auto now = LoadMeter::Clock::now();
  const bool waits = !impl.engine || impl.options.threads == 0;
  loader.start();
  if (!impl.waiting_since && (waits || !impl.engine->wait({}))) impl.waiting_since = now;
  return impl.engine->wait(time);
}

std::uint64_t LoaderAccess::steps_done(const Loader& loader) { return loader.impl_->steps_done(); }

const std::vector<BadRow>& LoaderAccess::bad_rows(const Loader& loader) {
  return loader.impl_->bad_here;
}

void LoaderAccess::accept_all_bad(Loader& loader) { loader.impl_->may_all_be_bad = true; }

void LoaderAccess::keep_events(Loader& loader, std::size_t max_events) {
  loader.impl_->meter->keep_events(max_events);
}

std::vector<TraceEvent> LoaderAccess::events(const Loader& loader) {
  return loader.impl_->meter->events();
}

void throw_epoch_ended(std::uint64_t epoch) {
  throw InvalidArgument("the end of the epoch was reached", "epoch " + std::to_string(epoch),
                        "call set_epoch(" + std::to_string(epoch + 1) +
                            ") on the loader to go on, or walk through its epochs()");
}

void throw_loader_moved_on(std::uint64_t epoch) {
  throw NotExact("the loader has moved on", "epoch " + std::to_string(epoch),
                 "walk through an epoch, and prove it, before the next one begins");
}

}  // namespace detail

}  // namespace shardwise
