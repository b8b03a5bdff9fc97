#include "loader/epoch_plan.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <string_view>
#include <variant>

#include "base/error_types.h"
#include "base/fork.h"
#include "base/spelling.h"
#include "base/text.h"
#include "loader/batch_mixer.h"
#include "loader/column_maker.h"
#include "loader/fields.h"
#include "loader/group_batches.h"
#include "loader/packing.h"
#include "loader/sample_groups.h"
#include "order/arithmetic.h"
#include "order/sampler_access.h"

namespace shardwise::detail {
namespace {

constexpr std::uint64_t kMaxBatchSize = std::uint64_t{1} << 24;

/// Throws InvalidArgument with a text that begins with `kind`, e.g. "batches by length".
class Refusal {
 public:
  explicit Refusal(const char* kind) : kind_(kind) {}
  void refuse_if(bool is_wrong, const std::string& what, const char* advice) const {
    if (is_wrong) throw InvalidArgument(kind_ + " cannot be made", what, advice);
  }

 private:
  std::string kind_;
};

/// Throws InvalidArgument if batches by length or group cannot be combined with other options.
void require_windows(const Loader::Options& options, std::uint64_t window, const Refusal& refusal) {
  refusal.refuse_if(window == 0, "the window is 0", "set window to 1 or more positions");
  refusal.refuse_if(window > std::uint64_t{1} << 32, "the window is larger than 2^32",
                    "choose a smaller window");
  refusal.refuse_if(options.global_batch_size != 0, "global_batch_size is set",
                    "set batch_size instead");
  refusal.refuse_if(options.order.balance_bytes, "balance_bytes is set", "leave balance_bytes out");
  refusal.refuse_if(options.order.tail != Order::Tail::kExact,
                    "the order's tail is " + std::string(tail_name(options.order.tail)),
                    "choose tail exact; ranks have equal numbers of batches in any case");
  refusal.refuse_if(std::holds_alternative<Wids>(options.order.kind), "the order is wids",
                    "choose another order");
}

/// Throws InvalidArgument if batches by length cannot be made.
void require_by_length(const Loader::Options& options) {
  const Refusal refusal("batches by length");
  const Loader::ByLength& rule = *options.by_length;
  require_windows(options, rule.window, refusal);
  refusal.refuse_if(rule.pack.empty() != (rule.pack_to == 0), "only one of pack and pack_to is set",
                    "set both: the column to pack, and the length of rows");
  refusal.refuse_if(rule.pack_to > std::uint64_t{1} << 31, "pack_to is larger than 2^31",
                    "choose shorter rows");
  refusal.refuse_if(rule.pack_to != 0 && rule.max_tokens != 0,
                    "both pack_to and max_tokens are set",
                    "packed batches have batch_size * pack_to tokens: leave max_tokens out");
  if (rule.pack_to == 0) return;
  const auto packed = std::ranges::find(options.columns, rule.pack, &Column::name);
  refusal.refuse_if(packed == options.columns.end(), "there is no column " + in_quotes(rule.pack),
                    "set pack to one of the loader's columns");
  Packer::require(*packed, rule.padding);
}

/// Throws InvalidArgument if batches by group cannot be made.
void require_by_group(const Loader::Options& options) {
  const Refusal refusal("batches by group");
  const Loader::ByGroup& rule = *options.by_group;
  require_windows(options, rule.window, refusal);
  // Places in a window are 32-bit numbers, and held-over samples need places, too.
  refusal.refuse_if(rule.window > std::uint64_t{1} << 31, "the window is larger than 2^31",
                    "choose a smaller window");
  for (const Loader::ByGroup::Group& group : rule.groups) {
    refusal.refuse_if(group.batch_size > kMaxBatchSize,
                      "the batch size of group " + in_quotes(group.key) + " is " +
                          std::to_string(group.batch_size),
                      "choose 1 to 16,777,216, or 0 for the loader's batch_size");
  }
  if (!options.by_length) return;
  refusal.refuse_if(options.by_length->window != rule.window,
                    "the windows of by_length and by_group differ", "give both the same window");
  refusal.refuse_if(options.by_length->pack_to != 0, "pack_to is set",
                    "leave out pack_to or by_group");
}

/// Throws InvalidArgument if two arrays of a batch have the same name; NotFound or Unsupported
/// if a column cannot be made from the data.
void require_columns(const MixedDataset& data, const Loader::Options& options) {
  std::set<std::string> names;
  if (options.mix) names = {options.mix->column + "_lambda", options.mix->column + "_partner"};
  if (options.by_length && options.by_length->pack_to != 0) {
    names.insert({options.by_length->pack + "_segments", options.by_length->pack + "_positions"});
  }
  for (const Column& column : options.columns) {
    if (!names.insert(column.name()).second) {
      throw InvalidArgument("two columns have the same name", in_quotes(column.name()),
                            "rename one of the two columns with named()");
    }
    column.maker()->require_data(data);
  }
}

/// Makes a sampler for the beginning of epoch 0. Errors: InvalidArgument if an option is invalid.
std::unique_ptr<Sampler> sampler_for(const MixedDataset& data, const Loader::Options& options,
                                     const RankOptions& ranks) {
  check_numbers(options);
  if (ranks.batch_size < 1 || ranks.batch_size > kMaxBatchSize) {
    throw InvalidOption("the batch size is out of range", std::to_string(options.batch_size),
                        "choose 1 to 16,777,216");
  }
  if (options.max_bad > 0 && std::holds_alternative<Wids>(options.order.kind)) {
    throw InvalidArgument(
        spelled("max_bad") + " cannot be used with the order wids, which cannot leave out samples",
        {}, "choose another order, or " + spelled("max_bad") + " 0");
  }
  if (options.by_length) require_by_length(options);
  if (options.by_group) require_by_group(options);
  if (options.mix) BatchMixer(*options.mix, options.columns, options.order.seed);
  require_columns(data, options);
  return make_sampler(data, options.order, ranks);
}

RankOptions rank_options(const Loader::Options& options, std::uint64_t rank,
                         std::uint64_t world_size) {
  return {.rank = rank,
          .world_size = world_size,
          // If global_batch_size sets the size of steps, batch_size is ignored.
          .batch_size = options.global_batch_size != 0 ? 1 : options.batch_size,
          .global_batch_size = options.global_batch_size,
          .replicas = options.replicas};
}

class Counted final : public EpochPlan {
 public:
  Counted(const MixedDataset& data, const Loader::Options& options,
          std::unique_ptr<Sampler> sampler, Point begin)
      : EpochPlan(data, options, std::move(sampler), begin) {
    set_steps(this->sampler().steps());
  }

