// Compares random chains of resumes with a naive model of the guarantees in the headers.
//
// A chain is a whole run: an order over some samples, and a few of its epochs, read in pieces. Each
// piece has another number of ranks, another batch size and more entries in its skip list. It
// begins with new samplers, which resume from the text of a token. The model uses only lists of
// numbers, and the order of each epoch as one rank reads it with no sample left out. In each step,
// the ranks must deliver the samples of the model.
//
//     tools/test.sh --thorough -R order_resume_chain_test    many more of them
//     SHARDWISE_SEED=17 order_resume_chain_test              one, in detail

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "order/arithmetic.h"
#include "order/resume_chain.h"
#include "shardwise/order/explain.h"

namespace shardwise {
namespace {

using detail::ceil_div;
using test::Dice;
using test::MixtureSampler;
using test::must;
using test::must_equal;
using test::must_throw;
using test::Samples;
using test::Setup;
using test::shown;
using test::sorted;

enum class Family { kExact, kMixture, kResampled };

/// Entries for a skip list, one after another.
struct Entries {
  struct Range {
    std::uint64_t epoch, begin, end;
  };
  std::vector<std::pair<std::uint64_t, SkipList::Point>> samples;
  std::vector<Range> ranges;
};

/// The skip list of the model.
class Skips {
 public:
  bool has(std::uint64_t sample) const { return from_.contains(sample); }
  bool leaves_out_sample(std::uint64_t sample, SkipList::Point at) const {
    const auto entry = from_.find(sample);
    return entry != from_.end() && entry->second <= at;
  }
  bool leaves_out(std::uint64_t sample, SkipList::Point at) const {
    return leaves_out_sample(sample, at) || leaves_out_position(at);
  }
  bool leaves_out_position(SkipList::Point at) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [at](const Entries::Range& range) {
      return range.epoch == at.epoch && range.begin <= at.position && at.position < range.end;
    });
  }
  /// Adds the entries of a skip list that a run gets when it begins at `point`.
  void add(const Entries& entries, SkipList::Point point) {
    for (const auto& [sample, wanted] : entries.samples) {
      const SkipList::Point from = std::max(wanted, point);
      const auto [at, is_new] = from_.try_emplace(sample, from);
      if (!is_new) at->second = std::min(at->second, from);
    }
    for (Entries::Range range : entries.ranges) {
      if (range.epoch < point.epoch) continue;
      if (range.epoch == point.epoch) range.begin = std::max(range.begin, point.position);
      if (range.begin < range.end) ranges_.push_back(range);
    }
  }
  /// True if `list` has the same samples, with the same points from which they are left out.
  bool has_samples_of(const SkipList& list) const {
    return std::equal(from_.begin(), from_.end(), list.samples().begin(), list.samples().end(),
                      [](const auto& x, const auto& y) {
                        return x.first == y.first && x.second == y.second.from;
                      });
  }

 private:
  std::map<std::uint64_t, SkipList::Point> from_;
  std::vector<Entries::Range> ranges_;
};

Chunked random_chunked(Dice& random, std::uint64_t n) {
  return {.chunk_size = random.between(1, n / random.between(1, 8) + 3),
          .window = random.between(1, 5),
          .phase = random.percent(50)};
}

Setup random_exact(Dice& random) {
  const std::uint64_t n = test::random_size(random);
  Setup setup{test::random_samples(random, n), {.seed = random.number()}};
  switch (random.below(5)) {
    case 0:
      setup.order.kind = Sharded{.window = random.between(1, 4)};
      break;
    case 1:
      setup.order.kind = Sequential{};
      break;
    default:
      setup.order.kind = random_chunked(random, n);
  }
  setup.order.streams = random.one_of({1U, 1U, 1U, 2U, 3U, 4U, 6U, 8U, 12U});
  setup.order.tail = random.one_of(
      {Order::Tail::kExact, Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad});
  setup.order.balance_bytes = random.percent(25);
  if (n > 0 && random.percent(15)) {
    setup.order.tail = Order::Tail::kExact;
    setup.order.epoch_size = random.between(1, 2 * n + 1);
  }
  return setup;
}

double random_weight(Dice& random) { return random.one_of({0.0, 0.5, 1.0, 2.0, 3.7, 0.01}); }

/// Returns a random schedule. The positions are in the first epochs.
std::vector<Mixture::Change> random_schedule(Dice& random, std::size_t num_parts,
                                             std::uint64_t num_samples) {
  std::vector<Mixture::Change> schedule;
  std::uint64_t from = 0;
  for (std::uint64_t i = random.below(4); i > 0; --i) {
    from += random.between(1, random.one_of({10U, 300U, 3 * static_cast<unsigned>(num_samples)}));
    Mixture::Change change{from, {random.one_of({0.5, 3.0})}};
    while (change.weights.size() < num_parts) change.weights.push_back(random_weight(random));
    random.shuffle(change.weights);
    schedule.push_back(std::move(change));
  }
  return schedule;
}

