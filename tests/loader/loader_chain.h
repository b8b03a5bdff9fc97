#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error_types.h"
#include "loader/loader_access.h"
#include "loader/thread_ranks.h"
#include "shardwise/loader/loader.h"
#include "support/chain.h"

namespace shardwise::test {

/// A random chain of operations on the loaders of several ranks. A derived class has the model: the
/// rows of each batch, and the points of tokens.
///
/// A chain is the life of a run: several worlds of loaders, one after another. Each world has other
/// numbers of ranks and threads. The ranks' batches, tokens and proofs must agree with the model.
class LoaderChain {
 public:
  LoaderChain(std::uint64_t seed, std::ostream* log, Tally& tally)
      : dice_(seed), log_(log), tally_(tally) {}
  virtual ~LoaderChain() = default;
  LoaderChain(const LoaderChain&) = delete;
  LoaderChain& operator=(const LoaderChain&) = delete;

  void run() {
    for (std::uint64_t ops = 5 + dice_.below(40); ops > 0; --ops) {
      op();
      check_numbers();
    }
  }

 protected:
  using Ledger = std::map<std::uint64_t, std::uint64_t>;  // sample -> deliveries
  struct Rank {
    std::unique_ptr<Loader> loader;
    std::vector<std::pair<std::uint64_t, SkipList::Point>> found;  // bad since begin_piece()
    std::uint64_t failed = 0;  // batches that failed since the last one that was made
    std::uint64_t lost = 0;    // batches that failed earlier
  };
  struct Saved {
    ResumeToken token;
    Ledger ledger;
  };
  /// A row of a batch: its sample, its position, and the position of its first token.
  struct Row {
    std::uint64_t sample = 0;
    std::uint64_t position = 0;
    std::uint64_t start = 0;
  };
  /// The rows of a batch, and the bad samples that it would contain.
  struct Rows {
    std::vector<Row> good;
    std::vector<Row> bad;
  };
  /// The result of a collective call on a rank: a text or an error.
  struct Said {
    std::string text;
    std::optional<ErrorCode> error;
  };

  // ---------------------------------------------------------------------------------- the model

  virtual void op() = 0;
  virtual std::uint64_t epoch() const = 0;
  virtual std::uint64_t steps() const = 0;
  /// Returns the rows that rank `r` gets in step `taken_`.
  virtual Rows rows_of(std::size_t r) const = 0;
  virtual std::string sample_key(std::uint64_t sample) const = 0;
  virtual void check_batch(const Batch& batch, const std::vector<Row>& rows) = 0;
  virtual void model_set_epoch(std::uint64_t epoch) = 0;
  /// Returns the error that prove() must throw, unless too many samples are bad.
  virtual std::optional<ErrorCode> error_of_proof() const = 0;
  /// Returns the error that state() must throw at the end of an epoch if the ranks agree.
  virtual std::optional<ErrorCode> error_at_end() const = 0;
  virtual void check_proof(const std::string& text) const = 0;
  /// Checks a token after `done` steps.
  virtual void check_token(const ResumeToken& token, std::uint64_t done, bool at_end) const = 0;

  std::uint64_t shares() const { return ranks_.size() / replicas_; }
  bool has_ended() const { return has_said_end_ || (steps() > 0 && taken_ == steps()); }
  std::uint64_t length() const {
    return order_.epoch_size != 0 ? order_.epoch_size : data_->size();
  }

  // ------------------------------------------------------------------------------------ setting up

  void say(const std::string& text) {
    if (log_ != nullptr) *log_ << text << "\n";
  }

  /// Draws the number of data sets of the chain.
  std::uint64_t draw_num_parts() { return dice_.percent(25) ? 2 + dice_.below(2) : 1; }

  /// Draws a mixture of the data sets, if there are several. Returns true if it drew one.
  bool draw_mixture(const Chunked& chunked) {
    if (data_->num_parts() == 1 || data_->empty() || !dice_.percent(60)) return false;
    std::vector<double> weights;
    for (std::size_t i = 0; i < data_->num_parts(); ++i) {
      weights.push_back(data_->part(i).empty() ? 0.0 : dice_.one_of({0.5, 1.0, 3.0}));
    }
    order_.kind = data_->mixture(weights, chunked);
    if (dice_.percent(50)) order_.epoch_size = 1 + dice_.below(2 * data_->size());
    return true;
  }

