// Random chains of operations on loaders with batches by length or group, compared with a simple
// model.
//
// Like loader_chain_test.cc, but the model is written only from docs/formats/length-batches.md and
// order.md: windows, lengths, batches, packed rows, shuffles, ranks, and the points of tokens. A
// proof must succeed if and only if the deliveries of an epoch, by all runs that took part, are
// those that the order promises. Some tokens are modified by hand.
//
//     tools/test.sh --thorough -R loader_length_chain_test    many more chains
//     SHARDWISE_SEED=17 loader_length_chain_test              one chain, in detail

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "loader/length_model.h"
#include "loader/loader_chain.h"
#include "support/dataset.h"

namespace shardwise {
namespace {

using test::Dice;
using test::must;
using test::must_equal;
using test::Placed;
using test::PlacedBatch;

/// A sample as it was written to the shard.
struct Written {
  std::string key;
  std::string txt;
  std::optional<std::string> alt;
  std::optional<std::string> tok;  // int32 values; some samples have a size that is no multiple of
                                   // 4
  std::uint64_t n = 0;             // the column n, rounded up
  bool has_number = true;

  [[nodiscard]] bool is_bad() const { return !has_number || !tok || tok->size() % 4 != 0; }
};

struct WrittenSet {
  std::optional<Dataset> data;
  std::vector<Written> samples;
};

std::string int32s(std::uint64_t first, std::uint64_t count) {
  std::string bytes;
  for (std::uint64_t k = 0; k < count; ++k) {
    const auto value = static_cast<std::uint32_t>(first * 1000 + k);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

/// Data sets, made once and used by all chains.
class LengthShelf {
 public:
  LengthShelf() {
    Dice dice(1);
    for (const std::size_t size : {0U, 1U, 2U, 6U, 13U, 40U, 90U}) {
      for (const std::uint64_t percent_bad : {0U, 0U, 6U, 30U}) add(size, percent_bad, dice);
    }
  }
  const WrittenSet& any(Dice& dice) const { return sets_[dice.below(sets_.size())]; }

 private:
  static std::uint64_t draw_length(Dice& dice) {
    if (dice.percent(10)) return 0;
    return dice.percent(10) ? 30 + dice.below(40) : 1 + dice.below(12);
  }

  void add(std::size_t size, std::uint64_t percent_bad, Dice& dice) {
    WrittenSet made;
    std::vector<test::Fields> all;
    for (std::size_t i = 0; i < size; ++i) {
      const std::string number = std::to_string(i);
      Written sample;
      sample.key = "s" + std::string(5 - number.size(), '0') + number;
      sample.txt = std::string(draw_length(dice), 'x');
      const std::uint64_t tokens = draw_length(dice);
      sample.tok = int32s(i, tokens);
      sample.n = tokens;
      // The first sample has the field: the loader refuses a field that no sample has.
      if (i == 0 || dice.percent(30)) sample.alt = std::string(draw_length(dice), 'y');
      if (dice.percent(percent_bad)) {
        const std::uint64_t kind = dice.below(3);
        if (kind == 0) sample.has_number = false;
        if (kind == 1 && i > 0) sample.tok.reset();
        if (kind == 2) sample.tok->push_back('?');
      }
      test::Fields fields{{"txt", sample.txt},
                          {"cls", sample.has_number ? std::to_string(i) : "?"},
                          {"num", std::to_string(static_cast<double>(tokens) - 0.25)}};
      if (tokens == 0) fields.back().second = "0";
      if (sample.alt) fields.emplace_back("alt", *sample.alt);
      if (sample.tok) fields.emplace_back("tok", *sample.tok);
      all.push_back(std::move(fields));
      made.samples.push_back(std::move(sample));
    }
    const bool is_empty = all.empty();
    if (is_empty) all.push_back({{"num", "1"}});
    const std::string name = "set" + std::to_string(sets_.size());
    test::make_dataset(dir_, name, all, 9);
    std::vector<std::string> shards;
    for (std::size_t first = 0; first < all.size(); first += 9) {
      shards.push_back(dir_ / (name + "-" + std::to_string(shards.size()) + ".tar"));
    }
    const std::string index = dir_ / (name + "-n.idx");
    build_index(index, shards, {.content = {.columns = {parse_column("n=num")}}});
    made.data = Dataset::open(index);
    if (is_empty) made.data = made.data->subset(std::vector<std::uint64_t>{});
    sets_.push_back(std::move(made));
    if (size > 2) add_view(dice);
  }

  /// Adds a view of some samples of the last data set.
  void add_view(Dice& dice) {
    const WrittenSet& whole = sets_.back();
    WrittenSet made;
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t i = 0; i < whole.samples.size(); ++i) {
      if (dice.percent(40)) continue;
      numbers.push_back(i);
      made.samples.push_back(whole.samples[i]);
    }
    made.data = whole.data->subset(numbers);
    sets_.push_back(std::move(made));
  }

  test::TempDir dir_;
  std::vector<WrittenSet> sets_;
};

const LengthShelf& length_shelf() {
  static const LengthShelf made;
  return made;
}

class LengthChain : public test::LoaderChain {
 public:
  LengthChain(std::uint64_t seed, std::ostream* log, test::Tally& tally)
      : LoaderChain(seed, log, tally) {
    std::vector<Dataset> parts;
    for (std::uint64_t i = draw_num_parts(); i > 0; --i) {
      const WrittenSet& set = length_shelf().any(dice_);
      samples_.insert(samples_.end(), set.samples.begin(), set.samples.end());
      parts.push_back(*set.data);
    }
    data_.emplace(std::move(parts));
    draw_order();
    Order whole = order_;
    whole.skip = {};
    positions_ = make_sampler(*data_, whole);
    draw_rule();
    draw_world();
  }

 private:
  /// A window of the current epoch. In its batches, a sample is its number in the window. A sample
  /// that was held over from an earlier window has a negative number, modulo 2^64.
  struct Window {
    std::uint64_t first = 0;  // position of the window's first sample
    std::vector<PlacedBatch> batches;
  };

  // ------------------------------------------------------------------------------------ setting up

  void draw_order() {
    order_.seed = dice_.number();
    const std::uint64_t n = data_->size();
    const Chunked chunked{.chunk_size = 1 + dice_.below(n + 2),
                          .window = 1 + dice_.below(3),
                          .phase = dice_.percent(20)};
    if (!draw_mixture(chunked)) {
      draw_kind(chunked);
      if (n > 0 && dice_.percent(15)) order_.epoch_size = 1 + dice_.below(2 * n);
      if (dice_.percent(15)) order_.streams = 2;
    }
    add_to_skip(10);
  }

  void add_to_skip(std::uint64_t chance) {
    if (data_->empty()) return;
    if (dice_.percent(chance)) skip_samples();
    if (dice_.percent(chance)) {
      const std::uint64_t begin = dice_.below(length() + 1);
      order_.skip.add_positions(dice_.below(3), begin, begin + dice_.below(20));
    }
  }

  void draw_rule() {
    rule_ = {};
    batch_size_ = dice_.one_of({1U, 2U, 3U, 5U, 8U, 64U});
    rule_.window = dice_.one_of({1U, 2U, 7U, 16U, 30U, 100U, 8192U});
    if (dice_.percent(30)) {
      rule_.column = "n";
    } else {
      rule_.field = dice_.one_of({"txt", "tok", "alt", "alt;txt", "none;txt", "tok;txt"});
      rule_.unit = dice_.one_of({1U, 1U, 4U, 7U, 1000U});
    }
    if (dice_.percent(40)) rule_.max_tokens = dice_.one_of({1U, 5U, 20U, 64U, 1000000U});
    if (dice_.percent(30)) {
      if (rule_.column.empty()) {
        rule_.field = "tok";
        rule_.unit = 4;
      }
      rule_.max_tokens = 0;
      rule_.pack = "tok";
      rule_.pack_to = 1 + dice_.below(40);
      rule_.padding = dice_.one_of({0, -1, 7});
      while (batch_size_ * rule_.pack_to < 71) ++batch_size_;  // 71 is the longest sequence
    }
    groups_.reset();
    has_lengths_ = true;
    if (rule_.pack_to == 0 && dice_.percent(50)) draw_groups();
    lengths_.clear();
    for (const Written& sample : samples_) {
      lengths_.push_back(has_lengths_ ? length_of(sample) : 0);
    }
    say(rule_text());
  }

  void draw_groups() {
    using Group = Loader::ByGroup::Group;
    groups_ = Loader::ByGroup{};
    groups_->window = rule_.window;
    groups_->expression =
        dice_.one_of({"substr(key, -1)", "CASE WHEN n > 6 THEN 'long' ELSE 'short' END -- ", "7"});
    groups_->leftovers = dice_.percent(60) ? Loader::ByGroup::Leftovers::kHoldOver
                                           : Loader::ByGroup::Leftovers::kSmallerBatch;
    has_lengths_ = dice_.percent(40);
    if (!has_lengths_) rule_.max_tokens = 0;
    std::set<std::string> keys;
    for (const Written& sample : samples_) keys.insert(key_of(sample));
    if (keys.empty()) keys.insert("");
    group_keys_.assign(keys.begin(), keys.end());
    group_sizes_.assign(keys.size(), batch_size_);
    if (dice_.percent(60)) {
      for (std::size_t i = group_keys_.size(); i > 1; --i) {
        std::swap(group_keys_[i - 1], group_keys_[dice_.below(i)]);
      }
      for (std::size_t i = 0; i < group_keys_.size(); ++i) {
        const std::uint64_t size = dice_.one_of({0U, 1U, 2U, 4U, 9U, 70U});
        groups_->groups.push_back(Group{.key = group_keys_[i], .batch_size = size});
        if (size > 0) group_sizes_[i] = size;
      }
    }
  }

  /// Returns the key of the sample's group.
  std::string key_of(const Written& sample) const {
    if (groups_->expression == "7") return "7";
    if (groups_->expression.starts_with("substr")) return sample.key.substr(sample.key.size() - 1);
    return sample.n > 6 ? "long" : "short";  // the column is n - 0.25
  }
  std::uint64_t group_of(std::uint64_t sample) const {
    if (!groups_) return 0;
    const auto found = std::ranges::find(group_keys_, key_of(samples_[sample]));
    return static_cast<std::uint64_t>(found - group_keys_.begin());
  }

  std::uint64_t length_of(const Written& sample) const {
    if (!rule_.column.empty()) return sample.n;
    std::istringstream names(rule_.field);
    for (std::string name; std::getline(names, name, ';');) {
      std::optional<std::string> bytes;
      if (name == "txt") bytes = sample.txt;
      if (name == "alt") bytes = sample.alt;
      if (name == "tok") bytes = sample.tok;
      if (bytes) return (bytes->size() + rule_.unit - 1) / rule_.unit;
    }
    return 0;
  }

  std::string rule_text() const {
    std::string text;
    if (groups_) {
      std::string bytes;
      for (std::uint64_t sample = 0; sample < samples_.size(); ++sample) {
        bytes += test::words_of({group_of(sample)}).substr(0, 2);
      }
      text = "groups (hash " + std::to_string(hash64(bytes)) + "), batch_sizes";
      for (const std::uint64_t size : group_sizes_) text += " " + std::to_string(size);
      text += groups_->leftovers == Loader::ByGroup::Leftovers::kHoldOver ? ", held over, "
                                                                          : ", not held over, ";
    }
    if (has_lengths_ && rule_.column.empty()) {
      text += "field " + rule_.field + ", unit " + std::to_string(rule_.unit) + ", ";
    } else if (has_lengths_) {
      std::string bytes;
      for (const std::uint64_t length : lengths_) bytes += test::words_of({length});
      text += "column n (hash " + std::to_string(hash64(bytes)) + "), ";
    }
    text += "window " + std::to_string(rule_.window);
    if (!groups_) text += ", batch_size " + std::to_string(batch_size_);
    if (has_lengths_) text += ", max_tokens " + std::to_string(rule_.max_tokens);
    if (rule_.pack_to > 0) text += ", pack_to " + std::to_string(rule_.pack_to);
    return text;
  }

  /// Makes new loaders, at the beginning of epoch 0.
  void draw_world() {
    ranks_.clear();  // destroys the old loaders, whatever they are doing
    replicas_ = dice_.percent(15) ? 2 : 1;
    max_bad_ = dice_.percent(30) ? 0 : dice_.one_of({1U, 3U, 1000U, 1000U, 1000U});
    const std::uint64_t shares = order_.streams == 2 ? dice_.one_of({1U, 2U, 4U})
                                                     : dice_.one_of({1U, 1U, 1U, 2U, 3U, 5U, 7U});
    Loader::Options options;
    options.columns = {columns::tokens("tok"), columns::integer("cls"), columns::key(),
                       columns::text("txt")};
    options.batch_size = batch_size_;
    if (has_lengths_) options.by_length = rule_;
    options.by_group = groups_;
    add_to_skip(8);
    make_ranks(shares, options);
    skip_ = order_.skip;
    move_to(0, 0, {});
  }

  // ---------------------------------------------------------------------------------- the model

  std::uint64_t epoch() const override { return epoch_; }
  std::uint64_t num_batches() const { return dealt_.size(); }
  std::uint64_t steps() const override {
    return (num_batches() - first_ + shares() - 1) / shares();
  }
  std::string sample_key(std::uint64_t sample) const override { return samples_[sample].key; }
  std::uint64_t sample_at(std::uint64_t position) const { return samples_at_[position]; }

  /// Moves the model to the point after the first `first` batches of an epoch.
  void move_to(std::uint64_t epoch, std::uint64_t first, Ledger ledger) {
    make_epoch(epoch);
    first_ = first;
    delivered_before_ = ledger;
    begin_piece(std::move(ledger));
  }

  void make_epoch(std::uint64_t epoch) {
    epoch_ = epoch;
    samples_at_.clear();
    positions_->set_epoch(epoch);
    for (std::uint64_t p = 0; p < length(); ++p) samples_at_.push_back(positions_->at(p));
    const std::uint64_t seed = std::holds_alternative<Sequential>(order_.kind) ? 0 : order_.seed;
    windows_.clear();
    dealt_.clear();
    std::vector<std::uint64_t> held_over;  // positions
    for (std::uint64_t w = 0; w * rule_.window < length(); ++w) {
      Window window{.first = w * rule_.window, .batches = {}};
      std::vector<std::uint64_t> positions = std::exchange(held_over, {});
      for (std::uint64_t p = window.first; p < end_of(w); ++p) positions.push_back(p);
      std::vector<std::uint64_t> lengths;
      test::ModelGroups groups{{}, {batch_size_}};
      if (groups_) groups.batch_sizes = group_sizes_;
      for (const std::uint64_t p : positions) {
        lengths.push_back(lengths_[sample_at(p)]);
        groups.of_sample.push_back(group_of(sample_at(p)));
      }
      groups.holds_over = groups_ && end_of(w) < length() &&
                          groups_->leftovers == Loader::ByGroup::Leftovers::kHoldOver;
      const Hash128 key = test::model_key(seed, epoch, 14, w);
      window.batches = rule_.pack_to > 0
                           ? test::model_packed(lengths, batch_size_, rule_.pack_to, key)
                           : test::model_grouped(lengths, groups, rule_.max_tokens, key, held_over);
      for (std::uint64_t& place : held_over) place = positions[place];
      for (PlacedBatch& batch : window.batches) {
        for (Placed& placed : batch) placed.number = positions[placed.number] - window.first;
      }
      for (std::uint64_t i = 0; i < window.batches.size(); ++i) dealt_.emplace_back(w, i);
      windows_.push_back(std::move(window));
    }
  }

  std::uint64_t end_of(std::uint64_t window) const {
    return std::min((window + 1) * rule_.window, length());
  }

  bool is_left_out(const SkipList& skip, std::uint64_t epoch, std::uint64_t position) const {
    for (const auto& [range, end] : skip.ranges()) {
      if (range.first == epoch && range.second <= position && position < end) return true;
    }
    const auto found = skip.samples().find(sample_at(position));
    return found != skip.samples().end() && found->second.from <= SkipList::Point{epoch, position};
  }

  /// Returns the samples of the epoch's first `count` batches, without those that are left out.
  Ledger due(std::uint64_t count, const SkipList& skip) const {
    Ledger ledger;
    for (std::uint64_t i = 0; i < count; ++i) {
      for (const Placed& placed : batch(i)) {
        const std::uint64_t position = windows_[dealt_[i].first].first + placed.number;
        if (!is_left_out(skip, epoch_, position)) ++ledger[sample_at(position)];
      }
    }
    return ledger;
  }
  /// Returns the samples that all runs of this epoch together must deliver, without the bad ones
  /// found so far.
  Ledger expected_ledger() const {
    Ledger ledger = due(num_batches(), skip_);
    for (std::size_t r = 0; r < ranks_.size(); r += replicas_) {
      for (const auto& [sample, point] : ranks_[r].found) {
        if (--ledger[sample] == 0) ledger.erase(sample);
      }
    }
    return ledger;
  }
  static std::uint64_t count_of(const Ledger& ledger) {
    std::uint64_t count = 0;
    for (const auto& [sample, times] : ledger) count += times;
    return count;
  }
  const PlacedBatch& batch(std::uint64_t i) const {
    return windows_[dealt_[i].first].batches[dealt_[i].second];
  }

  void model_set_epoch(std::uint64_t epoch) override {
    if (first_ > 0 && epoch == epoch_ && !has_ended()) {
      return move_to(epoch, first_,
                     Ledger(delivered_before_));  // back to the point of the last restore()
    }
    skip_.merge(agreed_);
    skip_.merge_from(order_.skip, {epoch, 0});
    move_to(epoch, 0, {});
  }

  SkipList all_left_out() const {
    SkipList all = skip_;
    all.merge(agreed_);
    return all;
  }

  // ---------------------------------------------------------------------------------- operations

  void op() override {
    const std::uint64_t what = dice_.below(100);
    if (what < 50) return step();
    if (what < 62) return save();
    if (what < 72) return restore();
    if (what < 78) return forge();
    if (what < 83) return prove();
    if (what < 88) return set_epoch(dice_.percent(60) ? epoch_ + 1 : dice_.below(4));
    if (what < 90) return stop();
    if (what < 91) return race_to_stop();
    if (what < 92) return start();
    if (what < 94) return go_on_with_epochs();
    say("other loaders");
    if (dice_.percent(20)) draw_rule();
    draw_world();
  }

  Rows rows_of(std::size_t r) const override {
    Rows rows;
    const std::uint64_t number = first_ + taken_ * shares() + r / replicas_;
    if (number >= num_batches()) return rows;
    for (const Placed& placed : batch(number)) {
      const std::uint64_t position = windows_[dealt_[number].first].first + placed.number;
      if (is_left_out(skip_, epoch_, position)) continue;
      const Row row{sample_at(position), position, placed.start};
      (samples_[row.sample].is_bad() ? rows.bad : rows.good).push_back(row);
    }
    return rows;
  }

  void check_batch(const Batch& batch, const std::vector<Row>& rows) override {
    const bool has_group = groups_ && !rows.empty();
    must_equal(batch.group(), has_group ? key_of(samples_[rows[0].sample]) : std::string(),
               "the group");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Written& sample = samples_[rows[i].sample];
      must_equal(batch["txt"].text(i), std::string_view(sample.txt), "a text");
      if (rule_.pack_to == 0) must(batch["tok"].text(i) == *sample.tok, "other tokens");
    }
    if (rule_.pack_to > 0) check_packed(batch, rows);
  }

  void check_packed(const Batch& batch, const std::vector<Row>& rows) {
    const std::uint64_t num_rows = rows.empty() ? 0 : batch_size_;
    const std::uint64_t size = num_rows * rule_.pack_to;
    std::vector<std::int32_t> tokens(size, static_cast<std::int32_t>(rule_.padding));
    std::vector<std::int32_t> positions(size);
    std::vector<std::int32_t> segments(size);
    std::map<std::uint64_t, const Row*> by_start;  // sequences without tokens have no position
    for (const Row& row : rows) {
      if (!samples_[row.sample].tok->empty()) by_start[row.start] = &row;
    }
    std::map<std::uint64_t, std::int32_t> sequences;  // row of tokens -> number of sequences in it
                                                      // so far
    for (const auto& [start, row] : by_start) {
      const std::string& bytes = *samples_[row->sample].tok;
      std::uint64_t last_row = ~std::uint64_t{0};
      for (std::uint64_t k = 0; k < bytes.size() / 4; ++k) {
        const std::uint64_t at = start + k;
        if (at / rule_.pack_to != last_row) ++sequences[last_row = at / rule_.pack_to];
        std::memcpy(&tokens[at], &bytes[4 * k], 4);
        positions[at] = static_cast<std::int32_t>(k);
        segments[at] = sequences[last_row];
      }
    }
    const auto same = [&](const char* name, const std::vector<std::int32_t>& expected) {
      const Batch::Array& array = batch[name];
      const std::vector<std::int64_t> shape{static_cast<std::int64_t>(num_rows),
                                            static_cast<std::int64_t>(rule_.pack_to)};
      must(array.shape() == shape, std::string(name) + " has another shape");
      const auto values = array.values<std::int32_t>();
      for (std::size_t i = 0; i < size; ++i) {
        must_equal(values[i], expected[i], std::string(name) + " at " + std::to_string(i));
      }
    };
    same("tok", tokens);
    same("tok_positions", positions);
    same("tok_segments", segments);
  }

  /// The epoch can be proven before all batches were taken, if all samples of the remaining batches
  /// are left out.
  std::optional<ErrorCode> error_of_proof() const override {
    const bool can_be_proven = ledger_ == expected_ledger() && !data_->empty();
    return can_be_proven ? std::nullopt : std::optional(ErrorCode::kNotExact);
  }
  std::optional<ErrorCode> error_at_end() const override { return error_of_proof(); }

  void check_proof(const std::string& text) const override {
    const std::uint64_t count = count_of(ledger_);
    const std::string begin = "epoch " + std::to_string(epoch_) + ": " + std::to_string(count) +
                              (count == 1 ? " sample" : " samples");
    // After the count comes ", each ..." or " drawn ...".
    must((text.starts_with(begin + ",") || text.starts_with(begin + " ")) &&
             text.ends_with(": proven"),
         text + ", not " + begin);
  }

  void check_token(const ResumeToken& token, std::uint64_t done, bool at_end) const override {
    const std::uint64_t reached = first_ + done * shares();
    must_equal(token.epoch, epoch_ + (at_end ? 1 : 0), "the token's epoch");
    check_points(token.skip, all_left_out(), "what the token leaves out");
    if (at_end || reached == 0) {
      must_equal(token.position, std::uint64_t{0}, "the token's position");
      must(!token.batches.has_value(), "a rule at the beginning of an epoch");
      return;
    }
    const auto [window, delivered] = dealt_[reached];
    must_equal(token.position, windows_[window].first, "the token's position");
    must(token.batches.has_value(), "no rule");
    must_equal(token.batches->delivered, delivered, "batches delivered");
    must_equal(token.batches->rule, rule_text(), "the rule");
  }

  /// Returns the number of the epoch's batches before a token; nullopt if the token's point does
  /// not exist.
  /// REQUIRES: the model is in the token's epoch.
  std::optional<std::uint64_t> batches_before(const ResumeToken& token) const {
    if (token.position == 0 && !token.batches) return 0;
    if (!token.batches || token.batches->rule != rule_text()) return std::nullopt;
    const std::uint64_t window = token.position / rule_.window;
    if (token.position % rule_.window != 0) return std::nullopt;
    // The end of the epoch. A loader's token after the last batch is in the next epoch.
    if (token.position == length() && token.batches->delivered == 0) return num_batches();
    if (window >= windows_.size()) return std::nullopt;
    if (token.batches->delivered > windows_[window].batches.size()) return std::nullopt;
    std::uint64_t before = token.batches->delivered;
    for (std::uint64_t w = 0; w < window; ++w) before += windows_[w].batches.size();
    return before;
  }

  /// Returns true if all samples of the windows before a token are held over, so that no batch is
  /// before it. Only a forged token is like this: a loader's token before the first batch has
  /// position 0.
  bool is_before_all_batches(const ResumeToken& token) {
    const std::uint64_t was_at = epoch_;
    make_epoch(token.epoch);
    const bool is_before = batches_before(token) == std::optional<std::uint64_t>(0);
    make_epoch(was_at);
    return is_before;
  }

  void restore() {
    if (saved_.empty()) return;
    if (dice_.percent(60)) {
      if (dice_.percent(10)) draw_rule();
      draw_world();
    }
    const Saved& saved = saved_[dice_.below(saved_.size())];
    go_on_from(saved.token, saved.ledger);
  }

  /// @return  true if the loaders accepted the token.
  bool go_on_from(const ResumeToken& token, const Ledger& ledger) {
    say("restore epoch " + std::to_string(token.epoch) + ", position " +
        std::to_string(token.position) +
        (token.batches ? ", " + std::to_string(token.batches->delivered) + " delivered of " +
                             token.batches->rule
                       : ""));
    const std::uint64_t was_at = epoch_;
    make_epoch(token.epoch);
    const auto before = batches_before(token);
    const bool is_within = before.value_or(0) > 0;
    const auto due_before = before ? due(*before, token.skip) : Ledger{};
    const std::uint64_t said = token.audit ? token.audit->count : 0;
    const bool is_taken = before && said == count_of(due_before);
    // If all batches are delivered, restore() proves the epoch and begins the next one.
    const bool is_through = is_taken && is_within && *before == num_batches();
    const bool is_proven = !is_through || ledger == due_before;
    for (Rank& rank : ranks_) {
      try {
        rank.loader->restore(ResumeToken::from_text(token.to_text()));
        must(is_taken && is_proven, "a token was taken that cannot be");
      } catch (const Mismatch& error) {
        must(!is_taken, error.what());
      } catch (const NotExact& error) {
        must(is_taken && !is_proven, error.what());
      } catch (const OutOfRange& error) {
        must(!is_taken && token.position > length(), error.what());
      }
    }
    if (!is_taken || !is_proven) {
      make_epoch(was_at);
      ++tally_["refused"];
      return false;
    }
    SkipList::Point from{token.epoch, token.position};
    if (token.batches) from.position += rule_.window;
    skip_ = token.skip;
    skip_.merge_from(order_.skip, from);
    if (is_through) {
      move_to(token.epoch + 1, 0, {});
    } else {
      move_to(token.epoch, *before, is_within ? ledger : Ledger{});
      // A loop over epochs also sets the current epoch.
      if (is_within && dice_.percent(40)) set_epoch(token.epoch);
    }
    ++tally_["resumes"];
    return true;
  }

  /// Modifies a token. The loaders must refuse it, or prove the epoch only if the token is true.
  void forge() {
    if (saved_.empty()) return;
    const Saved& saved = saved_[dice_.below(saved_.size())];
    ResumeToken token = saved.token;
    Ledger ledger = saved.ledger;
    switch (dice_.below(11)) {
      case 0:
        if (token.batches) token.batches->delivered = dice_.below(token.batches->delivered + 3);
        break;
      case 1:
        if (token.batches) token.batches->delivered = dice_.number();
        break;
      case 2:
        token.position = dice_.below(length() + 3);
        break;
      case 3:
        token.position = rule_.window * dice_.below(4);
        break;
      case 4:
        token.batches.reset();
        break;
      case 5:
        if (token.audit) token.audit->count += dice_.one_of({1U, ~0U});
        break;
      case 6:
        token.audit.reset();
        break;
      case 7:
        if (token.batches) token.batches->rule += " ";
        break;
      case 8:
        if (token.audit) {
          token.audit->hashes.low ^= 1;
          ledger[~std::uint64_t{0}] = 1;  // a delivery that never happened
        }
        break;
      case 9:
        if (!data_->empty()) token.skip.add_sample(dice_.below(data_->size()), "forged");
        break;
      default:
        if (token.position > 0) token.epoch += 1;
    }
    if (token.position > 0 && is_before_all_batches(token)) return;
    say("forged");
    ++tally_["forged"];
    tally_["forged and taken"] += go_on_from(token, ledger) ? 1 : 0;
  }

  std::vector<Written> samples_;
  std::unique_ptr<Sampler> positions_;  // the order of one rank, without a skip list

  Loader::ByLength rule_;  // the window applies to batches by group too
  bool has_lengths_ = true;
  std::optional<Loader::ByGroup> groups_;
  std::vector<std::string> group_keys_;     // by the number of the group
  std::vector<std::uint64_t> group_sizes_;  // batch sizes
  std::uint64_t batch_size_ = 1;
  std::vector<std::uint64_t> lengths_;  // each sample's length, as the rule measures it

  std::uint64_t epoch_ = 0;
  std::vector<std::uint64_t> samples_at_;  // sample at each position
  std::vector<Window> windows_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> dealt_;  // (window, number of its batch)
  std::uint64_t first_ = 0;  // number of the epoch's first batch for these loaders
  SkipList skip_;            // the skip list from that batch on
  Ledger delivered_before_;  // deliveries of this epoch before that batch
};

// The example in docs/formats/length-batches.md.
TEST(LengthChainTest, TheModelIsThatOfTheSpecification) {
  const std::vector<std::uint64_t> lengths{5, 1, 9, 3, 3, 7, 0, 2};
  const Hash128 key = test::model_key(17, 2, 14, 4);
  const auto text = [](const std::vector<PlacedBatch>& batches) {
    std::string all;
    for (const PlacedBatch& batch : batches) {
      for (const Placed& placed : batch) {
        all += std::to_string(placed.number) + "@" + std::to_string(placed.start) + " ";
      }
      all += "| ";
    }
    return all;
  };
  EXPECT_EQ(text(test::model_batches(lengths, 3, 0, key)),
            "5@0 2@0 | 6@0 1@0 7@0 | 3@0 4@0 0@0 | ");
  EXPECT_EQ(text(test::model_batches(lengths, 4, 9, key)),
            "5@0 | 2@0 | 0@0 | 6@0 1@0 7@0 | 3@0 4@0 | ");
  test::ModelGroups groups{{0, 1, 0, 1, 1, 0, 1, 0}, {2, 3}};
  std::vector<std::uint64_t> held_over;
  EXPECT_EQ(text(test::model_grouped(lengths, groups, 0, key, held_over)),
            "6@0 1@0 3@0 | 4@0 | 7@0 0@0 | 5@0 2@0 | ");
  groups.holds_over = true;
  EXPECT_EQ(text(test::model_grouped(lengths, groups, 0, key, held_over)),
            "6@0 1@0 3@0 | 7@0 0@0 | 5@0 2@0 | ");
  EXPECT_EQ(held_over, std::vector<std::uint64_t>{4});
  EXPECT_EQ(text(test::model_packed(lengths, 2, 8, key)),
            "4@0 7@3 1@5 | 2@0 5@9 6@16 | 0@0 3@5 | ");
}

TEST(LengthChainTest, WhateverIsDoneTheBatchesAreThoseOfTheModel) {
  test::run_chains_of<LengthChain>(100, 2000);
}

}  // namespace
}  // namespace shardwise
