// Compares orders, proofs and tokens of the library with a generator and a reader in Python, which
// were written from the pages of docs/formats alone. (tests/tools/specification_test.cc does the
// same for the command line.)

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <tuple>

#include "base/hasher.h"
#include "order/algorithms.h"
#include "order/arithmetic.h"
#include "order/deal.h"
#include "order/epoch_order.h"
#include "order/key.h"
#include "order/mixture_draws.h"
#include "order/mixture_schedule.h"
#include "order/order_test_support.h"
#include "order/permutation.h"
#include "order/weight_shares.h"
#include "order/weighted_draw.h"
#include "order/wids_sampler.h"
#include "shardwise/order/sample_key.h"
#include "support/chain.h"
#include "support/python.h"

namespace shardwise {
namespace {

using detail::Dealer;
using detail::mix64;
using detail::MixtureDraw;
using detail::MixtureDraws;
using detail::WeightedDraw;
using nlohmann::json;
using test::Questions;
using test::Samples;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

// Orders in the terms of the pages.

json json_of(const Chunked& kind) {
  return {{"chunk_size", kind.chunk_size}, {"window", kind.window}, {"phase", kind.phase}};
}
json json_of(const Sharded& kind) { return {{"window", kind.window}}; }
json json_of(const Sequential& /*kind*/) { return json::object(); }
json json_of(const Resampled& kind) {
  return {{"resample", kind.unit == Resampled::Unit::kShard ? "shard" : "sample"},
          {"weights", kind.weights}};
}
json json_of(const Wids& kind) {
  return {{"chunk_size", kind.chunk_size},
          {"shuffle", kind.shuffle},
          {"shufflefirst", kind.shufflefirst}};
}
json json_of(const Mixture& kind) {
  json parts = json::array();
  for (const Mixture::Part& part : kind.parts) {
    json one = {{"samples", part.num_samples}, {"weight", part.weight}};
    std::visit(
        [&](const auto& chosen) {
          one["sampler"] = name_of(chosen);
          one.update(json_of(chosen));
        },
        part.kind);
    parts.push_back(std::move(one));
  }
  json schedule = json::array();
  for (const Mixture::Change& change : kind.schedule) {
    schedule.push_back({{"from", change.from}, {"weights", change.weights}});
  }
  return {{"parts", std::move(parts)}, {"schedule", std::move(schedule)}};
}
json json_of(const Order& order) {
  json all = {{"sampler", name_of(order.kind)},
              {"seed", order.seed},
              {"streams", order.streams},
              {"tail", tail_name(order.tail)},
              {"balance_bytes", order.balance_bytes},
              {"epoch_size", order.epoch_size}};
  std::visit([&](const auto& kind) { all.update(json_of(kind)); }, order.kind);
  return all;
}
json json_of(const RankOptions& ranks) {
  return {{"rank", ranks.rank},
          {"world_size", ranks.world_size},
          {"batch_size", ranks.batch_size},
          {"global_batch_size", ranks.global_batch_size},
          {"replicas", ranks.replicas}};
}
json json_of(const EpochAudit::Sum& sum) {
  return {sum.count, to_string(sum.hashes), to_string(sum.numbers)};
}

/// The data over which an order is made.
struct Data {
  std::vector<std::uint64_t> lengths{};
  Hash128 fingerprint{};
  std::vector<std::uint64_t> sizes{};
  std::vector<double> column{};

