#include "loader/group_batches.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory_resource>
#include <mutex>
#include <new>
#include <random>
#include <set>

#include "loader/thread_ranks.h"
#include "support/dataset.h"

namespace shardwise {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Batches = std::vector<std::vector<std::uint32_t>>;

/// Returns the batches by length of one window.
Batches length_batches(const std::vector<std::uint64_t>& lengths, std::uint64_t max_rows,
                       std::uint64_t max_tokens, std::uint64_t seed, std::uint64_t epoch,
                       std::uint64_t window) {
  detail::WindowSamples samples;
  samples.resize(lengths.size());
  samples.lengths = lengths;
  return detail::group_batches(samples, {{max_rows}, max_tokens}, false, seed, epoch, window)
      .batches;
}

/// Makes samples: sample i has a text of (i * 37) % 23 + 1 bytes and the number i. The numbers of
/// `broken` are invalid.
Dataset make_texts(const test::TempDir& dir, std::size_t count,
                   const std::set<std::size_t>& broken = {}, const std::string& name = "texts") {
  std::vector<test::Fields> samples;
  for (std::size_t i = 0; i < count; ++i) {
    samples.push_back({{"txt", std::string(i * 37 % 23 + 1, 'x')},
                       {"cls", broken.contains(i) ? "?" : std::to_string(i)}});
  }
  return test::make_dataset(dir, name, samples, 10);
}

Loader::Options options_of(std::uint64_t max_tokens = 0) {
  return {.columns = {columns::text("txt"), columns::integer("cls")},
          .order = {.seed = 3, .kind = Chunked{5, 3}},
          .batch_size = 6,
          .by_length = Loader::ByLength{.field = "txt", .window = 32, .max_tokens = max_tokens},
          .threads = 1};
}

/// Samples delivered, by step, rank and row.
using Steps = std::vector<std::vector<std::vector<std::int64_t>>>;

std::int64_t longest(const Batch& batch) {
  const Batch::Array& texts = batch["txt"];
  std::int64_t most = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) most = std::max(most, texts.row_shape(i)[0]);
  return most;
}

// The example in docs/formats/length-batches.md. It must never change.
TEST(LengthBatchesTest, AreThoseOfTheSpecification) {
  EXPECT_THAT(test::read_file(test::source_dir() + "/docs/formats/length-batches.md"),
              testing::StartsWith("# Batches by length and by group, version " +
                                  std::to_string(detail::kGroupBatchesVersion) + "\n"));
  const std::vector<std::uint64_t> lengths{5, 1, 9, 3, 3, 7, 0, 2};
  EXPECT_THAT(length_batches(lengths, 3, 0, 17, 2, 4),
              ElementsAre(ElementsAre(5, 2), ElementsAre(6, 1, 7), ElementsAre(3, 4, 0)));
  EXPECT_THAT(length_batches(lengths, 4, 9, 17, 2, 4),
              ElementsAre(ElementsAre(5), ElementsAre(2), ElementsAre(0), ElementsAre(6, 1, 7),
                          ElementsAre(3, 4)));
  EXPECT_THAT(length_batches({}, 4, 9, 17, 2, 4), testing::IsEmpty());
}

// The example in docs/formats/length-batches.md. It must never change.
TEST(GroupBatchesTest, AreThoseOfTheSpecification) {
  detail::WindowSamples samples;
  samples.resize(8);
  samples.lengths = {5, 1, 9, 3, 3, 7, 0, 2};
  samples.groups = {0, 1, 0, 1, 1, 0, 1, 0};
  const detail::WindowBatches small = detail::group_batches(samples, {{2, 3}, 0}, false, 17, 2, 4);
  EXPECT_THAT(small.batches, ElementsAre(ElementsAre(6, 1, 3), ElementsAre(4), ElementsAre(7, 0),
                                         ElementsAre(5, 2)));
  EXPECT_THAT(small.held_over, testing::IsEmpty());
  const detail::WindowBatches held = detail::group_batches(samples, {{2, 3}, 0}, true, 17, 2, 4);
  EXPECT_THAT(held.batches,
              ElementsAre(ElementsAre(6, 1, 3), ElementsAre(7, 0), ElementsAre(5, 2)));
  EXPECT_THAT(held.held_over, ElementsAre(4));
}