  ResumeToken token_after(std::uint64_t num_steps) const override {
    return sampler().token_after(num_steps);
  }
  std::uint64_t slot_after(std::uint64_t num_steps) const override {
    return sampler().first_of_step(num_steps);
  }
  std::uint64_t slot_read(std::uint64_t num_rows) const override { return num_rows; }

  Engine::Source source() override {
    // A copy of the sampler, which runs ahead of the delivered batches.
    return [ahead = std::shared_ptr<Sampler>(sampler().clone()),
            step = std::uint64_t{0}]() mutable -> std::optional<BatchPlan> {
      if (step == ahead->steps()) return std::nullopt;
      BatchPlan next;
      const std::uint64_t first = ahead->first_of_step(step++);
      next.samples.resize(ahead->first_of_step(step) - first);
      next.samples.resize(ahead->next_batch(next.samples));
      next.positions.resize(next.samples.size());
      for (std::size_t i = 0; i < next.samples.size(); ++i) {
        next.positions[i] = ahead->position_in_epoch(first + i);
      }
      return next;
    };
  }

 private:
  std::unique_ptr<EpochPlan> from(std::unique_ptr<Sampler> sampler, Point begin) const override {
    return std::make_unique<Counted>(data_, options_, std::move(sampler), begin);
  }
};

/// The read progress of one rank with batches by group or length. Such a batch takes its samples
/// from anywhere in a window of the order. Progress is therefore the slot at which the window being
/// read begins; a slot counts samples that all ranks deliver. Samples that were held over to the
/// window are few, and do not count.
///
/// Threads: internally synchronised.
class WindowProgress {
 public:
  /// @param slot  start of the first batch's window.
  explicit WindowProgress(std::uint64_t slot) : slot_(slot) {}

  /// Records that a batch of `num_rows` rows was planned, and that this rank's next batch comes
  /// from the window that begins at `slot`. Called in the order of batches.
  void plan(std::uint64_t num_rows, std::uint64_t slot) {
    const Lock lock(mutex_);
    rows_planned_ += num_rows;
    const std::uint64_t last = ends_.empty() ? slot_ : ends_.back().slot;
    if (slot > last) ends_.push_back({rows_planned_, slot});
  }