  ShardOffsets starts() const { return test::offsets_of(lengths); }
  std::uint64_t size() const { return starts()->back(); }
  SampleSet samples() const {
    return SampleSet::of_shards(lengths)
        .with_fingerprint(fingerprint)
        .with_bytes([sizes = sizes](std::uint64_t sample) { return sizes[sample]; })
        .with_column([column = column](const std::string&) { return column; });
  }
  json to_json() const {
    return {{"n", size()},
            {"starts", *starts()},
            {"sizes", sizes},
            {"column", column},
            {"fingerprint", to_string(fingerprint)}};
  }
};

MixtureDraw drawn_at(const detail::MixtureSchedule& schedule, std::uint64_t slot) {
  std::uint32_t dataset = 0;
  std::uint64_t draw = 0;
  schedule.locate(slot, 1, {&dataset, 1}, {&draw, 1});
  return {dataset, draw};
}

TEST(SpecificationTest, GoldenVectorsFollowFromThePages) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  Questions all;
  // The values of KeyTest.
  const auto ask_key = [&](std::uint64_t seed, std::uint64_t epoch, KeyPurpose purpose,
                           std::uint64_t index) {
    all.ask({{"do", "key"}, {"of", {seed, epoch, static_cast<std::uint64_t>(purpose), index}}},
            to_string(derive_key(seed, epoch, purpose, index)));
  };
  ask_key(17, 3, KeyPurpose::kChunks, 5);
  ask_key(17, 3, KeyPurpose::kSample, 5);
  const Hash128 key = sample_key(17, 3, 5);
  ask_key(key.low, key.high, KeyPurpose::kSample, 9);
  ask_key(kMost, kMost, KeyPurpose::kPhase, kMost);
  // The values of PermutationTest.
  for (const std::uint64_t n : Samples{1, 2, 5, 8, 63, 64, 65, 100, 511, 512, 1000, 1000003}) {
    const Permutation permutation(n, {0x0123456789abcdef, 0xfedcba9876543210});
    Samples of;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(n, 70); ++i) of.push_back(i);
    json images = json::array();
    for (const std::uint64_t i : of) images.push_back(permutation(i));
    all.ask({{"do", "permutation"},
             {"n", n},
             {"key", {0x0123456789abcdefU, 0xfedcba9876543210U}},
             {"of", of}},
            images);
  }
  for (const std::uint64_t n : {std::uint64_t{1'000'000'000'000}, kMaxSamples - 1, kMaxSamples}) {
    const Permutation permutation(n, {kMost, kMost - 1});
    all.ask({{"do", "permutation"}, {"n", n}, {"key", {kMost, kMost - 1}}, {"of", {0, 1, n - 1}}},
            {permutation(0), permutation(1), permutation(n - 1)});
  }
  // The values of EpochOrderTest.
  const auto ask_pass = [&](const EpochOrder& order, json request, const Samples& of) {
    json found = json::array();
    for (const std::uint64_t p : of) found.push_back(order[p]);
    request["do"] = "pass";
    request["of"] = of;
    request["n"] = order.size();
    all.ask(std::move(request), std::move(found));
  };
  const auto ask_chunked = [&](std::uint64_t n, const Chunked& kind, std::uint64_t seed,
                               std::uint64_t pass, const Samples& of) {
    json kind_json = json_of(kind);
    kind_json["sampler"] = "chunked";
    ask_pass(EpochOrder::chunked(n, kind.chunk_size, {seed, pass, kind.window, kind.phase}),
             {{"kind", kind_json}, {"seed", seed}, {"number", pass}}, of);
  };
  for (const bool phase : {false, true}) {
    ask_chunked(23, {5, 1, phase}, 17, 3, test::first_numbers(23));
    ask_chunked(23, {5, 2, phase}, 17, 3, test::first_numbers(23));
    ask_chunked(23, {5, 1, phase}, 17, 4, test::first_numbers(23));
    ask_chunked(8, {100, 1, phase}, 17, 3, test::first_numbers(8));
    ask_chunked(1'000'000'000'000, {1000, 8, phase}, 17, 3,
                {0, 1, 123'456'789'012, 999'999'999'999});
    ask_chunked(kMaxSamples, {kMost, kMost, phase}, kMost, kMost, {0, 1, kMaxSamples - 1});
    ask_chunked(kMaxSamples, {1, 3, phase}, 1, 2, {0, 1, kMaxSamples - 1});
  }
  for (const std::uint64_t window : Samples{1, 2, 5, 9}) {
    ask_pass(EpochOrder::sharded(test::offsets_of({3, 0, 7, 2, 5}), {17, 3, window}),
             {{"kind", {{"sampler", "sharded"}, {"window", window}}},
              {"starts", {0, 3, 3, 10, 12, 17}},
              {"seed", 17},
              {"number", 3}},
             test::first_numbers(17));
  }
  // The values of WeightSharesTest, WeightedDrawTest and MixtureDrawsTest.
  using Weights = std::vector<double>;
  const auto ask_shares = [&](const Weights& weights, std::uint64_t whole) {
    all.ask({{"do", "shares"}, {"weights", weights}, {"whole", whole}},
            detail::weight_shares(weights, whole, "sample"));
  };
  ask_shares({1, 1, 1}, std::uint64_t{1} << 40);
  ask_shares({0.1, 0, 1e-300, 123.456}, std::uint64_t{1} << 62);
  ask_shares({5e-324, 1e-310, 0}, std::uint64_t{1} << 62);
  ask_shares(Weights(1000, 1.7e308), std::uint64_t{1} << 62);
  ask_shares({1.9, 1.9, 1e-5 / 3, 1e-6 / 7, 1e-7 / 9, 1e-8 / 11}, std::uint64_t{1} << 62);
  const Weights weights{5, 1, 0, 2.5, 1e-12, 40, 3};
  const WeightedDraw draw(weights);
  Samples uniform;
  for (std::uint64_t i = 0; i < 16; ++i) uniform.push_back(mix64(i + 1));
  uniform.insert(uniform.end(), {0, kMost});
  json drawn = json::array();
  for (const std::uint64_t u : uniform) drawn.push_back(draw(u));
  drawn.push_back(draw.digest());
  all.ask({{"do", "draws"}, {"weights", weights}, {"of", uniform}}, drawn);
  for (const Weights& of_columns : {Weights{1, 1, 1}, Weights{2, 1, 1, 0}, Weights{0, 3, 0}}) {
    const WeightedDraw small(of_columns);
    json few = json::array();
    for (const std::uint64_t u : uniform) few.push_back(small(u));
    few.push_back(small.digest());
    all.ask({{"do", "draws"}, {"weights", of_columns}, {"of", uniform}}, few);
  }
  for (const Weights& of_mixture :
       {Weights{5, 1, 2.5}, Weights{1}, Weights{0, 1}, Weights{1, 0, 0, 1e-30, 0},
        Weights{0.1, 0.7, 3, 0.33, 1.9, 0.01, 7, 5, 0.6, 0.2, 0.9, 11, 1e-9}}) {
    const MixtureDraws draws(of_mixture, 17);
    Samples slots = test::first_numbers(600);
    slots.insert(slots.end(), {1'000'000'000'000, MixtureDraws::kMaxSlots - 1});
    for (std::uint64_t i = 1; i <= 20; ++i) slots.push_back(MixtureDraws::kMaxSlots / 20 * i - 1);
    json found = json::array();
    for (const std::uint64_t slot : slots) {
      found.push_back({draws.at(slot).dataset, draws.at(slot).draw});
    }
    all.ask({{"do", "mixture"}, {"weights", of_mixture}, {"seed", 17}, {"of", slots}}, found);
  }
  // The values of MixtureScheduleTest.
  const Mixture changed{
      {{.weight = 3}, {.weight = 1}},
      {{256, {1, 3}}, {1000, {0, 1}}, {2000, {5, 1}}, {1'000'000'000'000, {1, 0}}}};
  Samples slots = test::first_numbers(2600);
  slots.insert(slots.end(), {999'999'999'999, 1'000'000'000'256, MixtureDraws::kMaxSlots - 1});
  const detail::MixtureSchedule schedule(changed, 17);
  json found = json::array();
  for (const std::uint64_t slot : slots) {
    const MixtureDraw at = drawn_at(schedule, slot);
    found.push_back({at.dataset, at.draw});
  }
  all.ask({{"do", "mixture"},
           {"weights", {3, 1}},
           {"schedule", json_of(changed)["schedule"]},
           {"seed", 17},
           {"of", slots}},
          found);
  // The values of DealerTest.
  const auto ask_deal = [&](std::uint64_t world, std::uint64_t step, const Samples& sizes) {
    std::vector<std::uint32_t> ranks(sizes.size());
    Dealer(world).deal(step, sizes, ranks);
    all.ask({{"do", "deal"}, {"world", world}, {"step", step}, {"sizes", sizes}}, ranks);
  };
  ask_deal(3, 0, {5, 1, 9, 3, 3, 7});
  ask_deal(3, 1, {5, 1, 9, 3, 3, 7});
  ask_deal(3, 7, {5, 1, 9, 3, 3, 7, 0, 2});
  ask_deal(8, 2, {30, 20, 10});
  ask_deal(4, 5, Samples(8, 100));
  ask_deal(std::uint64_t{1} << 31, 3, {7, 8, 9});
  Samples sizes;
  for (std::uint64_t i = 0; i < 32; ++i) sizes.push_back((i * i * i * 7919 + 17) % 100'003);
  ask_deal(4, 123, sizes);
  for (std::uint64_t& size : sizes) size <<= 46;
  ask_deal(4, 123, sizes);
  sizes[7] = kMost;
  ask_deal(4, 124, sizes);
  sizes.assign(1, 4'096'000);
  for (std::uint64_t i = 1; i < 60; ++i) sizes.push_back(i * 7919 % 3000);
  ask_deal(4, 1, sizes);
  for (std::uint64_t& size : sizes) size = (size << 20) + 0xfffff;
  ask_deal(4, 1, sizes);
  sizes.assign(30, 1);  // one rank waits while another has a huge sample
  sizes[0] = 3 * 1024 * 1000;
  sizes[1] = 1500;
  ask_deal(3, 0, sizes);
  const std::uint64_t large = std::uint64_t{1} << 40;  // these are equal after scaling
  ask_deal(4, 0, {large - 2, large - 1, 2 * large - 1, 7});
  // SamplerTest: a pad repeats a sample that is not left out by the end of the epoch, if there is
  // one.
  Order padded{.kind = Sequential{}, .tail = Order::Tail::kPad};
  const auto ask_padded = [&](std::uint64_t n, std::uint64_t world) {
    json skipped = json::array();
    for (const auto& [sample, entry] : padded.skip.samples()) {
      skipped.push_back({sample, entry.from.epoch, entry.from.position, entry.reason});
    }
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      all.ask({{"do", "samples"},
               {"order", json_of(padded)},
               {"data", {{"n", n}, {"fingerprint", "0"}}},
               {"ranks", {{"world_size", world}, {"rank", rank}}},
               {"skip_samples", skipped}},
              test::delivered(*make_sampler(n, padded, {.rank = rank, .world_size = world})));
    }
  };
  padded.skip.add_sample(0, "", {0, 5});
  ask_padded(10, 4);
  padded.skip = {};
  padded.skip.add_sample(0, "", {0, 2});
  padded.skip.add_sample(1, "", {0, 2});
  ask_padded(2, 3);
  // SkipListTest: repeated entries, and adjacent ranges.
  Order order{.kind = Wids{}};
  json request{{"do", "make_token"},
               {"data", {{"n", 10}, {"fingerprint", "0"}}},
               {"ranks", {{"world_size", 2}}},
               {"after_steps", 0},
               {"order", json_of(order)}};
  all.ask(request, WidsSampler(10, order, {.world_size = 2}).token().to_text());
  request["ranks"] = {{"world_size", 1}};
  all.ask(request, WidsSampler(10, order).token().to_text());
  request["ranks"] = {{"world_size", 4}, {"global_batch_size", 7}};
  request["after_steps"] = 1;
  request["data"]["n"] = 6;
  all.ask(
      request,
      WidsSampler(6, order, {.world_size = 4, .global_batch_size = 7}).token_after(1).to_text());
  request["data"]["n"] = 2100;
  request["ranks"] = {{"world_size", 1}};
  request["epoch"] = 1;
  request["do"] = "samples";
  all.ask(request, test::delivered(test::at_epoch(WidsSampler(2100, order), 1)));
  request = {{"do", "make_token"},
             {"data", {{"n", 10}, {"fingerprint", "0"}}},
             {"ranks", {{"world_size", 1}}},
             {"after_steps", 0}};
  order.kind = Sequential{};
  request["order"] = json_of(order);
  using Point = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::string>;
  for (const auto& [sample, epoch, slot, reason] :
       {Point{3, 2, 0, "late"}, Point{3, 0, 5, "early"}, Point{3, 0, 5, "the same"},
        Point{4, 0, 1, "first"}, Point{4, 0, 1, "second"}, Point{4, 3, 0, "later"}}) {
    order.skip.add_sample(sample, reason, {epoch, slot});
    request["skip_samples"].push_back({sample, epoch, slot, reason});
  }
  using Range = std::array<std::uint64_t, 3>;
  for (const Range& range : {Range{1, 2, 4}, Range{1, 4, 6}, Range{1, 8, 9}, Range{1, 7, 7},
                             Range{0, 1, 3}, Range{0, 0, 9}, Range{2, 5, 6}}) {
    order.skip.add_positions(range[0], range[1], range[2]);
    request["skip_ranges"].push_back(range);
  }
  all.ask(request, make_sampler(10, order)->token().to_text());
  // The values of EpochAuditTest.
  const Hash128 fingerprint{0x1111, 0x2222};
  const EpochAudit::Sum sum = EpochAudit::Sum::of_range(0, 1000, fingerprint);
  all.ask(
      {{"do", "sums"}, {"of", test::first_numbers(1000)}, {"fingerprint", to_string(fingerprint)}},
      json_of(sum));
  all.ask({{"do", "words"},
           {"count", sum.count},
           {"hashes", to_string(sum.hashes)},
           {"numbers", to_string(sum.numbers)}},
          sum.to_words());
  all.expect_one_answer(50);
}

/// Returns a page with its lines joined.
std::string flat_page(const std::string& name) {
  const std::string page = test::read_file(test::source_dir() + "/docs/formats/" + name);
  return std::regex_replace(page, std::regex("\n(> )?"), " ");
}

/// Returns a list of numbers in the form of the pages, e.g. "17 3".
std::string listed(const Samples& numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) {
    text += (text.empty() ? "" : " ") + std::to_string(number);
  }
  return text;
}

TEST(SpecificationTest, TheNumbersInThePagesAreThoseOfTheLibrary) {
  using testing::HasSubstr;
  const std::string page = flat_page("order.md");
  EXPECT_THAT(page, HasSubstr("key(17, 3, 1, 5) is (0x4a8d4061892ece9e, 0x6b01d98f00235409)"));
  EXPECT_EQ(derive_key(17, 3, KeyPurpose::kChunks, 5),
            (Hash128{0x4a8d4061892ece9e, 0x6b01d98f00235409}));
  for (const std::uint64_t n :
       {std::uint64_t{8}, std::uint64_t{64}, std::uint64_t{65}, std::uint64_t{511},
        std::uint64_t{512}, std::uint64_t{1'000'003}, kMaxSamples}) {
    const Permutation permutation(n, {0x0123456789abcdef, 0xfedcba9876543210});
    Samples images = test::first_numbers(8);
    permutation.apply(images);
    EXPECT_THAT(page, HasSubstr("| " + std::to_string(n) + " | " + listed(images) + " |"));
  }
  const auto row = [](const EpochOrder& order) {
    Samples samples = test::first_numbers(order.size());
    order.map(samples);
    return " | " + listed(samples) + " |";
  };
  EXPECT_THAT(page, HasSubstr("chunk_size 5 | 1" + row(EpochOrder::chunked(23, 5, {17, 3, 1}))));
  EXPECT_THAT(page, HasSubstr("the same | 2" + row(EpochOrder::chunked(23, 5, {17, 3, 2}))));
  EXPECT_THAT(page,
              HasSubstr("phase, h = 3 | 2" + row(EpochOrder::chunked(23, 5, {17, 3, 2, true}))));
  EXPECT_THAT(page, HasSubstr("samples | 1" + row(EpochOrder::sharded(
                                                  test::offsets_of({3, 0, 7, 2, 5}), {17, 3, 1}))));
  using Weights = std::vector<double>;
  const auto shares = [](const Weights& weights, unsigned bits) {
    return listed(detail::weight_shares(weights, std::uint64_t{1} << bits, "sample"));
  };
  EXPECT_THAT(page, HasSubstr("have the shares " + shares({1, 1, 1}, 40)));
  EXPECT_THAT(page, HasSubstr("have " + shares({0.1, 0, 1e-300, 123.456}, 62)));
  const auto resampled = [](const Data& data, const Resampled& kind, std::uint64_t epoch_size) {
    const auto sampler =
        make_sampler(data.samples(), {.seed = 17, .kind = kind, .epoch_size = epoch_size});
    sampler->set_epoch(3);
    return listed(test::delivered(*sampler));
  };
  EXPECT_THAT(page, HasSubstr("of 1000 samples are " + resampled({.lengths = {1000}}, {}, 6)));
  EXPECT_THAT(page, HasSubstr("5 samples, are " + resampled({.lengths = {3, 0, 7, 2, 5}},
                                                            {Resampled::Unit::kShard}, 12)));
  EXPECT_THAT(page, HasSubstr("twelve draws are " +
                              resampled({.lengths = {6}, .column = {5, 1, 0, 2.5, 0.125, 3}},
                                        {.weights = "w"}, 12)));
  const MixtureDraws draws(Weights{5, 1, 2.5}, 17);
  const auto drawn = [&](std::uint64_t slot) {
    return std::to_string(draws.at(slot).dataset) + ":" + std::to_string(draws.at(slot).draw);
  };
  std::string first;
  for (std::uint64_t slot = 0; slot < 8; ++slot) first += " " + drawn(slot);
  EXPECT_THAT(page, HasSubstr("the shares are " + listed(draws.shares())));
  EXPECT_THAT(page, HasSubstr("as data set:number," + first + "; slot 10^12 draws " +
                              drawn(1'000'000'000'000)));
  const detail::MixtureSchedule schedule({{{.weight = 3}, {.weight = 1}}, {{256, {1, 3}}}}, 17);
  first.clear();
  for (std::uint64_t slot = 254; slot < 260; ++slot) {
    const MixtureDraw at = drawn_at(schedule, slot);
    first += " " + std::to_string(at.dataset) + ":" + std::to_string(at.draw);
  }
  EXPECT_THAT(page, HasSubstr("Slots 254 to 259 then draw, as data set:number," + first + "."));
  const auto rank = [](std::uint64_t streams, std::uint64_t number) {
    ChunkedSampler sampler(23, {.seed = 42, .chunk_size = 5, .window = 2, .streams = streams},
                           {.rank = number, .world_size = 3});
    sampler.set_epoch(5);
    return listed(test::delivered(sampler));
  };
  EXPECT_THAT(page,
              HasSubstr("rank 0 gets " + rank(1, 0) + "; with three, rank 2 gets " + rank(3, 2)));
  const auto dealt = [](std::uint64_t world, std::uint64_t step, const Samples& sizes) {
    std::vector<std::uint32_t> ranks(sizes.size());
    Dealer(world).deal(step, sizes, ranks);
    return listed(Samples(ranks.begin(), ranks.end()));
  };
  const Samples sizes{5, 1, 9, 3, 3, 7};
  EXPECT_THAT(page,
              HasSubstr("to ranks " + dealt(3, 0, sizes) + ", step 1 to " + dealt(3, 1, sizes)));
  EXPECT_THAT(page, HasSubstr("step 5: " + dealt(4, 5, Samples(8, 100))));

  const Order order{.seed = 3, .kind = Wids{.shufflefirst = true}};
  const SampleSet shards = SampleSet::of_shards(Samples{3, 4, 2});
  EXPECT_THAT(flat_page("wids-order.md"),
              HasSubstr("epoch 2: " + listed(test::delivered(test::at_epoch(
                                          WidsSampler::shard_list(shards, order), 2)))));
  EXPECT_THAT(flat_page("epoch-proof.md"),
              HasSubstr("hashes " + to_string(EpochAudit::Sum::of_range(0, 10, {}).hashes) +
                        ", numbers 45"));
}

TEST(SpecificationTest, ThePagesHaveTheVersionsOfTheLibrary) {
  const auto page = [](const std::string& name) {
    return test::read_file(test::source_dir() + "/docs/formats/" + name);
  };
  for (std::size_t i = 0; i < kNumAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    EXPECT_THAT(page("order.md"),
                testing::HasSubstr("\n| " + std::string(algorithm_name(algorithm)) + " | " +
                                   std::to_string(algorithm_version(algorithm)) + " |"));
  }
  EXPECT_THAT(page("wids-order.md"),
              testing::HasSubstr("\nVersion " + std::to_string(WidsSampler::kVersion) + "."));
  const std::string token_version = std::to_string(ResumeToken::kVersion);
  const std::string in_window = std::to_string(ResumeToken::kBatchesVersion);
  const std::string with_schedule = std::to_string(ResumeToken::kScheduleVersion);
  EXPECT_THAT(page("resume-token.md"),
              testing::StartsWith("# The resume token, versions " + token_version + ", " +
                                  in_window + " and " + with_schedule + "\n"));
  EXPECT_THAT(page("resume-token.md"),
              testing::HasSubstr("| format version: " + token_version + ", " + in_window + " or " +
                                 with_schedule + ","));
}

TEST(SpecificationTest, OrdersOfPythonWidsFollowFromThePage) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  const auto corpus = test::corpus_dir();
  if (!corpus)
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
  const json golden = json::parse(test::read_file(*corpus / "order" / "wids_order_golden.json"));
  Questions all;
  for (const json& c : golden["cases"]) {
    const Order order{.seed = c["seed"], .kind = Wids{.shufflefirst = c["shufflefirst"]}};
    json request{{"order", json_of(order)}, {"epoch", c["epoch"]}};
    if (c.contains("sampler")) {
      request["do"] = "shard_list";
      request["starts"] = *test::offsets_of(c["lengths"].get<Samples>());
      all.ask(request, c["order"]);
      continue;
    }
    request["do"] = "samples";
    request["order"]["chunk_size"] = c["chunksize"];
    request["data"] = {{"n", c["n"]}, {"fingerprint", "0"}};
    request["ranks"] = {{"rank", c["rank"]}, {"world_size", c["world"]}};
    all.ask(request, c["order"]);
  }
  all.expect_one_answer(50);
}