  void draw_kind(const Chunked& chunked) {
    order_.kind = chunked;
    const std::uint64_t kind = dice_.below(8);
    if (kind == 0) order_.kind = Sequential{};
    if (kind == 1) order_.kind = Sharded{.window = 1 + dice_.below(3)};
    if (kind == 2 && !data_->empty()) {
      order_.kind =
          Resampled{.unit = dice_.one_of({Resampled::Unit::kSample, Resampled::Unit::kShard})};
    }
  }

  void skip_samples() {
    for (std::uint64_t i = 1 + dice_.below(4); i > 0; --i) {
      order_.skip.add_sample(dice_.below(data_->size()), "by choice");
    }
  }

  /// Makes the loaders of `shares` ranks, each `replicas_` times, after the old ones were
  /// destroyed.
  void make_ranks(std::uint64_t shares, Loader::Options options) {
    const std::uint64_t world = replicas_ * shares;
    group_ = std::make_unique<ThreadRanks>(world);
    options.order = order_;
    options.replicas = replicas_;
    options.max_bad = max_bad_;
    say(std::to_string(world) + " ranks, " + std::to_string(replicas_) + " replicas, batch size " +
        std::to_string(options.batch_size) + ", global " +
        std::to_string(options.global_batch_size) + ", max_bad " + std::to_string(max_bad_));
    for (std::uint64_t r = 0; r < world; ++r) {
      Loader::Options own = options;
      own.threads = dice_.one_of({0U, 0U, 1U, 2U, 7U});
      own.prefetch = dice_.one_of({0U, 0U, 1U, 2U, 9U});
      if (dice_.percent(25)) own.max_bytes_ahead = dice_.below(400);
      ranks_.push_back({std::make_unique<Loader>(*data_, own, group_->rank(r)), {}});
      detail::LoaderAccess::accept_all_bad(*ranks_.back().loader);
    }
    agreed_ = {};
    ++tally_["worlds"];
  }

  /// Begins a piece of an epoch. `ledger` has the epoch's earlier deliveries.
  void begin_piece(Ledger ledger) {
    ledger_ = std::move(ledger);
    is_stopped_ = false;
    has_said_end_ = false;
    taken_ = 0;
    for (Rank& rank : ranks_) {
      rank.found.clear();
      rank.failed = rank.lost = 0;
    }
  }

  // ---------------------------------------------------------------------------------- operations