  /// Returns a slot. Once this rank has read the first `num_rows` planned rows, it needs nothing
  /// before this slot. Calls may come out of order.
  std::uint64_t slot_after(std::uint64_t num_rows) {
    const Lock lock(mutex_);
    for (; !ends_.empty() && ends_.front().rows <= num_rows; ends_.pop_front()) {
      slot_ = ends_.front().slot;
    }
    return slot_;
  }

 private:
  /// Once `rows` rows are read, this rank needs no window before the one that begins at `slot`.
  struct End {
    std::uint64_t rows;
    std::uint64_t slot;
  };

  Mutex mutex_;
  std::uint64_t rows_planned_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::uint64_t slot_ SHARDWISE_GUARDED_BY(mutex_);
  std::deque<End> ends_ SHARDWISE_GUARDED_BY(mutex_);
};

class Grouped final : public EpochPlan {
 public:
  /// The parts that all plans of a loader share.
  struct Rule {
    BatchRule batches;
    std::unique_ptr<Sampler> order;  ///< the order of a single rank, without a skip list
  };

  Grouped(const MixedDataset& data, const Loader::Options& options,
          std::unique_ptr<Sampler> sampler, Point begin, std::shared_ptr<const Rule> rule)
      : EpochPlan(data, options, std::move(sampler), begin),
        rule_(std::move(rule)),
        batches_(rest()) {
    set_steps(ceil_div(batches_.size(), num_shares()));
  }

  static std::shared_ptr<const Rule> rule_of(const MixedDataset& data,
                                             const Loader::Options& options) {
    Order order = options.order;
    order.skip = {};
    return std::make_shared<const Rule>(
        Rule{BatchRule(data, options), make_sampler(data, order, {})});
  }

  std::span<const Loader::ByGroup::Group> groups() const override {
    const std::optional<SampleGroups>& groups = rule_->batches.groups;
    return groups ? std::span(groups->groups()) : std::span<const Loader::ByGroup::Group>();
  }

  std::string_view rule() const override { return rule_->batches.text; }
  std::uint64_t delivered_before() override { return batches_.delivered_before(); }

  ResumeToken token_after(std::uint64_t num_steps) const override {
    if (num_steps == steps()) return sampler().token_after(sampler().steps());
    ResumeToken token = sampler().token_after(0);
    // If all samples are left out, token_after(0) is in the next epoch.
    token.epoch = sampler().epoch();
    const Point point = point_before(num_steps * num_shares());
    token.position = point.position;
    if (point.position > 0 || point.batches > 0)
      token.batches = {rule_->batches.text, point.batches};
    return token;
  }

  /// Returns where the window of this rank's next batch begins, counted in samples that all ranks
  /// deliver.
  std::uint64_t slot_after(std::uint64_t num_steps) const override {
    return sampler().deliveries_before(point_before(num_steps * num_shares() + share()).position) -
           sampler().deliveries_before(batches_.point_after(0).position);
  }
  std::uint64_t slot_read(std::uint64_t num_rows) const override {
    return progress_->slot_after(num_rows);
  }

  void visit_batches(std::uint64_t first, std::uint64_t last, const Visit& visit) const override {
    GroupBatches batches = batches_;
    const std::uint64_t end = std::min(last * num_shares(), batches.size());
    for (std::uint64_t batch = first * num_shares(); batch < end; ++batch) {
      visit(batch / num_shares(), batch % num_shares(), batches.batch(batch));
    }
  }

  Engine::Source source() override {
    progress_ = std::make_unique<WindowProgress>(slot_after(0));
    return [this, ahead = batches_, step = std::uint64_t{0}]() mutable -> std::optional<BatchPlan> {
      if (step == steps()) return std::nullopt;
      const std::uint64_t batch = step++ * num_shares() + share();
      BatchPlan next = batch < ahead.size() ? ahead.batch(batch) : BatchPlan{};
      progress_->plan(next.samples.size(), slot_after(step));
      return next;
    };
  }

 private:
  std::unique_ptr<EpochPlan> from(std::unique_ptr<Sampler> sampler, Point begin) const override {
    return std::make_unique<Grouped>(data_, options_, std::move(sampler), begin, rule_);
  }

