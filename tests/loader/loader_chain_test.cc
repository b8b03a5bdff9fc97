// Random chains of operations on loaders, compared with a simple model.
//
// A chain is the life of a run: a data set with some bad samples, an order, and several worlds of
// loaders one after another. Each world has other numbers of ranks and threads, and another batch
// size. The model knows the order from samplers that it queries sample by sample, the bad samples,
// and how often each sample was delivered in this epoch. The ranks' batches, the tokens and the
// proofs must agree with the model.
//
//     tools/test.sh --thorough -R loader_chain_test    many more chains
//     SHARDWISE_SEED=17 loader_chain_test              one chain, in detail

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error_types.h"
#include "loader/loader_access.h"
#include "loader/thread_ranks.h"
#include "shardwise/loader/loader.h"
#include "support/chain.h"
#include "support/dataset.h"

namespace shardwise {
namespace {

using test::Dice;
using test::must;
using test::must_equal;

/// A data set. Sample i has the text "<name>:<i>", and the number i unless it is bad.
struct Numbered {
  std::string name;
  std::optional<Dataset> data;
  std::set<std::uint64_t> bad;
};

/// Data sets, made once and used by all chains.
class Shelf {
 public:
  Shelf() {
    Dice dice(1);
    for (const std::size_t size : {0U, 1U, 2U, 7U, 13U, 29U, 40U, 61U}) {
      for (const std::uint64_t percent_bad : {0U, 0U, 8U, 40U}) {
        add(size, percent_bad, dice);
      }
    }
  }
  const Numbered& any(Dice& dice) const { return sets_[dice.below(sets_.size())]; }

 private:
  void add(std::size_t size, std::uint64_t percent_bad, Dice& dice) {
    Numbered made;
    made.name = "set" + std::to_string(sets_.size());
    std::vector<test::Fields> samples;
    for (std::size_t i = 0; i < size; ++i) {
      if (dice.percent(percent_bad)) made.bad.insert(i);
      samples.push_back({{"txt", made.name + ":" + std::to_string(i)},
                         {"cls", made.bad.contains(i) ? "?" : std::to_string(i)}});
    }
    const bool is_empty = samples.empty();
    if (is_empty) samples.push_back({{"txt", ""}});
    made.data = test::make_dataset(dir_, made.name, samples, 9);
    if (is_empty) made.data = made.data->subset(std::vector<std::uint64_t>{});
    sets_.push_back(std::move(made));
  }

  test::TempDir dir_;
  std::vector<Numbered> sets_;
};

const Shelf& shelf() {
  static const Shelf made;
  return made;
}

/// The result of a collective call on a rank: a text or an error.
struct Said {
  std::string text;
  std::optional<ErrorCode> error;
};

class Chain {
 public:
  Chain(std::uint64_t seed, std::ostream* log, test::Tally& tally)
      : dice_(seed), log_(log), tally_(tally) {
    std::vector<Dataset> parts;
    const std::uint64_t num_parts = dice_.percent(25) ? 2 + dice_.below(2) : 1;
    for (std::uint64_t i = 0; i < num_parts; ++i) {
      const Numbered& set = shelf().any(dice_);
      for (std::uint64_t k = 0; k < set.data->size(); ++k) {
        if (set.bad.contains(k)) bad_.insert(texts_.size());
        texts_.push_back(set.name + ":" + std::to_string(k));
      }
      parts.push_back(*set.data);
    }
    data_.emplace(std::move(parts));
    draw_order();
    draw_world();
  }

  void run() {
    for (std::uint64_t ops = 5 + dice_.below(40); ops > 0; --ops) {
      op();
      check_numbers();
    }
  }

 private:
  struct Rank {
    std::unique_ptr<Loader> loader;
    std::unique_ptr<Sampler> model;
    std::vector<std::pair<std::uint64_t, SkipList::Point>> found;  // bad; since begin_piece()
    std::uint64_t failed = 0;  // batches that failed since the last one that was made
    std::uint64_t lost = 0;    // batches that failed earlier
  };
  struct Saved {
    std::string text;
    std::map<std::uint64_t, std::uint64_t> ledger;
  };

  void say(const std::string& text) {
    if (log_ != nullptr) *log_ << text << "\n";
  }

  // ------------------------------------------------------------------------------------ setting up