TEST(LengthBatchesTest, LittleOfThePaddedBatchesIsPadding) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 200);
  const auto padding = [&](const Loader::Options& options) {
    Loader loader(data, options);
    std::int64_t padded = 0;
    std::int64_t bytes = 0;
    for (const Batch& batch : loader.epoch()) {
      padded += static_cast<std::int64_t>(batch.size()) * longest(batch);
      bytes += static_cast<std::int64_t>(batch["txt"].bytes().size());
    }
    return static_cast<double>(padded - bytes) / static_cast<double>(padded);
  };
  Loader::Options plain = options_of();
  plain.by_length.reset();
  EXPECT_GT(padding(plain), 0.35);
  EXPECT_LT(padding(options_of()), 0.20);
}

/// Expects that each sequence is complete and contiguous, and that sequences do not overlap.
void expect_sound(const std::vector<detail::PackedBatch>& batches,
                  const std::vector<std::uint64_t>& lengths, std::uint64_t num_rows,
                  std::uint64_t row_length) {
  std::set<std::uint32_t> seen;
  for (const detail::PackedBatch& batch : batches) {
    ASSERT_FALSE(batch.samples.empty());
    ASSERT_EQ(batch.samples.size(), batch.starts.size());
    std::vector<bool> taken(num_rows * row_length);
    for (std::size_t i = 0; i < batch.samples.size(); ++i) {
      ASSERT_TRUE(seen.insert(batch.samples[i]).second);
      const std::uint64_t length = lengths[batch.samples[i]];
      ASSERT_LE(batch.starts[i] + length, taken.size());
      // A sequence that fits into a row must not cross the end of a row.
      if (length > 0 && length <= row_length) {
        ASSERT_EQ(batch.starts[i] / row_length, (batch.starts[i] + length - 1) / row_length);
      }
      for (std::uint64_t k = 0; k < length; ++k) {
        ASSERT_FALSE(taken[batch.starts[i] + k]);
        taken[batch.starts[i] + k] = true;
      }
    }
  }
  ASSERT_EQ(seen.size(), lengths.size());
}

TEST(PackedBatchesTest, AreNearlyFull) {
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> lengths(2000);
  std::uint64_t tokens = 0;
  for (std::uint64_t& length : lengths) tokens += length = 1 + random() % 700;
  const auto batches = detail::packed_batches(lengths, 8, 1024, 5, 0, 0);
  expect_sound(batches, lengths, 8, 1024);
  EXPECT_GT(static_cast<double>(tokens), 0.98 * static_cast<double>(batches.size() * 8 * 1024));
}

// The example in docs/formats/length-batches.md. It must never change.
TEST(PackedBatchesTest, AreThoseOfTheSpecification) {
  const std::vector<std::uint64_t> lengths{5, 1, 9, 3, 3, 7, 0, 2};
  const auto batches = detail::packed_batches(lengths, 2, 8, 17, 2, 4);
  std::string text;
  for (const auto& batch : batches) {
    for (std::size_t i = 0; i < batch.samples.size(); ++i) {
      text += std::to_string(batch.samples[i]) + "@" + std::to_string(batch.starts[i]) + " ";
    }
    text += "| ";
  }
  EXPECT_EQ(text, "4@0 7@3 1@5 | 2@0 5@9 6@16 | 0@0 3@5 | ");
}

/// Options that pack the texts' bytes into rows of 16.
Loader::Options packing_options() {
  Loader::Options options = options_of();
  options.batch_size = 3;
  options.by_length->pack = "txt";
  options.by_length->pack_to = 16;
  options.by_length->padding = '.';
  return options;
}