  void start() {
    for (Rank& rank : ranks_) {
      if (dice_.percent(70)) rank.loader->start();
    }
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

  void set_epoch(std::uint64_t epoch) {
    say("set_epoch " + std::to_string(epoch));
    for (Rank& rank : ranks_) rank.loader->set_epoch(epoch);
    model_set_epoch(epoch);
  }

  void go_on_with_epochs() {
    const std::uint64_t end = epoch() + dice_.below(4);
    say("epochs to " + std::to_string(end));
    const std::uint64_t next = epoch() + (has_ended() ? 1 : 0);
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
      say("step " + std::to_string(taken_) + " of " + std::to_string(steps()));
      if (is_stopped_) {
        for (Rank& rank : ranks_) {
          must_throw<Cancelled>([&] { rank.loader->next(); }, "next() after stop()");
        }
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

  void prove() {
    say("prove");
    const bool through_epoch = dice_.percent(30);
    const auto said = on_all(
        [&](Loader& loader) { return through_epoch ? loader.epoch().prove() : loader.prove(); });
    if (check_said(said, error_of_proof(), true, "prove()")) check_proof(said[0].text);
  }

  void save() {
    const std::uint64_t done = taken_ - ranks_[0].failed;  // if equal on all ranks
    const bool at_end = done == steps();
    say(at_end ? "state at the end" : "state");
    const auto said = on_all([](Loader& loader) { return loader.state().to_text(); });
    if (!check_said(said, error_of_state(at_end), at_end, "state()")) return;
    const ResumeToken token = ResumeToken::from_text(said[0].text);
    check_token(token, done, at_end);
    saved_.push_back({token, at_end ? Ledger{} : ledger_});
    ++tally_["tokens"];
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

  static void check_points(const SkipList& actual, const SkipList& expected,
                           const std::string& what) {
    const auto point = [](const SkipList::Entry& entry) {
      return std::to_string(entry.from.epoch) + ", " + std::to_string(entry.from.position);
    };
    must_equal(actual.samples().size(), expected.samples().size(), what);
    for (const auto& [sample, entry] : expected.samples()) {
      const auto found = actual.samples().find(sample);
      must(found != actual.samples().end(), what + " lacks " + std::to_string(sample));
      must_equal(point(found->second), point(entry), what + ": " + std::to_string(sample));
    }
    must(actual.ranges() == expected.ranges(), what + ": other ranges");
  }

  Dice dice_;
  std::ostream* log_;
  Tally& tally_;
  std::optional<MixedDataset> data_;
  Order order_;
  std::vector<Saved> saved_;

  std::uint64_t replicas_ = 1;
  std::uint64_t max_bad_ = 0;
  std::unique_ptr<ThreadRanks> group_;
  std::vector<Rank> ranks_;

  SkipList agreed_;  // bad samples known to all ranks
  Ledger ledger_;    // deliveries of this epoch, by all runs
  bool is_stopped_ = false;
  bool has_said_end_ = false;
  std::uint64_t taken_ = 0;  // steps since begin_piece()

 private:
  void check_numbers() {
    for (const Rank& rank : ranks_) {
      const Loader& loader = *rank.loader;
      must_equal(loader.epoch_number(), epoch(), "the epoch's number");
      must_equal(loader.steps(), steps(), "steps");
      must_equal(loader.steps_left(), steps() - taken_, "steps left");
      must_equal(loader.has_ended(), has_ended(), "has_ended");
    }
  }

  /// Gets the next batch in one of several ways.
  std::optional<Batch> next_of(Loader& loader) {
    if (has_ended() || dice_.percent(70)) return loader.next();
    for (Batch& batch : loader.epoch()) return std::move(batch);
    return std::nullopt;
  }

  void take(std::size_t r) {
    Rank& rank = ranks_[r];
    const Rows rows = rows_of(r);
    std::set<std::uint64_t> known;
    for (const auto& [sample, entry] : agreed_.samples()) known.insert(sample);
    for (const Row& row : rows.bad) {
      if (max_bad_ > 0) rank.found.emplace_back(row.sample, SkipList::Point{epoch(), row.position});
    }
    for (const auto& [sample, point] : rank.found) known.insert(sample);
    const bool too_many = !rows.bad.empty() && max_bad_ > 0 && known.size() > max_bad_;
    ++tally_["batches"];
    tally_["bad"] += rows.bad.size();
    const std::uint64_t failed_before = std::exchange(rank.failed, 0);
    try {
      const auto batch = next_of(*rank.loader);
      must(rows.bad.empty() || (max_bad_ > 0 && !too_many), "a batch in spite of bad samples");
      must(batch.has_value(), "no batch");
      must_equal(batch->size(), rows.good.size(), "rows of a batch");
      for (std::size_t i = 0; i < rows.good.size(); ++i) {
        const Row& row = rows.good[i];
        must_equal(batch->samples()[i], static_cast<std::int64_t>(row.sample), "a sample");
        must_equal(batch->positions()[i], static_cast<std::int64_t>(row.position), "a position");
        must_equal((*batch)["__key__"].text(i), std::string_view(sample_key(row.sample)), "a key");
      }
      tally_["samples"] += rows.good.size();
      check_batch(*batch, rows.good);
    } catch (const Cancelled&) {
      rank.failed = failed_before;
      throw;
    } catch (const Error& error) {
      const bool is_missing = error.code() == ErrorCode::kNotFound && !too_many;
      if (!is_missing && error.code() != ErrorCode::kBadField) throw;
      const std::string text = error.what();
      if (too_many) {
        must(text.find("more than the") != std::string::npos, text);
        rank.lost += failed_before;
        return;
      }
      must(max_bad_ == 0 && !rows.bad.empty(), "an error without a reason: " + text);
      const std::string key = sample_key(rows.bad.front().sample);
      must(text.find(key) != std::string::npos, text + " does not name " + key);
      rank.failed = failed_before + 1;
      return;
    }
    rank.lost += failed_before;
    if (r % replicas_ != 0) return;
    for (const Row& row : rows.good) ++ledger_[row.sample];
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
      on_ranks(ranks_.size(), one);
    }
    return said;
  }

  /// Returns the error that state() must throw, unless too many samples are bad.
  std::optional<ErrorCode> error_of_state(bool at_end) const {
    for (const Rank& rank : ranks_) {
      const bool is_equal = rank.failed == ranks_[0].failed && rank.lost == ranks_[0].lost;
      if (!is_equal) return ErrorCode::kMismatch;
    }
    if (at_end) return error_at_end();
    return ranks_[0].lost > 0 ? std::optional(ErrorCode::kNotExact) : std::nullopt;
  }

  /// Checks the results of a collective call.
  /// @param expected  the error, unless too many samples are bad.
  /// @return  true if the call should succeed and did.
  bool check_said(const std::vector<Said>& said, std::optional<ErrorCode> expected, bool is_proof,
                  const std::string& what) {
    if (model_agree()) expected = ErrorCode::kBadField;
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
};

}  // namespace shardwise::test