/// Makes a random mixture. Borders of data sets are borders of shards, because a sharded order
/// requires this.
Setup random_mixture(Dice& random) {
  Mixture mixture;
  Samples lengths;
  for (std::uint64_t i = random.between(1, 4); i > 0; --i) {
    const Samples own =
        test::random_lengths(random, random.between(1, random.percent(30) ? 150 : 20));
    lengths.insert(lengths.end(), own.begin(), own.end());
    Mixture::Part part;
    part.num_samples = std::accumulate(own.begin(), own.end(), std::uint64_t{0});
    part.weight = random.one_of({0.5, 1.0, 2.0, 3.7, 0.01});
    if (!mixture.parts.empty() && random.percent(10)) part.weight = 0;
    const std::uint64_t kind = random.below(3);
    if (kind == 0) part.kind = random_chunked(random, part.num_samples);
    if (kind == 1) part.kind = Sharded{.window = random.between(1, 3)};
    if (kind == 2) part.kind = Sequential{};
    mixture.parts.push_back(part);
  }
  const std::uint64_t n = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
  if (random.percent(50)) mixture.schedule = random_schedule(random, mixture.parts.size(), n);
  Setup setup{test::random_samples(random, n).with_shards(test::offsets_of(lengths)),
              {.seed = random.number(), .kind = mixture}};
  setup.order.balance_bytes = random.percent(25);
  if (random.percent(50)) setup.order.epoch_size = random.between(1, 2 * n);
  return setup;
}

Setup random_resampled(Dice& random) {
  const std::uint64_t n = test::random_size(random) + 1;
  Resampled kind;
  if (random.percent(50)) kind.unit = Resampled::Unit::kShard;
  if (kind.unit == Resampled::Unit::kSample && random.percent(50)) kind.weights = "weight";
  Setup setup{test::random_samples(random, n), {.seed = random.number(), .kind = kind}};
  setup.order.streams = random.one_of({1U, 1U, 2U, 3U, 4U, 8U});
  setup.order.tail = random.one_of({Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad});
  setup.order.balance_bytes = random.percent(25);
  if (random.percent(40)) {
    setup.order.tail = Order::Tail::kExact;
    setup.order.epoch_size = random.between(1, 2 * n);
  }
  return setup;
}

Setup random_setup(Family family, Dice& random) {
  switch (family) {
    case Family::kMixture:
      return random_mixture(random);
    case Family::kResampled:
      return random_resampled(random);
    default:
      return random_exact(random);
  }
}

/// Returns the numbers of ranks with different samples that are valid for `streams` streams.
Samples valid_worlds(std::uint64_t streams) {
  Samples worlds;
  for (std::uint64_t world = 1; world <= 9; ++world) {
    if (world % streams == 0 || streams % world == 0) worlds.push_back(world);
  }
  return worlds;
}

std::string shown(const SkipList::Point& at) {
  return "(" + shown(at.epoch) + ", " + shown(at.position) + ")";
}

/// A run with an order whose positions are distributed to the ranks in turn: any order but wids.
class Chain {
 public:
  Chain(Family family, std::uint64_t seed, std::ostream* log, test::Tally& tally)
      : family_(family),
        random_(seed),
        setup_(random_setup(family, random_)),
        log_(log),
        tally_(tally) {
    num_epochs_ = random_.between(1, 4);
    if (log_ != nullptr) describe_setup();
    order_ = setup_.order;
    plain_ = setup_.order;
    plain_.balance_bytes = false;
    plain_.tail = Order::Tail::kExact;
    audit_ = std::make_unique<EpochAudit>(setup_.samples.fingerprint());
  }

  void run() {
    for (int pieces = 0; pieces < 16 && point_.epoch < num_epochs_; ++pieces) run_piece();
    check_passes();
    if (family_ == Family::kMixture) check_datasets();
  }

 private:
  /// The properties and the progress of one piece of the run.
  struct Piece {
    std::uint64_t shares = 1;  ///< ranks with different samples
    std::uint64_t replicas = 1;
    std::uint64_t batch = 1;
    std::vector<std::unique_ptr<Sampler>> ranks;
    Samples walk;            ///< kept positions from the point on
    std::uint64_t rows = 0;  ///< number of positions of the walk including the tail, over all
                             ///< shares
    std::uint64_t steps = 0;
    std::uint64_t taken = 0;                    ///< samples that each rank has taken, if it has
                                                ///< that many
    std::vector<std::vector<Samples>> by_step;  ///< the samples of each step and rank
  };

  bool is_virtual() const { return epoch_length() != setup_.samples.size(); }
  bool has_exact_passes() const { return family_ == Family::kExact; }
  std::uint64_t epoch_length() const {
    return order_.epoch_size == 0 ? setup_.samples.size() : order_.epoch_size;
  }

  /// Returns the samples of an epoch by position, as one rank reads it with no sample left out.
  const Samples& epoch(std::uint64_t number) {
    const auto [at, is_new] = epochs_.try_emplace(number);
    if (is_new) {
      const std::unique_ptr<Sampler> sampler = make_sampler(setup_.samples, plain_);
      sampler->set_epoch(number);
      at->second = test::drain(*sampler);
      must_equal(std::uint64_t{at->second.size()}, epoch_length(), "samples of an epoch");
      if (has_exact_passes() && !is_virtual()) {
        must(test::is_each_once(at->second, epoch_length()), "an epoch has each sample once");
      }
    }
    return at->second;
  }
  std::uint64_t sample_at(std::uint64_t position) { return epoch(point_.epoch)[position]; }