// Random orders.

class Generator : public test::Dice {
 public:
  using Dice::Dice;

  /// Returns a number that is usually small, but may be any.
  std::uint64_t any_number() { return one_in(4) ? number() >> below(64) : below(20); }

  Data data() {
    Data data{.lengths = {}, .fingerprint = {number(), number()}};
    const std::uint64_t n = one_of({below(3), below(40), below(400)});
    data.lengths = test::some_lengths(n, 1 + below(50), number());
    if (one_in(3)) data.lengths.push_back(0);
    const unsigned shift = static_cast<unsigned>(below(60));
    for (std::uint64_t i = 0; i < n; ++i) {
      data.sizes.push_back(number() >> shift >> below(4));
      data.column.push_back(one_in(4) ? 0 : std::ldexp(static_cast<double>(below(1000)), 3));
    }
    return data;
  }

  std::variant<Chunked, Sharded, Sequential> pass_kind() {
    switch (below(4)) {
      case 0:
        return Sharded{.window = one_in(10) ? any_number() : 1 + below(6)};
      case 1:
        return Sequential{};
      default:
        return Chunked{.chunk_size = one_in(10) ? any_number() : 1 + below(40),
                       .window = one_in(10) ? any_number() : 1 + below(6),
                       .phase = one_in(3)};
    }
  }

