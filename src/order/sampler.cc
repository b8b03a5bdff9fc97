#include "shardwise/order/sampler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error_types.h"
#include "base/spelling.h"
#include "base/text.h"
#include "order/arithmetic.h"
#include "order/fields.h"
#include "order/mixture_schedule.h"
#include "order/spec.h"

namespace shardwise {

using detail::ceil_div;

// A sampler is a sequence of size_ numbers, which evaluate() computes at any index, and a cursor:
//
//   index   0               buffer_first_             + cursor_        + filled_         size_
//           |  delivered    | delivered, in buffer_   | computed ahead | not computed    |
//                                                     ^ position()
//
// cursor_ <= filled_ <= kBufferSize, and buffer_first_ + filled_ <= size_. After set_epoch() and
// seek() the buffer is empty. Refills then grow from 1 to 512 numbers, so that the first sample is
// available immediately, and later samples cost little.
//
// Distinguish two counts. An `index` counts the samples of this rank. A `count` counts the samples
// of all ranks together, from the point where the sampler began. Index i of share s has the count i
// * num_shares() + s. When each rank has taken t samples, t * num_shares() samples were delivered.
// At the end of an epoch this formula is not exact, because ranks may have different numbers of
// samples. Therefore delivered_ is used there. slot_sampler.cc has a picture of positions in an
// epoch with samples left out.
//
// ended_ is set when next() has reported the end, not already when position() == size_. If it is
// set, begin() throws. Otherwise a loop over the next epoch without set_epoch() would silently get
// no samples.
//
// If start() or resume() throws, the sampler is unchanged: prepare() does everything that can fail,
// and only moves follow it. Replicas have the same share, so they deliver the same samples.

Sampler::Sampler(const SampleSet& samples, ResumeToken::OrderSpec spec, const SkipList& skip,
                 const RankOptions& ranks)
    : spec_(std::move(spec)),
      own_kind_(spec_.order.kind),
      fingerprint_(samples.fingerprint()),
      ranks_(detail::checked(ranks)),
      own_skip_(skip) {}

Sampler::~Sampler() = default;

void Sampler::start(SkipList::Point point, const SkipList& skip, const Order* changed) {
  if (!skip.samples().empty() && skip.samples().rbegin()->first >= num_samples()) {
    throw OutOfRange("cannot leave out sample " + std::to_string(skip.samples().rbegin()->first) +
                         ", which does not exist",
                     {}, "choose a sample in [0, " + std::to_string(num_samples()) + ")");
  }
  if (point.epoch == ~std::uint64_t{0}) {
    throw InvalidArgument("no epoch " + std::to_string(point.epoch), {},
                          "choose an epoch from 0 to 2^64 - 2");
  }
  SkipList kept = skip;  // `skip` may refer to skip_; it is copied first, because this may throw
  prepare(point, skip, changed);
  epoch_ = point.epoch;
  first_position_ = point.position;
  skip_ = std::move(kept);
  move_to(0);  // the buffer belongs to another epoch
}

void Sampler::set_walk(std::uint64_t delivered, std::uint64_t size) noexcept {
  delivered_ = delivered;
  size_ = size;
}

void Sampler::set_epoch(std::uint64_t epoch) {
  const bool has_ended = ended_ || (size_ > 0 && position() == size_);
  if (epoch == epoch_ && !has_ended) return move_to(0);
  start({epoch, 0}, skip_);
}

void Sampler::reset() { start({epoch_, 0}, skip_); }

void Sampler::move_to(std::uint64_t index) noexcept {
  buffer_first_ = index;
  cursor_ = 0;
  filled_ = 0;
  next_fill_ = kFirstFill;
  ended_ = false;
}

void Sampler::seek(std::uint64_t index) {
  if (index > size_) {
    throw OutOfRange(
        "cannot move to sample " + std::to_string(index) + " of rank " + std::to_string(rank()),
        "epoch " + std::to_string(epoch_), "choose a number in [0, " + std::to_string(size_) + "]");
  }
  move_to(index);
}

void Sampler::check_index(std::uint64_t index) const {
  if (index < size_) return;
  throw OutOfRange("no sample " + std::to_string(index) + " on rank " + std::to_string(rank()),
                   "epoch " + std::to_string(epoch_),
                   "choose a number in [0, " + std::to_string(size_) + ")");
}

std::uint64_t Sampler::at(std::uint64_t index) const {
  check_index(index);
  std::uint64_t sample = 0;
  evaluate(index, {&sample, 1});
  return sample;
}

std::uint64_t Sampler::position_in_epoch(std::uint64_t index) const {
  check_index(index);
  return find_position(index);
}

Sampler::Iterator Sampler::begin() {
  if (ended_) {
    throw InvalidArgument("the end of the epoch was reached", "epoch " + std::to_string(epoch_),
                          "call set_epoch(" + std::to_string(epoch_ + 1) +
                              ") for the next epoch, or reset() to read this epoch again");
  }
  return Iterator(*this);
}

bool Sampler::refill() {
  const std::uint64_t first = position();
  if (first >= size_) {
    ended_ = true;
    return false;
  }
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(next_fill_, size_ - first));
  evaluate(first, {buffer_.data(), count});
  next_fill_ = std::min(4 * next_fill_, kBufferSize);
  buffer_first_ = first;
  cursor_ = 0;
  filled_ = count;
  return true;
}