  void run_piece() {
    const bool same_ranks = last_.ranks.size() > 0 && random_.percent(20);
    if (!same_ranks) add_skips();
    changes_ = Sampler::Changes::kRefuse;
    if (!same_ranks && family_ == Family::kMixture && !text_.empty()) change_weights();
    Piece piece = same_ranks ? std::move(last_) : new_piece();
    begin(piece, same_ranks);
    check_begin(piece);
    run_steps(piece);
    check_explanations(piece);
    check_other_world(piece);
    finish(piece);
    last_ = std::move(piece);
    ++tally_["pieces"];
  }

  // ----- The beginning of a piece.

  Piece new_piece() {
    Piece piece;
    piece.shares = random_.one_of(valid_worlds(order_.streams));
    piece.replicas = random_.one_of({1U, 1U, 1U, 2U, 3U});
    piece.batch = test::random_batch(random_);
    return piece;
  }

  RankOptions options_of(const Piece& piece, std::uint64_t rank) const {
    return {.rank = rank,
            .world_size = piece.shares * piece.replicas,
            .batch_size = piece.batch,
            .replicas = piece.replicas};
  }

  void begin(Piece& piece, bool same_ranks) {
    const bool by_set_epoch = same_ranks && point_.position == 0 && random_.percent(50);
    if (same_ranks) {
      for (auto& rank : piece.ranks) {
        by_set_epoch ? rank->set_epoch(point_.epoch) : rank->resume(read_token());
      }
      piece.by_step.clear();
      piece.taken = 0;
    } else {
      make_ranks(piece);
    }
    if (!by_set_epoch) skips_.add(entries_, text_.empty() ? SkipList::Point{} : point_);
    plan(piece);
    if (log_ != nullptr) describe_begin(piece, same_ranks, by_set_epoch);
  }

  void make_ranks(Piece& piece) {
    const bool from_first = random_.percent(20);
    for (std::uint64_t rank = 0; rank < piece.shares * piece.replicas; ++rank) {
      if (from_first && rank > 0) {
        piece.ranks.push_back(piece.ranks[0]->for_rank(rank));
        continue;
      }
      piece.ranks.push_back(make_sampler(setup_.samples, order_, options_of(piece, rank)));
      Sampler& sampler = *piece.ranks.back();
      if (text_.empty()) continue;
      if (random_.percent(15)) resume_elsewhere(sampler);
      sampler.resume(read_token(), changes_);
    }
  }

  /// Resumes from a token of another run, which leaves out more samples.
  void resume_elsewhere(Sampler& sampler) {
    ResumeToken token = ResumeToken::from_text(random_.one_of(old_texts_));
    if (sampler.num_samples() > 0 && random_.percent(50)) {
      token.skip.add_sample(random_.below(sampler.num_samples()));
      token.skip.add_positions(point_.epoch, point_.position, point_.position + 3);
    }
    sampler.resume(token, Sampler::Changes::kAllowAtEpochBorder);
    test::take(sampler, random_.below(5), random_);
  }

  // ----- Weights that change.