TEST(PackedBatchesTest, ALoaderPutsTheTokensIntoTheirRows) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 75);  // texts of 1 to 23 bytes
  Loader loader(data, packing_options());
  for (auto epoch : loader.epochs(2)) {
    std::size_t samples = 0;
    for (const Batch& batch : epoch) {
      samples += batch.size();
      EXPECT_THAT(batch["txt"].shape(), ElementsAre(3, 16));
      EXPECT_THAT(batch["txt_segments"].shape(), ElementsAre(3, 16));
      const auto tokens = batch["txt"].values<std::uint8_t>();
      const auto segments = batch["txt_segments"].values<std::int32_t>();
      const auto positions = batch["txt_positions"].values<std::int32_t>();
      // The lengths of the sequences, computed from the arrays.
      std::vector<std::int64_t> lengths;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(tokens[i], segments[i] == 0 ? '.' : 'x');
        if (segments[i] == 0) continue;
        if (positions[i] == 0) lengths.push_back(0);
        EXPECT_EQ(positions[i], lengths.back()++);
        if (i % 16 == 0) {
          EXPECT_EQ(segments[i], 1);
        } else if (positions[i] > 0) {
          EXPECT_EQ(segments[i], segments[i - 1]);
        }
      }
      std::vector<std::int64_t> expected;
      for (const std::int64_t sample : batch.samples()) expected.push_back(sample * 37 % 23 + 1);
      std::sort(expected.begin(), expected.end());
      std::sort(lengths.begin(), lengths.end());
      EXPECT_EQ(lengths, expected);
    }
    EXPECT_EQ(samples, 75u);
    EXPECT_THAT(epoch.prove(), HasSubstr("75 samples, each exactly once: proven"));
  }
}

/// The result of run(), which runs an epoch of `data` on `world` ranks, from a token and for a
/// number of steps if given: the delivered samples, the token afterwards, and the proof if the
/// epoch ended.
struct Delivered {
  Steps steps;
  ResumeToken token;
  std::string proof;
};
Delivered run(const Dataset& data, const Loader::Options& options, std::uint64_t world,
              const std::optional<ResumeToken>& from = {},
              std::uint64_t max_steps = ~std::uint64_t{0}) {
  test::ThreadRanks ranks(world);
  std::mutex mutex;
  Delivered all;
  test::on_ranks(world, [&](std::uint64_t rank) {
    Loader loader(data, options, ranks.rank(rank));
    if (from) loader.restore(*from);
    std::vector<std::vector<std::int64_t>> own;
    while (own.size() < max_steps) {
      const auto batch = loader.next();
      if (!batch) break;
      own.emplace_back(batch->samples().begin(), batch->samples().end());
    }
    const bool ended = loader.has_ended() || loader.steps_left() == 0;
    const std::string proof = ended ? loader.prove() : "";
    const ResumeToken token = loader.state();
    const std::lock_guard lock(mutex);
    all.steps.resize(std::max(all.steps.size(), own.size()));
    for (std::size_t step = 0; step < own.size(); ++step) {
      all.steps[step].resize(world);
      all.steps[step][rank] = std::move(own[step]);
    }
    if (rank == 0) {
      all.token = ResumeToken::from_text(token.to_text());
      all.proof = proof;
    }
  });
  return all;
}

/// A memory resource that refuses more than 1 MiB at a time.
class LittleMemory : public std::pmr::memory_resource {
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    if (size > std::size_t{1} << 20) throw std::bad_alloc();
    return std::pmr::new_delete_resource()->allocate(size, alignment);
  }
  void do_deallocate(void* p, std::size_t size, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(p, size, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

TEST(PackedBatchesTest, WhatCannotBePackedIsRefused) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 20);
  const auto text = [&](const auto& change) {
    Loader::Options options = packing_options();
    change(options);
    return test::error_text([&] {
      Loader loader(data, options);
      loader.next();
    });
  };
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->pack = ""; }),
              HasSubstr("only one of pack and pack_to"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->max_tokens = 5; }),
              HasSubstr("both pack_to and max_tokens"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->pack = "png"; }),
              HasSubstr("there is no column 'png'"));
  EXPECT_THAT(text([](Loader::Options& o) { o.columns.push_back(columns::key("txt_segments")); }),
              AllOf(HasSubstr("two columns"), HasSubstr("same name: 'txt_segments'")));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->pack = "cls"; }),
              AllOf(HasSubstr("ragged columns of integers"), HasSubstr("'cls'")));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->padding = 256; }),
              AllOf(HasSubstr("padding"), HasSubstr("out of range"),
                    HasSubstr("256, column 'txt': uint8")));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->padding = -1; }),
              HasSubstr("-1, column 'txt': uint8"));
  // A batch would take 36 GiB.
  EXPECT_THAT(text([](Loader::Options& o) {
                o.batch_size = 4;
                o.by_length->pack_to = std::uint64_t{1} << 30;
                o.memory = std::make_shared<LittleMemory>();
              }),
              AllOf(HasSubstr("not fit into memory"), HasSubstr("txt, 4.0 GiB"),
                    HasSubstr("4 rows of 1073741824 tokens"), HasSubstr("pack_to")));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->unit = 2; }),
              AllOf(HasSubstr("another length"), HasSubstr("packed"), HasSubstr("column 'txt'")));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->pack_to = 7; }),
              AllOf(HasSubstr("sequence"), HasSubstr("not fit into"),
                    HasSubstr("sample 13 has 22 tokens"), HasSubstr("3 rows of 7")));
}

