// Compares random chains of resumes in the order of Python wids with whole epochs of each rank. See
// resume_chain_test.cc.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error_types.h"
#include "order/arithmetic.h"
#include "order/resume_chain.h"
#include "shardwise/order/explain.h"

namespace shardwise {
namespace {

using detail::ceil_div;
using test::Dice;
using test::must;
using test::must_equal;
using test::must_throw;
using test::Samples;
using test::Setup;

Setup random_wids(Dice& random) {
  const std::uint64_t n = test::random_size(random);
  return {test::random_samples(random, n),
          {.seed = random.below(1000),
           .kind = Wids{.chunk_size = random.percent(30) ? 0 : random.between(1, n / 3 + 2),
                        .shuffle = random.percent(80),
                        .shufflefirst = random.percent(50)}}};
}

/// A run in the order of Python wids: each rank reads its own block.
class WidsChain {
 public:
  WidsChain(std::uint64_t seed, std::ostream* log, test::Tally& tally)
      : random_(seed), setup_(random_wids(random_)), log_(log), tally_(tally) {
    shares_ = random_.between(1, 9);
    if (log_ != nullptr) {
      *log_ << "wids n " << setup_.samples.size() << " ranks " << shares_ << " seed "
            << setup_.order.seed << "\n";
    }
  }

  void run() {
    const std::uint64_t num_epochs = random_.between(1, 4);
    for (int pieces = 0; pieces < 16 && epoch_ < num_epochs; ++pieces) run_piece();
  }

 private:
  std::unique_ptr<Sampler> make(std::uint64_t rank, std::uint64_t shares) const {
    return make_sampler(setup_.samples, setup_.order,
                        {.rank = rank * replicas_,
                         .world_size = shares * replicas_,
                         .batch_size = batch_,
                         .replicas = replicas_});
  }

  /// Returns the samples of each rank in the whole epoch.
  std::vector<Samples> epoch_of_ranks() const {
    std::vector<Samples> ranks;
    for (std::uint64_t rank = 0; rank < shares_; ++rank) {
      const std::unique_ptr<Sampler> sampler = make(rank, shares_);
      sampler->set_epoch(epoch_);
      ranks.push_back(test::drain(*sampler));
    }
    return ranks;
  }

  std::uint64_t delivered(const std::vector<Samples>& epoch, std::uint64_t index) const {
    std::uint64_t count = 0;
    for (const Samples& rank : epoch) count += std::min<std::uint64_t>(rank.size(), index);
    return count;
  }

  void check_whole(const std::vector<Samples>& epoch) const {
    Samples all;
    for (const Samples& rank : epoch) all.insert(all.end(), rank.begin(), rank.end());
    must(test::is_each_once(all, setup_.samples.size()), "an epoch has each sample once");
  }

  void run_piece() {
    ++tally_["pieces"];
    replicas_ = random_.one_of({1U, 1U, 2U});
    batch_ = test::random_batch(random_);
    const std::vector<Samples> epoch = epoch_of_ranks();
    check_whole(epoch);
    if (!text_.empty()) check_other_world();
    const std::uint64_t steps =
        ceil_div(epoch[0].size() - std::min(index_, epoch[0].size()), batch_);
    const std::uint64_t count = random_.percent(35) ? steps : random_.below(steps + 1);
    const std::uint64_t end = index_ + count * batch_;
    if (log_ != nullptr) {
      *log_ << "at " << epoch_ << ", " << index_ << " of each rank: x " << replicas_ << " batch "
            << batch_ << ", " << count << " of " << steps << " steps\n";
    }
    std::optional<ResumeToken> token;
    for (std::uint64_t rank = 0; rank < shares_; ++rank) {
      std::unique_ptr<Sampler> sampler = make(rank, shares_);
      if (!text_.empty()) sampler->resume(ResumeToken::from_text(text_));
      run_rank(sampler, epoch[rank], steps, count);
      const ResumeToken own = sampler->token_after(count);
      if (!token) token = own;
      must(own == *token, "ranks make different tokens");
      if (sampler->position() < sampler->size() || count == steps) {
        must(sampler->token() == own, "token() and token_after() differ");
      }
      if (count < steps) {
        must_equal(sampler->deliveries_before(own.position), delivered(epoch, end), "deliveries");
      } else if (rank + 1 == shares_) {
        must(audit_sum(epoch) == sampler->expectation().sum(), "the proof of an epoch");
      }
    }
    const SkipList::Point expected =
        count == steps ? SkipList::Point{epoch_ + 1, 0} : SkipList::Point{epoch_, end * shares_};
    must(SkipList::Point{token->epoch, token->position} == expected, "where a token stands");
    text_ = token->to_text();
    epoch_ = expected.epoch;
    index_ = count == steps ? 0 : end;
  }