  void draw_order() {
    order_.seed = dice_.number();
    const std::uint64_t n = data_->size();
    const auto chunked = [&] {
      return Chunked{.chunk_size = 1 + dice_.below(n + 2), .window = 1 + dice_.below(3)};
    };
    if (data_->num_parts() > 1 && dice_.percent(60)) {
      std::vector<double> weights;
      for (std::size_t i = 0; i < data_->num_parts(); ++i) {
        weights.push_back(data_->part(i).empty() ? 0.0 : dice_.one_of({0.5, 1.0, 3.0}));
      }
      if (*std::max_element(weights.begin(), weights.end()) > 0) {
        order_.kind = data_->mixture(weights, chunked());
        if (dice_.percent(50)) order_.epoch_size = 1 + dice_.below(2 * n);
        return;
      }
    }
    switch (dice_.below(8)) {
      case 0:
        order_.kind = Sequential{};
        break;
      case 1:
        order_.kind = Sharded{.window = 1 + dice_.below(3)};
        break;
      case 2:
        if (n > 0) {
          order_.kind =
              Resampled{.unit = dice_.one_of({Resampled::Unit::kSample, Resampled::Unit::kShard})};
        }
        break;
      default:
        order_.kind = chunked();
    }
    if (dice_.percent(20)) order_.tail = dice_.one_of({Order::Tail::kDrop, Order::Tail::kPad});
    if (dice_.percent(15)) order_.balance_bytes = true;
    if (n > 0 && dice_.percent(10)) {
      order_.tail = Order::Tail::kExact;
      order_.epoch_size = 1 + dice_.below(2 * n);
    }
    for (std::uint64_t i = dice_.percent(15) && n > 0 ? 1 + dice_.below(4) : 0; i > 0; --i) {
      order_.skip.add_sample(dice_.below(n), "by choice");
    }
  }

  /// Makes new loaders, at the beginning of epoch 0.
  void draw_world() {
    ranks_.clear();  // destroys the old loaders, whatever they are doing
    replicas_ = dice_.percent(15) ? 2 : 1;
    const std::uint64_t world = replicas_ * dice_.one_of({1U, 1U, 1U, 2U, 3U});
    group_ = std::make_unique<test::ThreadRanks>(world);
    Loader::Options options;
    options.columns = {columns::text("txt"), columns::integer("cls"), columns::key(),
                       columns::function("random", DType::kUInt64, {2},
                                         [](const Sample&, const Hash128& random, auto& row) {
                                           row.template values<std::uint64_t>()[0] = random.high;
                                           row.template values<std::uint64_t>()[1] = random.low;
                                         })};
    options.order = order_;
    options.batch_size = dice_.one_of({1U, 2U, 3U, 5U, 8U, 64U});
    if (dice_.percent(20)) {
      const std::uint64_t shares = world / replicas_;
      const bool is_even = order_.balance_bytes || order_.tail != Order::Tail::kExact;
      options.global_batch_size = is_even ? shares * (1 + dice_.below(4)) : shares + dice_.below(9);
    }
    options.replicas = replicas_;
    max_bad_ = dice_.percent(40) ? 0 : dice_.one_of({1U, 3U, 100U, 100U, 100U});
    options.max_bad = max_bad_;
    say(std::to_string(world) + " ranks, " + std::to_string(replicas_) + " replicas, batch size " +
        std::to_string(options.batch_size) + ", global " +
        std::to_string(options.global_batch_size) + ", max_bad " + std::to_string(max_bad_));
    for (std::uint64_t r = 0; r < world; ++r) {
      Loader::Options own = options;
      own.threads = dice_.one_of({0U, 1U, 2U, 7U});
      own.prefetch = dice_.one_of({0U, 0U, 1U, 2U, 9U});
      if (dice_.percent(30)) own.max_bytes_ahead = dice_.below(400);
      Rank rank;
      rank.loader = std::make_unique<Loader>(*data_, own, group_->rank(r));
      detail::LoaderAccess::accept_all_bad(*rank.loader);
      rank.model = make_sampler(*data_, order_,
                                {.rank = r,
                                 .world_size = world,
                                 .batch_size = options.batch_size,
                                 .global_batch_size = options.global_batch_size,
                                 .replicas = replicas_});
      ranks_.push_back(std::move(rank));
    }
    agreed_ = {};
    begin_piece({});
    ++tally_["worlds"];
  }