TEST(LengthBatchesTest, LengthsComeFromAColumnToo) {
  const test::TempDir dir;
  make_texts(dir, 75);
  std::vector<std::string> shards;
  for (int i = 0; i < 8; ++i) shards.push_back(dir / ("texts-" + std::to_string(i) + ".tar"));
  build_index(dir / "with.idx", shards, {.content = {.columns = {parse_column("n=cls")}}});
  Loader::Options options = options_of();
  options.by_length = Loader::ByLength{.column = "n", .window = 32};
  Loader loader(Dataset::open(dir / "with.idx"), options);
  for (const Batch& batch : loader.epoch()) {
    const auto numbers = batch["cls"].values<std::int64_t>();
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  }
  EXPECT_THAT(loader.prove(), HasSubstr("75 samples, each exactly once: proven"));
  options.by_length->column = "none";
  EXPECT_THAT(test::error_text([&] { Loader(Dataset::open(dir / "with.idx"), options); }),
              HasSubstr("no column 'none'"));
}

TEST(LengthBatchesTest, ATokenStandsInItsEpochAlsoIfAllTheRestIsLeftOut) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 75);
  Loader::Options options = options_of();
  options.order.skip.add_positions(0, 32, 75);
  const Delivered first = run(data, options, 1, {}, 7);  // stops within the second window
  ASSERT_EQ(first.token.position, 32u);
  // In this run the sampler itself has no samples left to deliver.
  const Delivered second = run(data, options, 2, first.token, 1);
  EXPECT_EQ(second.token.epoch, 0u);
  EXPECT_EQ(second.token.position, 32u);
  ASSERT_TRUE(second.token.batches.has_value());
  EXPECT_EQ(second.token.batches->delivered, 3u);
  EXPECT_THAT(run(data, options, 1, second.token).proof, HasSubstr("epoch 0: 32 samples"));
}

TEST(LengthBatchesTest, TheSkipListHoldsInAnEpochThatIsBegunAgainAfterAResume) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 75);
  const ResumeToken token = run(data, options_of(), 1, {}, 2).token;
  Loader::Options options = options_of();
  options.order.skip.add_sample(7);
  options.order.skip.add_positions(0, 0, 10);
  Loader loader(data, options);
  loader.restore(token);
  loader.set_epoch(1);
  loader.set_epoch(0);  // from the beginning of epoch 0, since another epoch was between
  std::set<std::int64_t> seen;
  for (const Batch& batch : loader.epoch()) {
    for (const std::int64_t position : batch.positions()) EXPECT_GE(position, 10);
    seen.insert(batch.samples().begin(), batch.samples().end());
  }
  EXPECT_FALSE(seen.contains(7));
  EXPECT_THAT(loader.prove(), HasSubstr("excluded on purpose: proven"));
}