  std::vector<Mixture::Change> schedule(const std::vector<Mixture::Part>& parts) {
    std::vector<Mixture::Change> changes;
    std::uint64_t from = 0;
    for (std::uint64_t left = one_in(2) ? 0 : below(4); left > 0; --left) {
      from += one_in(30) ? any_number() : 1 + below(600);
      Mixture::Change change{from, {}};
      for (const Mixture::Part& part : parts) {
        const double weight = std::ldexp(static_cast<double>(below(9)), -3);
        change.weights.push_back(part.num_samples == 0 && !one_in(30) ? 0 : weight);
      }
      if (one_in(40)) change.weights.push_back(1);
      changes.push_back(std::move(change));
    }
    return changes;
  }

  /// @param starts  shard starts of the data. The parts of a mixture usually end at shard starts.
  OrderKind kind(const std::vector<std::uint64_t>& starts) {
    const auto widened = [](const auto& chosen) -> OrderKind { return chosen; };
    switch (below(8)) {
      case 0:
        return Resampled{};
      case 1:
        return Resampled{.weights = one_in(2) ? "w" : ""};
      case 2:
        return Resampled{Resampled::Unit::kShard, one_in(20) ? "w" : ""};
      case 3:
        return Wids{.chunk_size = one_in(4) ? 0 : 1 + below(30),
                    .shuffle = !one_in(5),
                    .shufflefirst = one_in(2)};
      case 4: {
        Mixture mixture;
        std::vector<std::uint64_t> ends{starts.back()};
        for (std::uint64_t left = below(5); left > 0; --left) {
          ends.push_back(one_in(9) ? below(starts.back() + 1) : starts[below(starts.size())]);
        }
        std::sort(ends.begin(), ends.end());
        std::uint64_t begin = 0;
        for (const std::uint64_t end : ends) {
          const double weight = std::ldexp(static_cast<double>(1 + below(99)), -3);
          mixture.parts.push_back(
              {end - begin, end == begin && !one_in(9) ? 0 : weight, pass_kind()});
          begin = end;
        }
        mixture.schedule = schedule(mixture.parts);
        return mixture;
      }
      default:
        return std::visit(widened, pass_kind());
    }
  }