  /// @param is_within  within an epoch, of which `ledger` has the earlier deliveries.
  void begin_piece(std::map<std::uint64_t, std::uint64_t> ledger, bool is_within = false) {
    ledger_ = std::move(ledger);
    delivered_before_.reset();
    if (is_within) delivered_before_ = ledger_;
    is_stopped_ = false;
    has_said_end_ = false;
    taken_ = 0;
    for (Rank& rank : ranks_) {
      rank.found.clear();
      rank.failed = rank.lost = 0;
    }
  }

  // ---------------------------------------------------------------------------------- the model

  const Sampler& model() const { return *ranks_[0].model; }
  std::uint64_t steps() const { return model().steps(); }
  bool has_ended() const { return has_said_end_ || (steps() > 0 && taken_ == steps()); }

  void model_set_epoch(std::uint64_t epoch) {
    if (delivered_before_ && epoch == model().epoch() && !has_ended()) {
      return begin_piece(*delivered_before_, true);  // back to the point of the last restore()
    }
    for (Rank& rank : ranks_) {
      ResumeToken token = rank.model->token_after(0);
      token.skip.merge(agreed_);
      token.epoch = epoch;
      token.position = 0;
      rank.model->resume(token);
    }
    begin_piece({});
  }

  /// A collective call: afterwards all ranks know all bad samples. Returns true if there are too
  /// many.
  bool model_agree() {
    bool has_news = false;
    for (std::size_t r = 0; r < ranks_.size(); r += replicas_) {
      for (const auto& [sample, point] : ranks_[r].found) {
        agreed_.add_sample(sample, "", point);
        has_news = true;
      }
    }
    return has_news && agreed_.samples().size() > max_bad_;
  }

  void check_numbers() {
    for (const Rank& rank : ranks_) {
      const Loader& loader = *rank.loader;
      must_equal(loader.epoch_number(), model().epoch(), "the epoch's number");
      must_equal(loader.steps(), steps(), "steps");
      must_equal(loader.steps_left(), steps() - taken_, "steps left");
      must_equal(loader.has_ended(), has_ended(), "has_ended");
    }
  }

  void check_points(const SkipList& actual, const SkipList& expected, const std::string& what) {
    must_equal(actual.samples().size(), expected.samples().size(), what);
    for (const auto& [sample, entry] : expected.samples()) {
      const auto found = actual.samples().find(sample);
      must(found != actual.samples().end(), what + " lacks " + std::to_string(sample));
      must(found->second.from == entry.from,
           what + ": " + std::to_string(sample) + " is from another point on");
    }
  }

  // ---------------------------------------------------------------------------------- operations

  void op() {
    const std::uint64_t what = dice_.below(100);
    if (what < 52) return step();
    if (what < 62) return save();
    if (what < 70) return restore();
    if (what < 75) return prove();
    if (what < 79) return set_epoch(dice_.percent(60) ? model().epoch() + 1 : dice_.below(5));
    if (what < 83) return go_on_with_epochs();
    if (what < 87) return start();
    if (what < 91) return stop();
    if (what < 95) return race_to_stop();
    say("other loaders");
    draw_world();
  }

  void start() {
    for (Rank& rank : ranks_) {
      if (dice_.percent(70)) rank.loader->start();
    }
  }

  void set_epoch(std::uint64_t epoch) {
    say("set_epoch " + std::to_string(epoch));
    for (Rank& rank : ranks_) rank.loader->set_epoch(epoch);
    model_set_epoch(epoch);
  }

  void go_on_with_epochs() {
    const std::uint64_t end = model().epoch() + dice_.below(4);
    say("epochs to " + std::to_string(end));
    const std::uint64_t next = model().epoch() + (has_ended() ? 1 : 0);
    for (Rank& rank : ranks_) {
      auto epochs = rank.loader->epochs(end);
      const auto it = epochs.begin();
      must_equal(it == epochs.end(), next >= end, "whether epochs() are at their end");
    }
    if (has_ended() && next < end) model_set_epoch(next);
  }