TEST(LengthBatchesTest, WithinAnEpochOtherBatchesAreRefused) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 75);
  const ResumeToken token = run(data, options_of(), 1, {}, 2).token;
  EXPECT_TRUE(token.to_text().starts_with("sw3."));
  EXPECT_EQ(ResumeToken::from_text(token.to_text()), token);
  const auto text = [&](const Loader::Options& options, const ResumeToken& from) {
    return test::error_text([&] { Loader(data, options).restore(from); });
  };
  EXPECT_THAT(
      text(options_of(40), token),
      AllOf(HasSubstr("batches by length or group cannot change"),
            HasSubstr("max_tokens 0' in the token"), HasSubstr("max_tokens 40' in this loader")));
  Loader::Options plain = options_of();
  plain.by_length.reset();
  EXPECT_THAT(text(plain, token), HasSubstr("none in this loader"));
  EXPECT_THAT(text(options_of(), run(data, plain, 1, {}, 2).token), HasSubstr("none in the token"));
  ResumeToken forged = token;
  forged.batches->delivered = 100;
  EXPECT_THAT(text(options_of(), forged),
              AllOf(HasSubstr("100 delivered batches"), HasSubstr("only 6: position 0")));
  forged = token;
  forged.batches->delivered = 1;
  EXPECT_THAT(text(options_of(), forged),
              AllOf(HasSubstr("12 delivered samples, but 6"), HasSubstr("epoch 0, position 0")));
  forged = token;
  forged.position = 12;
  forged.batches->delivered = 0;
  EXPECT_THAT(text(options_of(), forged),
              AllOf(HasSubstr("no window begins"), HasSubstr("position 12")));
  forged.batches->rule = "";
  EXPECT_THAT(text(plain, forged), HasSubstr("no window begins"));
  EXPECT_THAT(test::error_text([&] { make_sampler(data, options_of().order, {})->resume(token); }),
              HasSubstr("same by_length"));
  // At the end of an epoch, a token accepts another rule.
  const ResumeToken end = run(data, options_of(), 1).token;
  EXPECT_TRUE(end.to_text().starts_with("sw2."));
  EXPECT_THAT(run(data, plain, 2, end).proof, HasSubstr("epoch 1: 75 samples"));
}

TEST(LengthBatchesTest, WhatCannotGoTogetherIsRefused) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 20);
  const auto text = [&](const auto& change) {
    Loader::Options options = options_of();
    change(options);
    return test::error_text([&] { Loader loader(data, options); });
  };
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->window = 0; }), HasSubstr("window is 0"));
  Loader::Options nameless = options_of();
  nameless.by_length->field.clear();
  EXPECT_THAT(test::error_text([&] { Loader::validate(data, nameless, 2); }),
              HasSubstr("neither is set"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->unit = 0; }), HasSubstr("unit"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->field = ""; }),
              HasSubstr("neither is set"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->column = "n"; }),
              HasSubstr("both are set"));
  EXPECT_THAT(
      text([](Loader::Options& o) { o.by_length->field = "text;caption"; }),
      AllOf(HasSubstr("no shard"), HasSubstr("field of by_length"),
            HasSubstr("'text;caption' in '/"), HasSubstr("`shardwise info` lists the fields")));
  EXPECT_THAT(text([](Loader::Options& o) { o.global_batch_size = 8; }),
              HasSubstr("global_batch_size is set"));
  EXPECT_THAT(text([](Loader::Options& o) { o.order.balance_bytes = true; }),
              HasSubstr("balance_bytes is set"));
  EXPECT_THAT(text([](Loader::Options& o) { o.order.tail = Order::Tail::kDrop; }),
              HasSubstr("tail is drop"));
  EXPECT_THAT(text([](Loader::Options& o) { o.order.kind = Wids{}; }), HasSubstr("wids"));
  EXPECT_THAT(text([](Loader::Options& o) { o.order.epoch_size = std::uint64_t{1} << 60; }),
              AllOf(HasSubstr("1,152,921,504,606,846,976 positions"),
                    HasSubstr("36,028,797,018,963,968 windows"), HasSubstr("more than 2^27"),
                    HasSubstr("larger window"), HasSubstr("smaller epoch_size")));
}

Loader::Options group_options() {
  Loader::Options options = options_of();
  options.by_length.reset();
  options.by_group = Loader::ByGroup{.expression = "sample % 3", .window = 32};
  return options;
}

