// Random chains of operations on loaders, compared with a simple model.
//
//     tools/test.sh --thorough -R loader_chain_test    many more chains
//     SHARDWISE_SEED=17 loader_chain_test              one chain, in detail

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "loader/loader_chain.h"
#include "support/dataset.h"
#include "support/says.h"

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

/// The model knows the order from samplers that it queries sample by sample.
class Chain : public test::LoaderChain {
 public:
  Chain(std::uint64_t seed, std::ostream* log, test::Tally& tally) : LoaderChain(seed, log, tally) {
    std::vector<Dataset> parts;
    for (std::uint64_t i = draw_num_parts(); i > 0; --i) {
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

 private:
  // ------------------------------------------------------------------------------------ setting up

  void draw_order() {
    order_.seed = dice_.number();
    const std::uint64_t n = data_->size();
    const Chunked chunked{.chunk_size = 1 + dice_.below(n + 2), .window = 1 + dice_.below(3)};
    if (draw_mixture(chunked)) return;
    draw_kind(chunked);
    if (dice_.percent(20)) order_.tail = dice_.one_of({Order::Tail::kDrop, Order::Tail::kPad});
    if (dice_.percent(15)) order_.balance_bytes = true;
    if (n > 0 && dice_.percent(10)) {
      order_.tail = Order::Tail::kExact;
      order_.epoch_size = 1 + dice_.below(2 * n);
    }
    if (n > 0 && dice_.percent(15)) skip_samples();
  }

  /// Makes new loaders, at the beginning of epoch 0.
  void draw_world() {
    ranks_.clear();  // destroys the old loaders, whatever they are doing
    replicas_ = dice_.percent(15) ? 2 : 1;
    max_bad_ = dice_.percent(40) ? 0 : dice_.one_of({1U, 3U, 100U, 100U, 100U});
    const std::uint64_t shares = dice_.one_of({1U, 1U, 1U, 2U, 3U});
    Loader::Options options;
    options.columns = {columns::text("txt"), columns::integer("cls"), columns::key(),
                       columns::function("random", DType::kUInt64, {2},
                                         [](const Sample&, const Hash128& random, auto& row) {
                                           row.template values<std::uint64_t>()[0] = random.high;
                                           row.template values<std::uint64_t>()[1] = random.low;
                                         })};
    options.batch_size = dice_.one_of({1U, 2U, 3U, 5U, 8U, 64U});
    if (dice_.percent(20)) {
      const bool is_even = order_.balance_bytes || order_.tail != Order::Tail::kExact;
      options.global_batch_size = is_even ? shares * (1 + dice_.below(4)) : shares + dice_.below(9);
    }
    make_ranks(shares, options);
    models_.clear();
    for (std::uint64_t r = 0; r < ranks_.size(); ++r) {
      models_.push_back(make_sampler(*data_, order_,
                                     {.rank = r,
                                      .world_size = ranks_.size(),
                                      .batch_size = options.batch_size,
                                      .global_batch_size = options.global_batch_size,
                                      .replicas = replicas_}));
    }
    begin({});
  }

  /// @param is_within  true: the loaders begin within an epoch. `ledger` has its deliveries so far.
  void begin(const Ledger& ledger, bool is_within = false) {
    delivered_before_.reset();
    if (is_within) delivered_before_ = ledger;
    begin_piece(ledger);
  }

  // ---------------------------------------------------------------------------------- the model

  const Sampler& model() const { return *models_[0]; }
  std::uint64_t epoch() const override { return model().epoch(); }
  std::uint64_t steps() const override { return model().steps(); }
  std::string sample_key(std::uint64_t sample) const override {
    const std::string number = texts_[sample].substr(texts_[sample].find(':') + 1);
    return "s" + std::string(5 - number.size(), '0') + number;
  }

  void model_set_epoch(std::uint64_t epoch) override {
    if (delivered_before_ && epoch == model().epoch() && !has_ended()) {
      return begin(Ledger(*delivered_before_), true);  // back to the point of the last restore()
    }
    for (const auto& sampler : models_) {
      ResumeToken token = sampler->token_after(0);
      token.skip.merge(agreed_);
      token.epoch = epoch;
      token.position = 0;
      sampler->resume(token);
    }
    begin({});
  }

  Rows rows_of(std::size_t r) const override {
    Rows rows;
    const Sampler& sampler = *models_[r];
    for (auto i = sampler.first_of_step(taken_); i < sampler.first_of_step(taken_ + 1); ++i) {
      const Row row{sampler.at(i), sampler.position_in_epoch(i)};
      (bad_.contains(row.sample) ? rows.bad : rows.good).push_back(row);
    }
    return rows;
  }

  void check_batch(const Batch& batch, const std::vector<Row>& rows) override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string& text = texts_[rows[i].sample];
      must_equal(batch["txt"].text(i), std::string_view(text), "a row's text");
      must_equal(std::to_string(batch["cls"].values<std::int64_t>()[i]),
                 text.substr(text.find(':') + 1), "a row's number");
      const auto words = batch["random"].values<std::uint64_t>().subspan(2 * i, 2);
      const std::tuple row(epoch(), rows[i].sample, model().is_exact() ? 0 : rows[i].position);
      const auto [at, is_new] = random_.try_emplace(row, words[0], words[1]);
      must(at->second == std::pair(words[0], words[1]), "another random key for the same row");
    }
  }