  void step() {
    const std::uint64_t steps_wanted = dice_.percent(25) ? steps() + 1 : 1;
    for (std::uint64_t i = 0; i < steps_wanted && (i == 0 || taken_ < steps()); ++i) {
      say("step " + std::to_string(taken_));
      if (is_stopped_) {
        for (Rank& rank : ranks_) must_be_cancelled(rank);
        return;
      }
      if (taken_ == steps()) {
        for (Rank& rank : ranks_) must(!rank.loader->next(), "a batch behind the last one");
        has_said_end_ = true;
        return;
      }
      for (std::size_t r = 0; r < ranks_.size(); ++r) take(r);
      ++taken_;
    }
  }

  void must_be_cancelled(Rank& rank) {
    try {
      rank.loader->next();
    } catch (const Cancelled&) {
      return;
    }
    throw test::ChainBroken{"next() after stop() is not Cancelled"};
  }

  /// Gets the next batch in one of several ways.
  std::optional<Batch> next_of(Loader& loader) {
    if (has_ended() || dice_.percent(70)) return loader.next();
    for (Batch& batch : loader.epoch()) return std::move(batch);
    return std::nullopt;
  }

  void take(std::size_t r) {
    Rank& rank = ranks_[r];
    const std::uint64_t first = rank.model->first_of_step(taken_);
    const std::uint64_t end = rank.model->first_of_step(taken_ + 1);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> rows;  // (sample, position)
    std::vector<std::pair<std::uint64_t, std::uint64_t>> bad;
    for (std::uint64_t i = first; i < end; ++i) {
      const std::pair row(rank.model->at(i), rank.model->position_in_epoch(i));
      (bad_.contains(row.first) ? bad : rows).push_back(row);
    }
    std::set<std::uint64_t> known;
    for (const auto& [sample, entry] : agreed_.samples()) known.insert(sample);
    for (const auto& [sample, position] : bad) {
      if (max_bad_ == 0) break;
      rank.found.emplace_back(sample, SkipList::Point{rank.model->epoch(), position});
    }
    for (const auto& [sample, point] : rank.found) known.insert(sample);
    const bool too_many = !bad.empty() && max_bad_ > 0 && known.size() > max_bad_;
    ++tally_["batches"];
    tally_["bad"] += bad.size();
    const std::uint64_t failed_before = std::exchange(rank.failed, 0);
    try {
      const auto batch = next_of(*rank.loader);
      must(bad.empty() || (max_bad_ > 0 && !too_many), "a batch in spite of bad samples");
      must(batch.has_value(), "no batch");
      check_batch(*batch, rows);
    } catch (const BadField& error) {
      const std::string text = error.what();
      if (too_many) {
        must(text.find("more than the") != std::string::npos, text);
        rank.lost += failed_before;
        return;
      }
      must(max_bad_ == 0 && !bad.empty(), "BadField without a reason: " + text);
      must(text.find(key_of(bad.front().first)) != std::string::npos,
           text + " does not name " + key_of(bad.front().first));
      rank.failed = failed_before + 1;
      return;
    } catch (const Cancelled&) {
      rank.failed = failed_before;
      throw;
    }
    rank.lost += failed_before;
    if (r % replicas_ != 0) return;
    for (const auto& [sample, position] : rows) ++ledger_[sample];
  }

  std::string key_of(std::uint64_t sample) const {
    const std::string number = texts_[sample].substr(texts_[sample].find(':') + 1);
    return "s" + std::string(5 - number.size(), '0') + number;
  }

  void check_batch(const Batch& batch,
                   const std::vector<std::pair<std::uint64_t, std::uint64_t>>& rows) {
    must_equal(batch.size(), rows.size(), "rows of a batch");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto [sample, position] = rows[i];
      must_equal(batch.samples()[i], static_cast<std::int64_t>(sample), "a row's sample");
      must_equal(batch.positions()[i], static_cast<std::int64_t>(position), "a row's position");
      must_equal(batch["txt"].text(i), std::string_view(texts_[sample]), "a row's text");
      must_equal(std::to_string(batch["cls"].values<std::int64_t>()[i]),
                 texts_[sample].substr(texts_[sample].find(':') + 1), "a row's number");
      must_equal(batch["__key__"].text(i), std::string_view(key_of(sample)), "a row's key");
      const auto words = batch["random"].values<std::uint64_t>().subspan(2 * i, 2);
      const std::tuple row(model().epoch(), sample, model().is_exact() ? 0 : position);
      const auto [at, is_new] = random_.try_emplace(row, words[0], words[1]);
      must(at->second == std::pair(words[0], words[1]), "another random key for the same row");
      ++tally_["samples"];
    }
  }