  Order order(const Data& data) {
    const std::uint64_t n = data.size();
    Order order{.seed = one_in(2) ? number() : below(9), .kind = kind(*data.starts())};
    if (one_in(3)) order.streams = 1 + below(6);
    order.tail =
        one_of({Order::Tail::kExact, Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad});
    order.balance_bytes = one_in(3);
    if (one_in(3)) order.epoch_size = one_in(5) ? n : below(150);
    const bool is_single =
        std::holds_alternative<Wids>(order.kind) || std::holds_alternative<Mixture>(order.kind);
    if (is_single && !one_in(20)) {
      order.streams = 1;
      order.tail = Order::Tail::kExact;
    }
    if (std::holds_alternative<Wids>(order.kind) && !one_in(20)) {
      order.balance_bytes = false;
      order.epoch_size = 0;
    }
    if (order.epoch_size != 0 && !one_in(20)) order.tail = Order::Tail::kExact;
    return order;
  }

  RankOptions ranks(const Order& order) {
    RankOptions ranks{.world_size = 1 + below(9), .batch_size = 1 + below(6)};
    if (order.streams > 1 && !one_in(10)) ranks.world_size = order.streams * (1 + below(3));
    if (one_in(4)) {
      ranks.replicas = 1 + below(3);
      if (!one_in(10)) ranks.world_size *= ranks.replicas;
    }
    ranks.rank = one_in(40) ? below(12) : below(ranks.world_size);
    if (one_in(4)) ranks.global_batch_size = 1 + below(40);
    return ranks;
  }