  /// Gives the next pieces other weights from the point on, or the same weights in another form.
  /// The model knows the weights of the whole run.
  void change_weights() {
    Mixture& own = std::get<Mixture>(order_.kind);
    Mixture& whole = std::get<Mixture>(plain_.kind);
    if (random_.percent(10)) {
      own = whole;
      return;
    }
    if (!random_.percent(30)) return;
    changes_ = Sampler::Changes::kAllowAtEpochBorder;
    for (Mixture::Part& part : own.parts) part.weight = random_weight(random_);
    own.parts[random_.below(own.parts.size())].weight = 1.5;
    own.schedule = random_schedule(random_, own.parts.size(), setup_.samples.size());
    // Positions are rounded up to blocks of 256.
    const auto up = [](std::uint64_t position) { return (position + 255) / 256 * 256; };
    const std::uint64_t begin = up(point_.epoch * epoch_length() + point_.position);
    std::erase_if(whole.schedule, [&](const auto& change) { return up(change.from) >= begin; });
    std::vector<double> now;
    for (const Mixture::Part& part : own.parts) now.push_back(part.weight);
    for (const Mixture::Change& change : own.schedule) {
      if (up(change.from) <= begin) now = change.weights;
    }
    if (begin == 0) {
      for (std::size_t i = 0; i < now.size(); ++i) whole.parts[i].weight = now[i];
    } else {
      whole.schedule.push_back({begin, now});
    }
    for (const Mixture::Change& change : own.schedule) {
      if (up(change.from) > begin) whole.schedule.push_back(change);
    }
    const Samples before = epoch(point_.epoch);
    std::erase_if(epochs_, [&](const auto& one) { return one.first >= point_.epoch; });
    const Samples& now_read = epoch(point_.epoch);
    must(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(point_.position),
                    now_read.begin()),
         "a change of the weights changes what was read");
    ++tally_["changes of weights"];
    if (log_ != nullptr) *log_ << "  other weights from position " << begin << " of the run on\n";
  }

  /// Checks what a token says of each data set.
  void check_progress(const ResumeToken& token) {
    if (family_ != Family::kMixture) return;
    const auto& parts = std::get<Mixture>(plain_.kind).parts;
    std::vector<std::uint64_t> read(parts.size());
    const MixtureSampler mixture(setup_.samples, plain_);
    for (std::uint64_t number = 0; number <= token.epoch; ++number) {
      const std::uint64_t end = number < token.epoch ? epoch_length() : token.position;
      for (std::uint64_t p = 0; p < end; ++p) ++read[mixture.split(epoch(number)[p]).dataset];
    }
    const std::vector<ResumeToken::Progress> progress = token.progress();
    must_equal(progress.size(), parts.size(), "data sets in progress()");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::uint64_t n = parts[i].num_samples;
      const std::uint64_t passes = n == 0 ? 0 : read[i] / n;
      must(progress[i] == ResumeToken::Progress{n, read[i], passes, read[i] - passes * n},
           "progress() of a data set");
    }
  }

  ResumeToken read_token() const {
    ResumeToken token = ResumeToken::from_text(text_);
    must(token.to_text() == text_, "a token's text is read and written alike");
    return token;
  }

  /// Computes what the ranks must deliver from the point to the epoch's end.
  void plan(Piece& piece) {
    piece.walk.clear();
    for (std::uint64_t p = point_.position; p < epoch_length(); ++p) {
      if (!skips_.leaves_out(sample_at(p), {point_.epoch, p})) piece.walk.push_back(p);
    }
    const std::uint64_t size = piece.walk.size();
    piece.rows = size;
    if (order_.tail == Order::Tail::kDrop) piece.rows = size / piece.shares * piece.shares;
    if (order_.tail == Order::Tail::kPad) piece.rows = ceil_div(size, piece.shares) * piece.shares;
    piece.steps = ceil_div(ceil_div(piece.rows, piece.shares), piece.batch);
  }

  std::uint64_t size_of(const Piece& piece, std::uint64_t share) const {
    return ceil_div(piece.rows - std::min(piece.rows, share), piece.shares);
  }

  void check_begin(const Piece& piece) {
    for (const auto& rank : piece.ranks) {
      must_equal(rank->epoch(), point_.epoch, "epoch() of a rank");
      must_equal(rank->position(), std::uint64_t{0}, "position() where a sampler begins");
      must_equal(rank->size(), size_of(piece, rank->rank() / piece.replicas), "size() of a rank");
      must_equal(rank->steps(), piece.steps, "steps() of a rank");
      must(skips_.has_samples_of(rank->skip()), "skip() has other samples, or from other points");
    }
    const Sampler& some = *random_.one_of(piece.ranks);
    must_equal(some.deliveries_before(point_.position), so_far_, "deliveries before the point");
    const std::uint64_t position = random_.between(point_.position, epoch_length() + 1);
    const auto end = std::lower_bound(piece.walk.begin(), piece.walk.end(), position);
    must_equal(some.deliveries_before(position),
               so_far_ + std::min<std::uint64_t>(
                             static_cast<std::uint64_t>(end - piece.walk.begin()), piece.rows),
               "deliveries before a position");
    must(some.is_exact() == (has_exact_passes() && !is_virtual()), "is_exact()");
  }

  // ----- Entries of the skip list.

  void add_skips() {
    if (setup_.samples.size() == 0) return;
    if (random_.percent(30)) {  // the token still contains them
      order_.skip = {};
      entries_ = {};
    }
    if (random_.percent(50)) return;
    if (random_.percent(3)) {  // nearly all samples are left out
      for (std::uint64_t i = 0; i < setup_.samples.size(); ++i) add_sample(i);
      return;
    }
    for (std::uint64_t i = random_.between(1, 5); i > 0; --i) {
      random_.percent(65) ? add_sample(random_sample()) : add_range();
    }
  }

  std::uint64_t random_sample() {
    const std::uint64_t way = random_.below(3);
    if (way == 0) return random_.below(setup_.samples.size());
    if (way == 1) return random_.one_of(epoch(point_.epoch));
    // Chooses a sample near the point: just delivered, or to be delivered next.
    const std::uint64_t low = point_.position - std::min<std::uint64_t>(point_.position, 4);
    return sample_at(std::min(epoch_length() - 1, random_.between(low, point_.position + 4)));
  }

  void add_sample(std::uint64_t sample) {
    SkipList::Point from;
    if (random_.percent(20)) {
      from = {point_.epoch + random_.below(2), random_.below(epoch_length() + 2)};
    }
    if (log_ != nullptr)
      *log_ << "  leave out sample " << sample << " from " << shown(from) << "\n";
    order_.skip.add_sample(sample, random_.percent(10) ? "bad" : "", from);
    entries_.samples.emplace_back(sample, from);
  }

  void add_range() {
    const std::uint64_t epoch = random_.percent(70) ? point_.epoch : random_.below(num_epochs_ + 1);
    std::uint64_t begin = random_.below(epoch_length() + 2);
    if (random_.percent(15)) return add_steps(epoch);
    if (random_.percent(40)) begin = point_.position - std::min<std::uint64_t>(point_.position, 3);
    const std::uint64_t length = random_.percent(10)
                                     ? epoch_length()
                                     : random_.below(std::min<std::uint64_t>(begin + 8, 12));
    if (log_ != nullptr) {
      *log_ << "  leave out positions [" << begin << ", " << begin + length << ") of epoch "
            << epoch << "\n";
    }
    order_.skip.add_positions(epoch, begin, begin + length);
    entries_.ranges.push_back({epoch, begin, begin + length});
  }

  void add_steps(std::uint64_t epoch) {
    const std::uint64_t world = random_.between(1, 4);
    const std::uint64_t batch = random_.between(1, 4);
    const std::uint64_t first = random_.below(epoch_length() / world / batch + 1);
    const std::uint64_t last = first + random_.below(3);
    if (log_ != nullptr) {
      *log_ << "  leave out steps [" << first << ", " << last << ") of epoch " << epoch << ", of "
            << world << " ranks with batches of " << batch << "\n";
    }
    order_.skip.add_steps(epoch, first, last, world, batch);
    entries_.ranges.push_back({epoch, first * world * batch, last * world * batch});
  }

  // ----- The steps of a piece.

  void run_steps(Piece& piece) {
    std::uint64_t count = random_.percent(35) ? piece.steps : random_.below(piece.steps + 1);
    for (std::uint64_t step = 0; step < count; ++step) run_step(piece, piece.batch);
    check_middle(piece);
    if (random_.percent(15)) run_part_of_step(piece);
  }

  /// Reads `count` samples on each rank: a whole step, or the first part of a step.
  void run_step(Piece& piece, std::uint64_t count) {
    std::vector<Samples> ranks;
    for (auto& rank : piece.ranks) {
      if (random_.percent(5)) test::disturb(rank, setup_.samples, random_);
      ranks.push_back(test::take(*rank, count, random_));
    }
    const std::uint64_t first = piece.taken * piece.shares;
    const std::uint64_t end = std::min(piece.rows, first + count * piece.shares);
    std::vector<Samples> shares = one_of_each_group(piece, ranks);
    check_step(piece, shares, first, end);
    piece.taken += count;
    for (auto& rank : piece.ranks) {
      must_equal(rank->position(), std::min(rank->size(), piece.taken), "position() after a step");
    }
    piece.by_step.push_back(std::move(ranks));
  }

  static std::vector<Samples> one_of_each_group(const Piece& piece,
                                                const std::vector<Samples>& ranks) {
    std::vector<Samples> shares;
    for (std::uint64_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank % piece.replicas == 0) shares.push_back(ranks[rank]);
      must_equal(ranks[rank], shares.back(), "what replicas get");
    }
    return shares;
  }

  /// Checks that `shares` had rows [first, end) of the walk, either in turn, or with balanced bytes
  /// in any distribution with the same numbers of samples.
  void check_step(const Piece& piece, const std::vector<Samples>& shares, std::uint64_t first,
                  std::uint64_t end) {
    std::vector<Samples> expected(piece.shares);
    Samples all, all_expected, delivered, pads;
    for (std::uint64_t s = 0; s < piece.shares; ++s) {
      must_equal(std::uint64_t{shares[s].size()},
                 ceil_div(end - std::min(end, first + s), piece.shares),
                 "samples of a rank in a step");
      all.insert(all.end(), shares[s].begin(), shares[s].end());
    }
    for (std::uint64_t row = first; row < std::min<std::uint64_t>(end, piece.walk.size()); ++row) {
      const std::uint64_t sample = sample_at(piece.walk[row]);
      expected[(row - first) % piece.shares].push_back(sample);
      all_expected.push_back(sample);
      count_in_pass(piece.walk[row], sample);
    }
    all = sorted(all);
    all_expected = sorted(all_expected);
    must(std::includes(all.begin(), all.end(), all_expected.begin(), all_expected.end()),
         "a step has other samples than come next");
    std::set_difference(all.begin(), all.end(), all_expected.begin(), all_expected.end(),
                        std::back_inserter(pads));
    audit_->add(all);
    for (const std::uint64_t sample : all) ++times_[sample];
    so_far_ += all.size();
    tally_["deliveries"] += all.size();
    tally_["repeats"] += pads.size();
    ++tally_["steps"];
    if (!pads.empty()) check_pads(piece, pads, end);
    for (std::uint64_t s = 0; s < piece.shares && !order_.balance_bytes; ++s) {
      Samples kept = shares[s];
      kept.resize(expected[s].size());
      must_equal(kept, expected[s], "a rank's samples of a step, without pads");
    }
  }

  /// Checks the padding: it is in the last row, and repeats the epoch's first samples that are not
  /// left out.
  void check_pads(const Piece& piece, const Samples& pads, std::uint64_t end) {
    must(order_.tail == Order::Tail::kPad && end == piece.rows, "repeats that are not at the end");
    must(pads.size() < piece.shares, "more repeats than fill a row");
    Samples unlisted;  // samples that were never left out
    Samples allowed;   // samples that are not left out at the epoch's end
    for (std::uint64_t p = 0; p < epoch_length(); ++p) {
      const std::uint64_t sample = sample_at(p);
      if (skips_.leaves_out_position({point_.epoch, p})) continue;
      if (!skips_.has(sample)) unlisted.push_back(sample);
      if (!skips_.leaves_out_sample(sample, {point_.epoch, epoch_length()})) {
        allowed.push_back(sample);
      }
    }
    if (!unlisted.empty() && pads == cyclic(unlisted, pads.size())) return;
    if (!allowed.empty() && pads == cyclic(allowed, pads.size())) return;
    must(unlisted.empty(), "repeats that are not the epoch's first samples");
    for (const std::uint64_t pad : pads) {
      must(times_[pad] > 1, "a repeat of what was not delivered");
      must(allowed.empty() || std::count(allowed.begin(), allowed.end(), pad) > 0,
           "a repeat of what is left out");
    }
  }

  static Samples cyclic(const Samples& samples, std::uint64_t count) {
    Samples result;
    for (std::uint64_t i = 0; i < count; ++i) result.push_back(samples[i % samples.size()]);
    return sorted(result);
  }

  void count_in_pass(std::uint64_t position, std::uint64_t sample) {
    if (!has_exact_passes()) return;
    const std::uint64_t n = setup_.samples.size();
    auto& counts =
        passes_.try_emplace((point_.epoch * epoch_length() + position) / n).first->second;
    counts.resize(n);
    must(++counts[sample] == 1, "a sample comes twice in a pass");
  }

  /// Checks the tokens of all ranks after whole steps.
  void check_middle(const Piece& piece) {
    const ResumeToken after = piece.ranks[0]->token_after(piece.by_step.size());
    for (const auto& rank : piece.ranks) {
      must(rank->token_after(piece.by_step.size()) == after, "ranks make different tokens");
      // A rank at its end does not know whether the other ranks are at theirs.
      const bool all_ended = piece.taken >= size_of(piece, 0);
      if (piece.taken < rank->size() || all_ended) {
        must(rank->token() == after, "token() and token_after() differ");
      }
    }
  }

  void run_part_of_step(Piece& piece) {
    const std::uint64_t left =
        piece.ranks.back()->size() - std::min(piece.taken, piece.ranks.back()->size());
    const std::uint64_t most = std::min(left, piece.batch);
    if (most < 2) return;
    const std::uint64_t count = random_.between(1, most - 1);
    if (order_.balance_bytes) {
      const std::unique_ptr<Sampler> copy = piece.ranks[0]->clone();
      test::take(*copy, count, random_);
      must_throw<InvalidArgument>([&] { copy->token(); }, "token() in a step that is balanced");
      return;
    }
    run_step(piece, count);
    part_of_step_ = true;
  }

  // ----- The end of a piece.

  void finish(Piece& piece) {
    ResumeToken token = piece.ranks[0]->token_after(piece.by_step.size());
    if (part_of_step_) {
      token = piece.ranks[0]->token();
      for (const auto& rank : piece.ranks) must(rank->token() == token, "ranks' tokens differ");
      piece.by_step.pop_back();
      part_of_step_ = false;
    }
    const std::uint64_t consumed = piece.taken * piece.shares;
    const SkipList::Point next{token.epoch, token.position};
    if (log_ != nullptr) {
      *log_ << "  took " << piece.taken << " on each rank, of " << piece.steps
            << " steps: " << shown(next) << "\n";
    }
    if (consumed < piece.rows) {
      must_equal(next.epoch, point_.epoch, "the epoch of a token in the middle");
      must(consumed == 0 || piece.walk[consumed - 1] < next.position,
           "a token before what was read");
      must(next.position <= piece.walk[consumed], "a token behind what was not read");
      must_equal(piece.ranks.back()->deliveries_before(next.position), so_far_,
                 "deliveries before the token");
    } else {
      must(next == SkipList::Point{point_.epoch + 1, 0}, "a token at an epoch's end");
      check_proof(*random_.one_of(piece.ranks));
      begin_epoch();
    }
    if (so_far_ > 0 || random_.percent(50)) token.audit = audit_->sum();
    text_ = token.to_text();
    must(ResumeToken::from_text(text_) == token, "a token is not what its text says");
    if (random_.percent(30)) check_progress(token);
    old_texts_.push_back(text_);
    audit_ = std::make_unique<EpochAudit>(setup_.samples.fingerprint());
    if (token.audit) audit_->merge(*ResumeToken::from_text(text_).audit);
    point_ = next;
  }

  void begin_epoch() {
    so_far_ = 0;
    times_.clear();
    audit_->reset();
  }

  void check_proof(const Sampler& sampler) {
    const EpochAudit::Expectation expected = sampler.expectation();
    const EpochAudit::Verdict verdict = audit_->verdict(expected);
    const bool is_provable = setup_.samples.size() > 0;
    if (verdict.proven != is_provable) throw test::ChainBroken{verdict.text(point_.epoch)};
    tally_["epochs proven"] += is_provable ? 1 : 0;
    if (expected.knows_times()) {
      for (std::uint64_t i = 0; i < setup_.samples.size(); ++i) {
        const auto at = times_.find(i);
        must_equal(expected.times(i), at == times_.end() ? 0 : at->second, "times() of a sample");
      }
    }
    if (times_.empty()) return;
    const std::uint64_t some = times_.lower_bound(random_.below(times_.rbegin()->first + 1))->first;
    EpochAudit::Sum one = EpochAudit::Sum::of({&some, 1}, setup_.samples.fingerprint());
    EpochAudit::Sum sum = audit_->sum();
    must(!proves(expected, sum += one), "a sample too many was not seen");
    sum -= one;
    must(!proves(expected, sum -= one), "a missing sample was not seen");
  }

  bool proves(const EpochAudit::Expectation& expected, const EpochAudit::Sum& sum) const {
    EpochAudit audit(setup_.samples.fingerprint());
    audit.set_sum(sum);
    return audit.verdict(expected).proven;
  }

  // ----- Explanations of a piece.

  void check_explanations(const Piece& piece) {
    if (!piece.by_step.empty() && random_.percent(50)) {
      const std::uint64_t whole = piece.by_step.size() - (part_of_step_ ? 1 : 0);
      if (whole > 0) check_explained_step(piece, 0);
      if (whole > 0) check_explained_step(piece, random_.below(whole));
    }
    if (random_.percent(20)) check_times(piece);
    if (random_.percent(20)) check_positions(piece);
  }

  void check_explained_step(const Piece& piece, std::uint64_t step) {
    const std::vector<Sampler::RankStep> ranks = explain_step(*random_.one_of(piece.ranks), step);
    must_equal(std::uint64_t{ranks.size()}, std::uint64_t{piece.ranks.size()}, "explained ranks");
    for (std::uint64_t rank = 0; rank < ranks.size(); ++rank) {
      must_equal(ranks[rank].rank, rank, "an explained rank");
      must_equal(ranks[rank].samples, piece.by_step[step][rank], "an explained step");
    }
  }

  using Time = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

  void check_times(const Piece& piece) {
    const std::uint64_t n = setup_.samples.size();
    if (n == 0) return;
    const Sampler& sampler = *random_.one_of(piece.ranks);
    if (family_ == Family::kResampled) {
      must_throw<InvalidArgument>([&] { when_sample(sampler, 0); }, "when_sample() of draws");
      return;
    }
    std::map<std::uint64_t, std::vector<Time>> all;  // the deliveries of each sample
    for (const auto& rank : piece.ranks) {
      const std::unique_ptr<Sampler> copy = rank->clone();
      copy->seek(0);
      const Samples samples = test::drain(*copy);
      must_equal(std::uint64_t{samples.size()}, rank->size(), "what a rank delivers in all");
      for (std::uint64_t i = 0; i < samples.size(); ++i) {
        all[samples[i]].emplace_back(rank->rank(), i / piece.batch, i % piece.batch);
      }
    }
    for (std::uint64_t i = 0; i < 12; ++i) {
      const std::uint64_t sample = n <= 12 ? i % n : random_.below(n);
      std::vector<Time> found;
      for (const Sampler::SampleTime& time : when_sample(sampler, sample)) {
        found.emplace_back(time.rank, time.step, time.place);
        must_equal(time.position,
                   piece.ranks[time.rank]->position_in_epoch(time.step * piece.batch + time.place),
                   "the position of a delivery");
      }
      std::sort(found.begin(), found.end());
      must(found == all[sample], "when_sample() finds other deliveries than there are");
    }
  }

  void check_positions(const Piece& piece) {
    const Sampler& rank = *random_.one_of(piece.ranks);
    for (std::uint64_t i = 0; i < 5 && rank.size() > 0; ++i) {
      const std::uint64_t index = random_.below(rank.size());
      const std::uint64_t position = rank.position_in_epoch(index);
      must(position < epoch_length(), "a position outside the epoch");
      must_equal(sample_at(position), rank.at(index), "the sample at a position");
      const std::uint64_t row = index * piece.shares + rank.rank() / piece.replicas;
      if (order_.balance_bytes || row >= piece.walk.size()) continue;
      must_equal(position, piece.walk[row], "the position of a sample");
    }
  }

  /// Checks that a single rank reads the same samples from the same token.
  void check_other_world(const Piece& piece) {
    const std::uint64_t count = std::min<std::uint64_t>(piece.taken * piece.shares, piece.rows);
    if (count > piece.walk.size() || !random_.percent(20)) return;
    const std::unique_ptr<Sampler> alone = make_sampler(setup_.samples, order_);
    if (!text_.empty()) alone->resume(read_token(), changes_);
    Samples expected;
    for (const std::vector<Samples>& ranks : piece.by_step) {
      for (std::uint64_t rank = 0; rank < ranks.size(); rank += piece.replicas) {
        expected.insert(expected.end(), ranks[rank].begin(), ranks[rank].end());
      }
    }
    must_equal(sorted(test::take(*alone, count, random_)), sorted(expected),
               "what one rank reads alone");
  }

  // ----- The whole run.

  /// Checks that each pass that was read to its end had every sample, except those in the skip
  /// list.
  void check_passes() {
    if (!has_exact_passes() || order_.tail == Order::Tail::kDrop) return;
    const std::uint64_t n = setup_.samples.size();
    const std::uint64_t read = point_.epoch * epoch_length();
    for (std::uint64_t pass = 0; n > 0 && (pass + 1) * n <= read; ++pass) {
      std::vector<std::uint8_t>& counts = passes_[pass];
      counts.resize(n);
      for (std::uint64_t place = pass * n; place < (pass + 1) * n; ++place) {
        const SkipList::Point at{place / epoch_length(), place % epoch_length()};
        const std::uint64_t sample = epoch(at.epoch)[at.position];
        if (skips_.has(sample) || skips_.leaves_out_position(at)) continue;
        must_equal(std::uint64_t{counts[sample]}, std::uint64_t{1}, "times of a sample in a pass");
      }
    }
  }

  /// Checks that the draws of each data set, over all epochs together, are exact epochs of the data
  /// set. It checks at borders of blocks of 256 slots, because within a block the end of an epoch
  /// and the beginning of the next may be mixed.
  void check_datasets() {
    const MixtureSampler mixture(setup_.samples, plain_);
    const auto& parts = std::get<Mixture>(plain_.kind).parts;
    std::vector<std::uint64_t> times(setup_.samples.size());
    std::uint64_t slot = 0;
    for (std::uint64_t number = 0; number < point_.epoch; ++number) {
      for (const std::uint64_t sample : epoch(number)) {
        const std::uint64_t dataset = mixture.split(sample).dataset;
        must(parts[dataset].weight > 0 ||
                 std::ranges::any_of(
                     std::get<Mixture>(plain_.kind).schedule,
                     [dataset](const auto& change) { return change.weights[dataset] > 0; }),
             "a draw without a weight");
        ++times[sample];
        if (++slot % 256 == 0) check_times_of_datasets(times);
      }
    }
  }

  /// Checks that the numbers of deliveries of two samples of a data set differ by at most 1.
  void check_times_of_datasets(const std::vector<std::uint64_t>& times) const {
    auto begin = times.begin();
    for (const Mixture::Part& part : std::get<Mixture>(plain_.kind).parts) {
      const auto end = begin + static_cast<std::ptrdiff_t>(part.num_samples);
      if (begin != end) {
        const auto [least, most] = std::minmax_element(begin, end);
        must(*most - *least <= 1, "a data set's epochs are not exact");
      }
      begin = end;
    }
  }

  // ----- Descriptions for error texts.

  void describe_setup() const {
    const Order& order = setup_.order;
    *log_ << name_of(order.kind) << " n " << setup_.samples.size() << " seed " << order.seed
          << " streams " << order.streams << " tail " << tail_name(order.tail) << " balance "
          << order.balance_bytes << " epoch_size " << order.epoch_size;
    if (const auto* chunked = std::get_if<Chunked>(&order.kind)) {
      *log_ << " chunk_size " << chunked->chunk_size << " window " << chunked->window << " phase "
            << chunked->phase;
    }
    if (const auto* sharded = std::get_if<Sharded>(&order.kind)) {
      *log_ << " window " << sharded->window << " shards " << shown(*setup_.samples.shard_starts());
    }
    if (const auto* mixture = std::get_if<Mixture>(&order.kind)) {
      for (const Mixture::Part& part : mixture->parts) {
        *log_ << " (" << part.num_samples << " by " << part.weight << ")";
      }
      for (const Mixture::Change& change : mixture->schedule) {
        *log_ << ", from " << change.from << shown(change.weights);
      }
    }
    *log_ << ", " << num_epochs_ << " epochs\n";
  }

  void describe_begin(const Piece& piece, bool same_ranks, bool by_set_epoch) const {
    *log_ << "at " << shown(point_) << " ";
    if (same_ranks) *log_ << (by_set_epoch ? "by set_epoch() " : "the same samplers resume ");
    *log_ << "world " << piece.shares << " x " << piece.replicas << " batch " << piece.batch << ", "
          << so_far_ << " delivered before, " << piece.walk.size() << " to come\n";
  }

  Family family_;
  Dice random_;
  Setup setup_;
  std::ostream* log_;
  test::Tally& tally_;
  std::uint64_t num_epochs_ = 1;
  Order order_;  ///< with the skip list of the next piece
  Order plain_;  ///< the order as one rank reads it, with no sample left out; its weights are those
                 ///< of the whole run, and those of order_ only from the last change on

  Sampler::Changes changes_ = Sampler::Changes::kRefuse;  ///< of the piece

  SkipList::Point point_;
  std::string text_;  ///< the token; empty at the run's beginning
  std::vector<std::string> old_texts_;
  Piece last_;
  bool part_of_step_ = false;
  Entries entries_;  ///< the entries of the order's skip list
  Skips skips_;      ///< the entries that apply so far

  std::uint64_t so_far_ = 0;  ///< deliveries in this epoch
  std::unique_ptr<EpochAudit> audit_;
  std::map<std::uint64_t, std::uint64_t> times_;               ///< deliveries in this epoch
  std::map<std::uint64_t, std::vector<std::uint8_t>> passes_;  ///< deliveries without padding
  std::map<std::uint64_t, Samples> epochs_;
};

TEST(ResumeChainTest, ExactOrders) { test::run_chains_of<Chain>(1400, 70'000, Family::kExact); }
TEST(ResumeChainTest, Mixtures) { test::run_chains_of<Chain>(300, 15'000, Family::kMixture); }
TEST(ResumeChainTest, Resampled) { test::run_chains_of<Chain>(200, 10'000, Family::kResampled); }

}  // namespace
}  // namespace shardwise