  /// Calls `work(loader)` on all ranks concurrently.
  template <class Work>
  std::vector<Said> on_all(const Work& work) {
    std::vector<Said> said(ranks_.size());
    const auto one = [&](std::uint64_t r) {
      try {
        said[r].text = work(*ranks_[r].loader);
      } catch (const Error& error) {
        said[r].text = error.what();
        said[r].error = error.code();
      }
    };
    if (ranks_.size() == 1) {
      one(0);
    } else {
      test::on_ranks(ranks_.size(), one);
    }
    return said;
  }

  /// Returns the error that prove() must throw, unless too many samples are bad.
  std::optional<ErrorCode> error_of_proof() const {
    const auto is_broken = [](const Rank& rank) { return rank.failed + rank.lost > 0; };
    const bool can_be_proven =
        taken_ == steps() && std::ranges::none_of(ranks_, is_broken) && data_->size() > 0;
    return can_be_proven ? std::nullopt : std::optional(ErrorCode::kNotExact);
  }
  /// Returns the error that state() must throw.
  std::optional<ErrorCode> error_of_state(bool at_end) const {
    for (const Rank& rank : ranks_) {
      const bool is_equal = rank.failed == ranks_[0].failed && rank.lost == ranks_[0].lost;
      if (!is_equal) return ErrorCode::kMismatch;
    }
    const bool is_empty = at_end && data_->size() == 0;
    return is_empty || ranks_[0].lost > 0 ? std::optional(ErrorCode::kNotExact) : std::nullopt;
  }

  /// Checks the results of a collective call.
  /// @param expected  the error, unless too many samples are bad.
  /// @return  true if the call should succeed and did.
  bool check_said(const std::vector<Said>& said, std::optional<ErrorCode> expected, bool is_proof,
                  const std::string& what) {
    const bool too_many = model_agree();
    if (too_many) expected = ErrorCode::kBadField;
    for (const Said& one : said) {
      must(one.error == expected, what + " said " + one.text);
      must_equal(one.text, said[0].text, what + " of another rank");
    }
    for (const Rank& rank : ranks_) {
      check_points(rank.loader->bad_samples(), agreed_, "the bad samples");
    }
    (expected ? tally_["refused"] : tally_["epochs proven"]) += is_proof ? 1 : 0;
    return !expected;
  }

  void prove() {
    say("prove");
    const bool through_epoch = dice_.percent(30);
    const auto said = on_all(
        [&](Loader& loader) { return through_epoch ? loader.epoch().prove() : loader.prove(); });
    if (!check_said(said, error_of_proof(), true, "prove()")) return;
    must(said[0].text.find("proven") != std::string::npos, said[0].text);
    check_ledger();
  }

  /// If the order promises each sample exactly once, checks that each was delivered exactly once.
  void check_ledger() {
    if (!model().is_exact() || order_.tail != Order::Tail::kExact || order_.epoch_size != 0) return;
    for (std::uint64_t s = 0; s < texts_.size(); ++s) {
      if (order_.skip.samples().contains(s)) continue;
      const auto found = ledger_.find(s);
      must_equal(found == ledger_.end() ? 0 : found->second, bad_.contains(s) ? 0U : 1UL,
                 "how often sample " + std::to_string(s) + " came");
    }
  }

  void save() {
    say("state");
    const std::uint64_t done = taken_ - ranks_[0].failed;  // if equal on all ranks
    const bool at_end = done == steps();
    const auto said = on_all([](Loader& loader) { return loader.state().to_text(); });
    if (!check_said(said, error_of_state(at_end), at_end, "state()")) return;
    if (at_end) check_ledger();
    const ResumeToken token = ResumeToken::from_text(said[0].text);
    ResumeToken expected = model().token_after(done);
    expected.skip.merge(agreed_);
    must_equal(token.epoch, expected.epoch, "the token's epoch");
    must_equal(token.position, expected.position, "the token's position");
    check_points(token.skip, expected.skip, "what the token leaves out");
    if (at_end && steps() > 0) must_equal(token.position, std::uint64_t{0}, "at the end");
    saved_.push_back({said[0].text, at_end ? std::map<std::uint64_t, std::uint64_t>{} : ledger_});
    ++tally_["tokens"];
  }