  SkipList skip(std::uint64_t n, std::uint64_t epoch) {
    SkipList skip;
    if (!one_in(2)) return skip;
    for (std::uint64_t left = below(n / 4 + 2); left > 0; --left) {
      const SkipList::Point from{one_in(2) ? epoch : below(epoch + 2), below(n + 1)};
      skip.add_sample(one_in(300) ? n : below(std::max<std::uint64_t>(n, 1)), "why",
                      one_in(2) ? SkipList::Point{} : from);
    }
    for (std::uint64_t left = below(4); left > 0; --left) {
      const std::uint64_t begin = below(n + 5);
      skip.add_positions(one_in(2) ? epoch : below(epoch + 2), begin, begin + below(n / 5 + 2));
    }
    return skip;
  }
};

json json_of(const SkipList& skip, json request) {
  request["skip_samples"] = json::array();
  for (const auto& [sample, entry] : skip.samples()) {
    request["skip_samples"].push_back(
        {sample, entry.from.epoch, entry.from.position, entry.reason});
  }
  request["skip_ranges"] = json::array();
  for (const auto& [begin, end] : skip.ranges()) {
    request["skip_ranges"].push_back({begin.first, begin.second, end});
  }
  return request;
}

/// Adds questions about the samples that `sampler` delivers on its rank, the positions of its
/// tokens, and its proof. If the sampler's skip list is that of the request, also adds a question
/// about its token.
void ask_of(const Sampler& sampler, json request, Generator& random, Questions& all) {
  request["ranks"] = json_of(
      RankOptions{.rank = sampler.rank(), .world_size = sampler.world_size(), .batch_size = 1});
  request["ranks"].update(request["given_ranks"]);
  Samples steps{0, 1, 2, sampler.steps(), kMost >> 32};
  steps.push_back(random.below(sampler.steps() + 1));
  json points = json::array();
  for (const std::uint64_t step : steps) {
    const ResumeToken token = sampler.token_after(step);
    points.push_back({token.epoch, token.position});
  }
  json deliveries = json::array();
  for (std::uint64_t i = 0; i < sampler.size(); ++i) {
    deliveries.push_back({sampler[i], sampler.position_in_epoch(i)});
  }
  json made = request;
  made["do"] = "make_token";
  made["after_steps"] = steps.back();
  if (!request.contains("token")) all.ask(made, sampler.token_after(steps.back()).to_text());
  request["do"] = "ranks";
  request["steps"] = steps;
  request["prove"] = true;
  all.ask(request, {{"deliveries", deliveries},
                    {"points", points},
                    {"before", request["before"]},
                    {"expected", json_of(sampler.expectation().sum())}});
}