TEST(GroupBatchesTest, ATokenFindsTheSamplesThatAreHeldOver) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 200);
  const Loader::Options options = group_options();
  const Delivered whole = run(data, options, 1);
  EXPECT_THAT(whole.proof, HasSubstr("200 samples, each exactly once: proven"));
  for (std::uint64_t steps = 1; steps < whole.steps.size(); ++steps) {
    const Delivered first = run(data, options, 1, {}, steps);
    const Delivered rest = run(data, options, 3, first.token);
    EXPECT_THAT(rest.proof, HasSubstr("200 samples, each exactly once: proven"));
    EXPECT_EQ(rest.steps[0][0], whole.steps[steps][0]);
  }
}

TEST(GroupBatchesTest, OnlyTheLastBatchOfAGroupIsNotFull) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 200);
  const auto num_small = [&](Loader::ByGroup::Leftovers leftovers) {
    Loader::Options options = group_options();
    options.by_group->leftovers = leftovers;
    std::map<std::string, int> small;
    Loader loader(data, options);
    for (const Batch& batch : loader.epoch()) {
      for (const std::int64_t sample : batch.samples()) {
        EXPECT_EQ(std::to_string(sample % 3), batch.group());
      }
      small[batch.group()] += batch.size() < 6 ? 1 : 0;
    }
    EXPECT_EQ(small.size(), 3u);
    int most = 0;
    for (const auto& [key, count] : small) most = std::max(most, count);
    return most;
  };
  EXPECT_LE(num_small(Loader::ByGroup::Leftovers::kHoldOver), 1);
  EXPECT_GT(num_small(Loader::ByGroup::Leftovers::kSmallerBatch), 1);
}

TEST(GroupBatchesTest, WithinAnEpochOtherGroupsAreRefused) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 75);
  const ResumeToken token = run(data, group_options(), 1, {}, 5).token;
  const auto text = [&](const auto& change) {
    Loader::Options options = group_options();
    change(*options.by_group);
    return test::error_text([&] { Loader(data, options).restore(token); });
  };
  EXPECT_THAT(text([](Loader::ByGroup& rule) { rule.expression = "sample % 2"; }),
              AllOf(HasSubstr("batch_sizes 6 6 6, held over, window 32' in the token"),
                    HasSubstr("batch_sizes 6 6, held over, window 32' in this loader")));
  EXPECT_THAT(text([](Loader::ByGroup& rule) { rule.window = 64; }), HasSubstr("cannot change"));
  Loader::Options named = group_options();  // the keys are only names
  named.by_group->expression = "'g' || (sample % 3)";
  Loader loader(data, named);
  loader.restore(token);
  EXPECT_EQ(loader.state().to_text(), token.to_text());
}

TEST(GroupBatchesTest, WhatCannotGoTogetherIsRefused) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 20);
  const auto text = [&](const auto& change) {
    Loader::Options options = group_options();
    change(options);
    return test::error_text([&] { Loader loader(data, options); });
  };
  const auto rule = [&](const auto& change) {
    return text([&](Loader::Options& options) { change(*options.by_group); });
  };
  EXPECT_THAT(text([](Loader::Options& o) { o.order.tail = Order::Tail::kDrop; }),
              HasSubstr("batches by group cannot be made: the order's tail is drop"));
  EXPECT_THAT(rule([](Loader::ByGroup& r) { r.window = std::uint64_t{1} << 32; }),
              HasSubstr("larger than 2^31"));
  EXPECT_THAT(rule([](Loader::ByGroup& r) {
                r.groups = {{.key = "0"}, {.key = "0"}};
              }),
              HasSubstr("same key: '0'"));
  EXPECT_THAT(rule([](Loader::ByGroup& r) {
                r.groups = {{.key = "0"}, {.key = "2"}};
              }),
              AllOf(HasSubstr("sample 1 has the key '1'"), HasSubstr("groups are '0', '2'")));
  EXPECT_THAT(rule([](Loader::ByGroup& r) { r.expression = "1) + (1"; }), HasSubstr("syntax"));
  EXPECT_THAT(rule([](Loader::ByGroup& r) {
                r.groups = {{.key = "0", .batch_size = std::uint64_t{1} << 25}};
              }),
              HasSubstr("batch size of group '0' is 33554432"));
  EXPECT_THAT(text([](Loader::Options& o) {
                o.by_length = packing_options().by_length;
                o.by_length->window = o.by_group->window;
              }),
              HasSubstr("pack_to is set"));
}

}  // namespace
}  // namespace shardwise