  std::optional<ErrorCode> error_of_proof() const override {
    const auto is_broken = [](const Rank& rank) { return rank.failed + rank.lost > 0; };
    const bool can_be_proven =
        taken_ == steps() && std::ranges::none_of(ranks_, is_broken) && !data_->empty();
    return can_be_proven ? std::nullopt : std::optional(ErrorCode::kNotExact);
  }
  std::optional<ErrorCode> error_at_end() const override {
    const bool is_lost = data_->empty() || ranks_[0].lost > 0;
    return is_lost ? std::optional(ErrorCode::kNotExact) : std::nullopt;
  }

  void check_proof(const std::string& text) const override {
    must(text.find("proven") != std::string::npos, text);
    check_ledger();
  }

  /// If the order promises each sample exactly once, checks that each was delivered exactly once.
  void check_ledger() const {
    if (!model().is_exact() || order_.tail != Order::Tail::kExact || order_.epoch_size != 0) return;
    for (std::uint64_t s = 0; s < texts_.size(); ++s) {
      if (order_.skip.samples().contains(s)) continue;
      const auto found = ledger_.find(s);
      must_equal(found == ledger_.end() ? 0 : found->second, bad_.contains(s) ? 0U : 1UL,
                 "how often sample " + std::to_string(s) + " came");
    }
  }

  void check_token(const ResumeToken& token, std::uint64_t done, bool at_end) const override {
    if (at_end) check_ledger();
    ResumeToken expected = model().token_after(done);
    expected.skip.merge(agreed_);
    must_equal(token.epoch, expected.epoch, "the token's epoch");
    must_equal(token.position, expected.position, "the token's position");
    check_points(token.skip, expected.skip, "what the token leaves out");
    if (at_end && steps() > 0) must_equal(token.position, std::uint64_t{0}, "at the end");
  }

  // ---------------------------------------------------------------------------------- operations

  void op() override {
    const std::uint64_t what = dice_.below(100);
    if (what < 52) return step();
    if (what < 62) return save();
    if (what < 70) return restore();
    if (what < 75) return prove();
    if (what < 79) return set_epoch(dice_.percent(60) ? epoch() + 1 : dice_.below(5));
    if (what < 83) return go_on_with_epochs();
    if (what < 87) return start();
    if (what < 91) return stop();
    if (what < 95) return race_to_stop();
    say("other loaders");
    draw_world();
  }

  void restore() {
    if (saved_.empty()) return;
    if (dice_.percent(60)) draw_world();
    const Saved& saved = saved_[dice_.below(saved_.size())];
    const ResumeToken& token = saved.token;
    say("restore epoch " + std::to_string(token.epoch) + ", position " +
        std::to_string(token.position));
    for (Rank& rank : ranks_) rank.loader->restore(token);
    bool is_done = false;
    for (const auto& sampler : models_) {
      sampler->resume(token);
      is_done = token.position > 0 && sampler->steps() == 0;
      if (is_done) sampler->set_epoch(token.epoch + 1);
    }
    if (token.position > 0 && !is_done) {
      begin(saved.ledger, true);
      if (dice_.percent(40)) set_epoch(token.epoch);  // a loop over epochs calls this, too
    } else {
      begin({});
    }
    ++tally_["resumes"];
  }

  std::vector<std::string> texts_;
  std::set<std::uint64_t> bad_;
  std::vector<std::unique_ptr<Sampler>> models_;  // by rank
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>,
           std::pair<std::uint64_t, std::uint64_t>>
      random_;
  /// The ledger at the point of the last restore(), if that was within an epoch.
  std::optional<Ledger> delivered_before_;
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
  std::atomic<std::int64_t> fuse_{-1};  // number of rows until one throws; -1 means none throws
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
      EXPECT_ERROR(test::Says("ranks differ", "number of lost batches; "), loader.state());
    });
  }
}

}  // namespace
}  // namespace shardwise