/// Returns the sum of the samples that all ranks deliver in the first `steps` steps of a sampler.
EpochAudit::Sum delivered_in(const Sampler& sampler, std::uint64_t steps) {
  EpochAudit::Sum sum;
  for (std::uint64_t rank = 0; rank < sampler.world_size(); rank += sampler.replicas()) {
    const auto mine = sampler.for_rank(rank);
    Samples samples(mine->first_of_step(steps));
    samples.resize(mine->next_batch(samples));
    sum += EpochAudit::Sum::of(samples, sampler.fingerprint());
  }
  return sum;
}

/// Adds questions about a random run. In half of the cases, the run then resumes from a token with
/// other ranks.
void ask_of_random_run(Generator& random, Questions& all) {
  const Data data = random.data();
  Order order = random.order(data);
  const std::uint64_t epoch =
      random.one_in(30) ? random.any_number() : random.one_of({std::uint64_t{0}, random.below(9)});
  const bool is_wids = std::holds_alternative<Wids>(order.kind);
  if (!is_wids || random.one_in(20)) order.skip = random.skip(data.size(), epoch);
  const RankOptions ranks = random.ranks(order);
  json request{{"data", data.to_json()}, {"order", json_of(order)}, {"epoch", epoch}};
  request["given_ranks"] = json_of(ranks);
  request["before"] = json_of(EpochAudit::Sum{});
  request = json_of(order.skip, request);
  std::unique_ptr<Sampler> sampler;
  try {
    sampler = make_sampler(data.samples(), order, ranks);
    sampler->set_epoch(epoch);
  } catch (const Error&) {
    request["do"] = "ranks";
    request["ranks"] = json_of(ranks);
    request["steps"] = json::array();
    request["prove"] = false;
    all.ask_refused(request);
    return;
  }
  ask_of(*sampler, request, random, all);
  if (random.one_in(2)) return;
  const std::uint64_t steps = random.below(sampler->steps() + 1);
  const ResumeToken token = sampler->token_after(steps);
  Order later = order;
  if (!is_wids) later.skip = random.skip(data.size(), token.epoch);
  if (auto* const mixture = std::get_if<Mixture>(&later.kind); mixture && random.one_in(2)) {
    for (Mixture::Part& part : mixture->parts) {
      if (part.num_samples > 0) part.weight = static_cast<double>(1 + random.below(4));
    }
    mixture->schedule = random.schedule(mixture->parts);
  }
  RankOptions others = random.ranks(order);
  if (is_wids) {
    others.world_size = ranks.world_size / ranks.replicas * others.replicas;
    others.rank = random.below(others.world_size);
  }
  request["token"] = token.to_text();
  request["order"] = json_of(later);
  request["given_ranks"] = json_of(others);
  if (token.epoch == epoch) request["before"] = json_of(delivered_in(*sampler, steps));
  request = json_of(later.skip, request);
  try {
    sampler = make_sampler(data.samples(), later, others);
    sampler->resume(token, Sampler::Changes::kAllowAtEpochBorder);
  } catch (const Error&) {
    return;  // this refusal was already tested above
  }
  ask_of(*sampler, request, random, all);
}

TEST(SpecificationTest, RandomRunsFollowFromThePages) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  Generator random(test::random_seed());
  Questions all;
  for (int i = 0; i < 150; ++i) ask_of_random_run(random, all);
  all.expect_one_answer(200);
}

// Tokens.

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string bytes_of(std::string_view text) {
  std::string bytes;
  std::uint64_t bits = 0;
  unsigned num_bits = 0;
  for (const char c : text.substr(4)) {
    bits = bits << 6 | kAlphabet.find(c);
    if ((num_bits += 6) >= 8) bytes += static_cast<char>(bits >> (num_bits -= 8));
  }
  return bytes;
}

/// Returns the text of a token with these bytes and a correct checksum.
std::string text_of(std::string bytes) {
  const std::uint64_t checksum = hash64(bytes);
  for (unsigned i = 0; i < 8; ++i) bytes += static_cast<char>(checksum >> (8 * i));
  std::string text = "sw2.";
  if (bytes.starts_with('\3') || bytes.starts_with('\4'))
    text[2] = static_cast<char>('0' + bytes[0]);
  std::uint64_t bits = 0;
  unsigned num_bits = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (num_bits += 8; num_bits >= 6; text += kAlphabet[bits >> num_bits & 63]) num_bits -= 6;
  }
  if (num_bits > 0) text += kAlphabet[bits << (6 - num_bits) & 63];
  return text;
}