  void restore() {
    if (saved_.empty()) return;
    if (dice_.percent(60)) draw_world();
    const Saved& saved = saved_[dice_.below(saved_.size())];
    const ResumeToken token = ResumeToken::from_text(saved.text);
    say("restore epoch " + std::to_string(token.epoch) + ", position " +
        std::to_string(token.position));
    for (Rank& rank : ranks_) rank.loader->restore(token);
    bool is_done = false;
    for (Rank& rank : ranks_) {
      rank.model->resume(token);
      is_done = token.position > 0 && rank.model->steps() == 0;
      if (is_done) rank.model->set_epoch(token.epoch + 1);
    }
    if (token.position > 0 && !is_done) {
      begin_piece(saved.ledger, true);
      if (dice_.percent(40)) set_epoch(token.epoch);  // a loop over epochs calls this, too
    } else {
      begin_piece({});
    }
    ++tally_["resumes"];
  }

  void stop() {
    say("stop");
    for (Rank& rank : ranks_) std::thread([&] { rank.loader->stop(); }).join();
    is_stopped_ = true;
    ++tally_["stops"];
  }

  /// Calls next() and stop() concurrently. next() must return a whole batch, or be cancelled.
  void race_to_stop() {
    if (ranks_.size() != 1 || is_stopped_ || taken_ == steps()) return;
    say("race");
    std::thread stopper([&] { ranks_[0].loader->stop(); });
    is_stopped_ = true;
    ++tally_["stops"];
    try {
      const auto found_before = ranks_[0].found;
      try {
        take(0);
        ++taken_;
      } catch (const Cancelled&) {
        ranks_[0].found = found_before;
      }
    } catch (...) {
      stopper.join();
      throw;
    }
    stopper.join();
  }

  Dice dice_;
  std::ostream* log_;
  test::Tally& tally_;
  std::optional<MixedDataset> data_;
  Order order_;
  std::vector<std::string> texts_;
  std::set<std::uint64_t> bad_;
  std::vector<Saved> saved_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>,
           std::pair<std::uint64_t, std::uint64_t>>
      random_;

  std::uint64_t replicas_ = 1;
  std::uint64_t max_bad_ = 0;
  std::unique_ptr<test::ThreadRanks> group_;
  std::vector<Rank> ranks_;

  SkipList agreed_;  // bad samples known to all ranks
  std::map<std::uint64_t, std::uint64_t> ledger_;
  /// The ledger at the point of the last restore(), if that was within an epoch.
  std::optional<std::map<std::uint64_t, std::uint64_t>> delivered_before_;
  bool is_stopped_ = false;
  bool has_said_end_ = false;
  std::uint64_t taken_ = 0;
};

TEST(LoaderChainTest, WhateverIsDoneEachSampleComesAsTheModelSays) {
  test::run_chains_of<Chain>(200, 4000);
}

/// A memory resource that fails after a number of allocations, and counts blocks not returned.
class ScarceMemory : public std::pmr::memory_resource {
 public:
  explicit ScarceMemory(std::int64_t times) : times_(times) {}