  GroupBatches rest() const {
    // After restore(), a mixture may have earlier weights that the options do not have.
    std::shared_ptr<Sampler> whole = rule_->order->spec() == sampler().spec()
                                         ? rule_->order->clone()
                                         : make_sampler(data_, sampler().order(), {});
    whole->set_epoch(sampler().epoch());
    return {std::shared_ptr<const BatchRule>(rule_, &rule_->batches), sampler(), std::move(whole),
            begin_};
  }

  /// Returns where a batch begins. Returns the end of the epoch if there is no such batch.
  Point point_before(std::uint64_t batch) const {
    return batches_.point_after(std::min(batch, batches_.size()));
  }

  const std::shared_ptr<const Rule> rule_;
  GroupBatches batches_;
  std::unique_ptr<WindowProgress> progress_;
};

}  // namespace

std::unique_ptr<EpochPlan> EpochPlan::make(const MixedDataset& data, const Loader::Options& options,
                                           std::uint64_t rank, std::uint64_t world_size) {
  auto sampler = sampler_for(data, options, rank_options(options, rank, world_size));
  if (!options.by_length && !options.by_group) {
    static_cast<void>(columns_by_group(options.columns, {}));
    return std::make_unique<Counted>(data, options, std::move(sampler), Point{});
  }
  auto plan = std::make_unique<Grouped>(data, options, std::move(sampler), Point{},
                                        Grouped::rule_of(data, options));
  static_cast<void>(columns_by_group(options.columns, plan->groups()));
  return plan;
}

void EpochPlan::validate(const MixedDataset& data, const Loader::Options& options,
                         std::uint64_t world_size) {
  sampler_for(data, options, rank_options(options, 0, world_size));
  const BatchRule rule(data, options);
  static_cast<void>(
      columns_by_group(options.columns, rule.groups ? std::span(rule.groups->groups())
                                                    : std::span<const Loader::ByGroup::Group>()));
}

void EpochPlan::visit_batches(std::uint64_t, std::uint64_t, const Visit&) const {}

std::uint64_t EpochPlan::delivered_before() { return sampler_->deliveries_before(begin_.position); }

std::unique_ptr<EpochPlan> EpochPlan::resume(const ResumeToken& token,
                                             Sampler::Changes changes) const {
  const std::string where =
      "epoch " + std::to_string(token.epoch) + ", position " + std::to_string(token.position);
  const std::string_view there = token.batches ? std::string_view(token.batches->rule) : "";
  if ((token.batches || token.position > 0) && there != rule()) {
    const auto shown = [](std::string_view text) {
      return text.empty() ? std::string("none") : in_quotes(text);
    };
    throw Mismatch(
        "the rule of batches by length or group cannot change within an epoch",
        where + ": " + shown(there) + " in the token, " + shown(rule()) + " in this loader",
        "resume with the same by_length, " + spelled("by_group") + " and " + spelled("batch_size") +
            ", or change these options at the end of the epoch");
  }
  if (token.batches && (window() == 0 || token.position % window() != 0)) {
    throw Mismatch("the resume token names a position at which no window begins", where,
                   "take tokens from the loader's state()");
  }
  Order order = options_.order;
  ResumeToken plain = token;  // without batches, which samplers refuse
  if (token.batches) {
    plain.batches.reset();
    // Batches of this window were delivered already, so new entries of the skip list apply only
    // after it. The samples left out of this window are those in the token.
    order.skip = {};
    plain.skip.merge_from(options_.order.skip, {token.epoch, token.position + window()});
  }
  auto sampler =
      make_sampler(data_, order, rank_options(options_, sampler_->rank(), sampler_->world_size()));
  // Batches of this window were delivered from the token's order, so other weights of a mixture
  // apply only after it.
  SamplerAccess::resume_at(*sampler, plain, changes, token.batches ? window() : 0);
  return from(std::move(sampler), {token.position, token.batches ? token.batches->delivered : 0});
}

std::unique_ptr<EpochPlan> EpochPlan::whole(std::uint64_t epoch, const SkipList& bad) const {
  ResumeToken token = sampler_->token_after(0);
  token.epoch = epoch;
  token.position = 0;
  token.skip.merge(bad);
  // The token may be from within a window, and then lists options_.order.skip only after that
  // window. Add the list for the whole epoch.
  token.skip.merge_from(options_.order.skip, {epoch, 0});
  auto sampler = sampler_->clone();
  SamplerAccess::resume_at(*sampler, token, Sampler::Changes::kRefuse, kMaxSamples);
  return from(std::move(sampler), {});
}

}  // namespace shardwise::detail