void ask_of_token(const std::string& text, Questions& all) {
  const json request{{"do", "token"}, {"text", text}};
  std::optional<ResumeToken> token;
  try {
    token = ResumeToken::from_text(text);
  } catch (const Error&) {
    all.ask_refused(request);
    return;
  }
  all.ask(request, {{"text", token->to_text()},
                    {"layout", token->spec.layout},
                    {"sums", token->audit ? json_of(*token->audit) : json(nullptr)}});
}

ResumeToken random_token(Generator& random) {
  ResumeToken token;
  const auto stage = [&] {
    const Data data = random.data();
    try {
      return make_sampler(data.samples(), random.order(data))->spec();
    } catch (const Error&) {
      return ResumeToken::OrderSpec();
    }
  };
  token.fingerprint = {random.any_number(), random.any_number()};
  token.spec = stage();
  token.epoch = random.any_number();
  token.position = random.any_number();
  token.skip = random.skip(random.below(300), random.below(5));
  if (random.one_in(2)) {
    token.audit =
        EpochAudit::Sum{random.any_number(), {random.any_number(), random.any_number()}, {1, 2}};
  }
  for (std::uint64_t left = random.below(3); left > 0; --left) {
    token.history.push_back(
        {random.any_number(), {random.any_number(), random.any_number()}, stage()});
  }
  if (random.one_in(3)) {
    token.batches = {.rule = std::string(random.below(5), 'r'), .delivered = random.any_number()};
  }
  return token;
}

TEST(SpecificationTest, TokensWholeAndDamagedAreReadAsThePageSays) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  Generator random(test::random_seed());
  Questions all;
  for (const char* text : {"", "sw2", "sw2.", "sw1.AAAA", "sw12.", "sw.AA", "swx.", " sw2.AA= ",
                           "sw2.AAAAAAAAAAA", "sw2.AAAAAAAAAAAAA", "sw3.", "sw4.AAAA"}) {
    ask_of_token(text, all);
  }
  ResumeToken in_window;
  in_window.batches = ResumeToken::Batches();
  ask_of_token(in_window.to_text(), all);
  ask_of_token("sw2" + in_window.to_text().substr(3), all);
  ask_of_token("sw3" + ResumeToken().to_text().substr(3), all);
  // A token with the largest allowed values.
  ResumeToken limits;
  limits.spec.versions[0] = 0x7fffffff;
  limits.skip.add_positions(1, 0, kMost);
  limits.skip.add_sample(5, "why");
  const std::string body = bytes_of(limits.to_text());
  const auto ask_with = [&](std::string_view part, std::string_view other) {
    std::string bytes = body.substr(0, body.size() - 8);
    const std::size_t at = bytes.find(part);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, part.size(), other);
    ask_of_token(text_of(bytes), all);
  };
  using namespace std::string_view_literals;
  const std::string longer = "\xcb\x01" + std::string(203, 'b');
  ask_with("\x03why", "\x03why");
  ask_with("\x03why", "\x03w\ny");
  ask_with("\x03why", longer);
  for (const std::size_t blank : {50U, 98U, 99U, 150U, 196U, 197U, 198U}) {
    std::string words = longer;
    words[2 + blank] = blank % 2 == 0 ? ' ' : '/';
    ask_with("\x03why", words);
  }
  for (const char* front : {"", "b", "bb"}) {
    std::string letters = std::string("\xcb\x01") + front;
    while (letters.size() < 205) letters += "\xc3\xa4";
    ask_with("\x03why", letters.substr(0, 205));
  }
  ask_with("\xff\xff\xff\xff\x07", "\x80\x80\x80\x80\x08");
  ask_with("\xff\xff\xff\xff\x07", "\x80\x80\x80\x80\x00"sv);
  ask_with("\x01\x00\xff"sv, "\x01\x01\xff");
  ask_with("\xff\xff\xff\x01", "\xff\xff\xff\x02");
  ask_with("\xff\xff\xff\x01", "\xff\xff\xff\x81\x00"sv);
  for (int i = 0; i < 120; ++i) {
    const std::string text = random_token(random).to_text();
    ask_of_token(text, all);
    ask_of_token(" \n" + text + "\r\n\t", all);
    std::string spoiled = text;
    spoiled[random.below(text.size())] = random.one_of({'A', '_', '.', ' ', '+'});
    ask_of_token(spoiled, all);
    ask_of_token(text.substr(0, random.below(text.size())), all);
    spoiled = text;
    // Characters that set the unused bits.
    spoiled.back() = random.one_of({'A', 'B', 'C', '8', '_'});
    ask_of_token(spoiled, all);
    // Changed bytes with a correct checksum.
    std::string bytes = bytes_of(text);
    bytes.resize(bytes.size() - 8);
    for (std::uint64_t left = 1 + random.below(3); left > 0; --left) {
      char& byte = bytes[random.one_in(2) ? random.below(bytes.size())
                                          : 17 + random.below(bytes.size() - 17)];
      byte = static_cast<char>(
          random.one_of({random.below(256), static_cast<unsigned char>(byte) + random.below(3) - 1,
                         std::uint64_t{0x80}, std::uint64_t{0xff}}));
    }
    ask_of_token(text_of(bytes), all);
    ask_of_token(text_of(bytes.substr(0, random.below(bytes.size()))), all);
    ask_of_token(text_of(bytes + '\0'), all);
  }
  all.expect_one_answer(250);
}

}  // namespace
}  // namespace shardwise