  EpochAudit::Sum audit_sum(const std::vector<Samples>& epoch) const {
    EpochAudit::Sum sum;
    for (const Samples& rank : epoch)
      sum += EpochAudit::Sum::of(rank, setup_.samples.fingerprint());
    return sum;
  }

  void run_rank(std::unique_ptr<Sampler>& sampler, const Samples& epoch, std::uint64_t steps,
                std::uint64_t count) {
    const std::uint64_t first = std::min<std::uint64_t>(index_, epoch.size());
    must_equal(sampler->size(), epoch.size() - first, "size() of a rank");
    must_equal(sampler->steps(), steps, "steps() of a rank");
    if (steps > 0) check_explained(*sampler, epoch, first);
    for (std::uint64_t step = 0; step < count; ++step) {
      if (random_.percent(5)) test::disturb(sampler, setup_.samples, random_);
      const Samples taken = test::take(*sampler, batch_, random_);
      const std::uint64_t begin = std::min<std::uint64_t>(first + step * batch_, epoch.size());
      const std::uint64_t end = std::min<std::uint64_t>(begin + batch_, epoch.size());
      must_equal(taken,
                 Samples(epoch.begin() + static_cast<std::ptrdiff_t>(begin),
                         epoch.begin() + static_cast<std::ptrdiff_t>(end)),
                 "a rank's samples of a step");
    }
    if (!epoch.empty() && random_.percent(30)) check_times(*sampler, epoch, first);
  }

  void check_explained(const Sampler& sampler, const Samples& epoch, std::uint64_t first) {
    if (!random_.percent(10)) return;
    const std::vector<Sampler::RankStep> ranks = explain_step(sampler, 0);
    const std::uint64_t end = std::min<std::uint64_t>(first + batch_, epoch.size());
    must_equal(ranks[sampler.rank()].samples,
               Samples(epoch.begin() + static_cast<std::ptrdiff_t>(first),
                       epoch.begin() + static_cast<std::ptrdiff_t>(end)),
               "an explained step");
  }

  void check_times(const Sampler& sampler, const Samples& epoch, std::uint64_t first) {
    const std::uint64_t index = random_.below(epoch.size());
    std::vector<Sampler::SampleTime> expected;
    for (std::uint64_t i = 0; i < replicas_ && index >= first; ++i) {
      const std::uint64_t own = index - first;
      expected.push_back({sampler.rank() + i, own / batch_, own % batch_,
                          index * shares_ + sampler.rank() / replicas_});
    }
    must(when_sample(sampler, epoch[index]) == expected, "when_sample() of a sample");
  }

  void check_other_world() {
    const std::uint64_t other = shares_ % 9 + 1;
    must_throw<Mismatch>([&] { make(0, other)->resume(ResumeToken::from_text(text_)); },
                         "resume() on another number of ranks");
  }

  Dice random_;
  Setup setup_;
  std::ostream* log_;
  test::Tally& tally_;
  std::uint64_t shares_ = 1;
  std::uint64_t replicas_ = 1;
  std::uint64_t batch_ = 1;
  std::string text_;
  std::uint64_t epoch_ = 0;
  std::uint64_t index_ = 0;  ///< number of samples of the epoch that each rank has read, if it has
                             ///< that many
};

TEST(WidsChainTest, RanksThatResumeReadTheirWholeBlocks) {
  test::run_chains_of<WidsChain>(100, 5000);
}

}  // namespace
}  // namespace shardwise