  std::atomic<int> held{0};

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    if (times_.fetch_sub(1) == 0) throw std::bad_alloc();
    ++held;
    return std::pmr::new_delete_resource()->allocate(size, alignment);
  }
  void do_deallocate(void* p, std::size_t size, std::size_t alignment) override {
    --held;
    std::pmr::new_delete_resource()->deallocate(p, size, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::atomic<std::int64_t> times_;
};

/// Lives of a loader with random ends: the loop breaks off, stops or throws, or the loader is
/// destroyed.
class Exits {
 public:
  explicit Exits(std::uint64_t seed)
      : dice_(seed),
        memory_(std::make_shared<ScarceMemory>(
            dice_.percent(30) ? static_cast<std::int64_t>(dice_.below(20)) : -1)) {
    const Numbered& set = shelf().any(dice_);
    fuse_ = dice_.percent(50) ? static_cast<std::int64_t>(dice_.below(100)) : -1;
    const auto light = [this](const Sample&, const Hash128&, columns::Row& row) {
      if (fuse_ >= 0 && fuse_.fetch_sub(1) == 0) throw std::runtime_error("the fuse");
      row.resize(1)[0] = std::byte{7};
    };
    Loader::Options options{
        .columns = {columns::text("txt"), columns::ragged_function("light", DType::kUInt8, light)},
        .order = {.seed = dice_.number()},
        .batch_size = 1 + dice_.below(9),
        .threads = static_cast<unsigned>(dice_.below(8)),
        .max_bad = dice_.below(3),
        .prefetch = dice_.below(5),
        .memory = memory_};
    if (dice_.percent(50)) options.columns.push_back(columns::integer("cls"));
    if (dice_.percent(30)) options.max_bytes_ahead = dice_.below(100);
    loader_ = std::make_unique<Loader>(*set.data, options);
    detail::LoaderAccess::accept_all_bad(*loader_);
  }

  void run() {
    std::optional<std::thread> stopper;
    if (dice_.percent(30)) {
      stopper.emplace([this, wait = dice_.below(300)] {
        for (std::uint64_t i = 0; i < wait; ++i) std::this_thread::yield();
        loader_->stop();
      });
    }
    for (std::uint64_t ops = dice_.below(25); ops > 0; --ops) {
      try {
        op();
      } catch (const Error& error) {
        const bool is_expected =
            error.code() == ErrorCode::kBadField || error.code() == ErrorCode::kCancelled ||
            error.code() == ErrorCode::kNotExact || error.code() == ErrorCode::kMismatch ||
            error.code() == ErrorCode::kInvalidArgument;
        EXPECT_TRUE(is_expected) << error.what();
      } catch (const std::bad_alloc&) {
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "the fuse");
      }
    }
    if (stopper) stopper->join();
    if (dice_.percent(50)) kept_.clear();
    loader_.reset();
    for (const Batch& batch : kept_) {
      for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_EQ(batch["light"].text(i), "\a");
    }
    kept_.clear();
    EXPECT_EQ(memory_->held, 0);
  }

 private:
  void op() {
    switch (dice_.below(10)) {
      case 0:
        return loader_->start();
      case 1:
        return loader_->stop();
      case 2:
        return loader_->set_epoch(dice_.below(4));
      case 3:
        return loader_->restore(loader_->state());
      case 4:
        loader_->prove();
        return;
      case 5:
        for (auto epoch : loader_->epochs(2)) {
          for (Batch& batch : epoch) {
            kept_.push_back(std::move(batch));
            if (dice_.percent(20)) return;
          }
        }
        return;
      default:
        if (auto batch = loader_->next()) kept_.push_back(*std::move(batch));
    }
  }

  Dice dice_;
  std::shared_ptr<ScarceMemory> memory_;
  std::atomic<std::int64_t> fuse_{-1};  // number of rows before one throws; below 0: none throws
  std::unique_ptr<Loader> loader_;
  std::vector<Batch> kept_;
};

TEST(LoaderChainTest, ALoaderMayBeLeftInAnyState) {
  test::for_each_seed(300, 4000, [](std::uint64_t seed) { Exits(seed).run(); });
}

TEST(LoaderChainTest, WhatOneReplicaLacksIsInNoState) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", std::vector<test::Fields>(20, {{"txt", "x"}}));
  for (const std::uint64_t unlucky : {0U, 1U}) {
    test::ThreadRanks ranks(2);
    test::on_ranks(2, [&](std::uint64_t rank) {
      const auto make = [&](const Sample& sample, const Hash128&, columns::Row&) {
        if (rank == unlucky && sample.index() == 5) throw std::runtime_error("out of luck");
      };
      Loader loader(data,
                    {.columns = {columns::function("f", DType::kInt8, {}, make)},
                     .order = {.kind = Sequential{}},
                     .batch_size = 4,
                     .replicas = 2},
                    ranks.rank(rank));
      for (int step = 0; step < 3; ++step) {
        try {
          loader.next();
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "out of luck");
        }
      }
      EXPECT_THAT(test::error_text([&] { loader.state(); }),
                  testing::AllOf(testing::HasSubstr("ranks differ"),
                                 testing::HasSubstr("number of lost batches; ")));
    });
  }
}

}  // namespace
}  // namespace shardwise