std::size_t Sampler::next_batch(std::span<std::uint64_t> batch) {
  const std::size_t buffered = std::min(batch.size(), filled_ - cursor_);
  const std::uint64_t first = position() + buffered;
  const auto rest =
      static_cast<std::size_t>(std::min<std::uint64_t>(batch.size() - buffered, size_ - first));
  // If evaluate() throws, the position is unchanged.
  if (rest > 0) evaluate(first, batch.subspan(buffered, rest));
  std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(cursor_), buffered, batch.begin());
  if (rest > 0) {
    buffer_first_ = first + rest;
    cursor_ = 0;
    filled_ = 0;
  } else {
    cursor_ += buffered;
  }
  if (buffered + rest < batch.size()) ended_ = true;
  return buffered + rest;
}

std::uint64_t Sampler::batch_size() const noexcept { return ceil_div(step_size(), num_shares()); }

std::uint64_t Sampler::step_size() const noexcept {
  if (ranks_.global_batch_size > 0) return ranks_.global_batch_size;
  return ranks_.batch_size * num_shares();
}

std::uint64_t Sampler::steps() const noexcept { return ceil_div(delivered_, step_size()); }

std::uint64_t Sampler::first_of_step(std::uint64_t step) const noexcept {
  // Sample i of this rank is delivery i * num_shares() + share() of all ranks.
  if (step >= steps()) return size_;
  const std::uint64_t before = step * step_size();
  return before <= share() ? 0 : std::min(size_, ceil_div(before - share(), num_shares()));
}

std::uint64_t Sampler::step_of(std::uint64_t index) const noexcept {
  return (index * num_shares() + share()) / step_size();
}

ResumeToken Sampler::token_at(std::uint64_t count) const {
  ResumeToken token;
  token.fingerprint = fingerprint_;
  token.spec = spec_;
  token.skip = skip_;
  token.history = history_;
  const std::optional<std::uint64_t> position = position_after(count);
  token.epoch = position ? epoch_ : epoch_ + 1;
  token.position = position.value_or(0);
  return token;
}

ResumeToken Sampler::token() const {
  const std::uint64_t taken = position();
  if (spec_.order.balance_bytes && taken < size_ && taken % batch_size() != 0) {
    throw InvalidArgument("a token cannot be taken within a step",
                          "epoch " + std::to_string(epoch_) + ", sample " + std::to_string(taken) +
                              " of rank " + std::to_string(rank()),
                          "with " + spelled(detail::spelling_of<Order>("balance_bytes")) +
                              ", take tokens between steps");
  }
  if (taken == size_) return token_at(delivered_);
  return token_at(taken * num_shares());
}

ResumeToken Sampler::token_after(std::uint64_t num_steps) const {
  using detail::uint128;
  const uint128 count = static_cast<uint128>(num_steps) * step_size();
  return token_at(count < delivered_ ? static_cast<std::uint64_t>(count) : delivered_);
}

namespace {

/// Refuses a change of order if both orders have unfinished passes at this point: passes that are
/// longer than an epoch, or passes of several data sets. The new order would not continue the old
/// passes, so some samples would be repeated, and others left out. Errors: Mismatch, naming the
/// passes.
void require_no_loss(const ResumeToken& token, const ResumeToken::OrderSpec& here) {
  const std::vector<std::string> open = detail::open_passes(token.spec, token.epoch);
  if (open.empty() || detail::open_passes(here, token.epoch).empty()) return;
  constexpr std::size_t kMaxShown = 4;
  std::string text = "epoch " + std::to_string(token.epoch) + " begins where ";
  for (std::size_t i = 0; i < open.size() && i < kMaxShown; ++i) {
    text += (i == 0 ? "" : ", ") + open[i];
  }
  text += open.size() > kMaxShown ? ", ... have been read; the orders differ: "
                                  : " have been read; the orders differ: ";
  throw Mismatch("the order cannot change in the middle of a pass over the data",
                 text + difference(token.spec, here),
                 "resume with the token's order, or start a new run without the token");
}

/// True if the orders differ at most in the weights of a mixture.
bool differ_only_in_weights(ResumeToken::OrderSpec one, const ResumeToken::OrderSpec& other) {
  const auto* const mixture = std::get_if<Mixture>(&one.order.kind);
  const auto* const there = std::get_if<Mixture>(&other.order.kind);
  if (mixture == nullptr || there == nullptr) return one == other;
  if (!detail::differ_only_in_weights(*mixture, *there)) return false;
  one.order.kind = other.order.kind;
  return one == other;
}

}  // namespace

void Sampler::resume(const ResumeToken& token, Sampler::Changes changes) {
  if (token.batches) {
    throw Mismatch("the resume token is within a window of batches by length or group",
                   "rule: " + in_quotes(token.batches->rule),
                   "resume with a Loader that has the same by_length and by_group");
  }
  resume_at(token, changes, 0);
}

/// Does the work of resume(). The weights of this order apply after the first `fixed` positions
/// from the token on.
void Sampler::resume_at(const ResumeToken& token, Sampler::Changes changes, std::uint64_t fixed) {
  const SkipList::Point point{token.epoch, token.position};
  ResumeToken::OrderSpec own = spec_;
  own.order.kind = own_kind_;
  const std::uint64_t position = detail::position_in_run(token.spec, point);
  ResumeToken::OrderSpec next =
      detail::continued(own, token.spec, position + std::min(fixed, kMaxSamples - position));
  const bool is_allowed = changes == Sampler::Changes::kAllowAtEpochBorder;
  std::vector<ResumeToken::Stage> history = token.history;
  SkipList skip;
  if (token.fingerprint == fingerprint_ &&
      (token.spec == next || (is_allowed && differ_only_in_weights(token.spec, next)))) {
    skip = token.skip;
  } else if (is_allowed && token.position == 0) {
    next = std::move(own);
    if (token.spec != next) require_no_loss(token, next);
    history.push_back({token.epoch, token.fingerprint, token.spec});
    if (token.fingerprint == fingerprint_) skip = token.skip;
  } else {
    if (token.fingerprint == fingerprint_ && differ_only_in_weights(token.spec, next)) {
      throw Mismatch(
          "cannot resume this run from the token",
          "the weights differ from position " + std::to_string(position) + " of the run on",
          "resume with the weights of the token's run, or with " +
              spelled("Sampler::Changes::kAllowAtEpochBorder"));
    }
    token.require(own, fingerprint_);
    skip = token.skip;
  }
  if (token.position > num_positions()) {
    throw OutOfRange("no position " + std::to_string(token.position),
                     "epoch " + std::to_string(token.epoch),
                     "choose a position in [0, " + std::to_string(num_positions()) + "]");
  }
  // Entries of this order's own skip list apply from the token's point on; samples before it were
  // already delivered.
  skip.merge_from(own_skip_, point);
  start(point, skip, next == spec_ ? nullptr : &next.order);
  spec_ = std::move(next);
  history_ = std::move(history);
}

EpochAudit::Expectation Sampler::expectation() const {
  return expectation(is_exact_ ? EpochAudit::Sum::of_range(0, num_samples(), fingerprint_)
                               : EpochAudit::Sum{});
}

EpochAudit::Expectation Sampler::expectation(const EpochAudit::Sum& all) const {
  EpochAudit::Expectation expectation =
      is_exact_ ? EpochAudit::Expectation(num_samples(), fingerprint_, all)
                : EpochAudit::Expectation::as_ordered(num_samples(), fingerprint_);
  expect(expectation);
  return expectation;
}

std::uint64_t Sampler::deliveries_before(std::uint64_t position) const {
  return count_before(std::min(position, num_positions()));
}

std::unique_ptr<Sampler> Sampler::for_rank(std::uint64_t rank) const {
  std::unique_ptr<Sampler> other = clone();
  RankOptions ranks = ranks_;
  ranks.rank = rank;
  other->ranks_ = detail::checked(ranks);
  other->start({epoch_, first_position_}, skip_);
  return other;
}

}  // namespace shardwise
