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
#include "support/says.h"

namespace shardwise {
namespace {

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

/// The result of run(): the delivered samples, the token afterwards, and the proof if the epoch
/// ended. run() reads an epoch of `data` on `world` ranks, from the token if one is given, and for
/// at most `max_steps` steps.
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
              test::Says("two columns", "same name: 'txt_segments'"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->pack = "cls"; }),
              test::Says("ragged columns of integers", "'cls'"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->padding = 256; }),
              test::Says("padding", "out of range", "256, column 'txt': uint8"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->padding = -1; }),
              HasSubstr("-1, column 'txt': uint8"));
  // A batch would take 36 GiB.
  EXPECT_THAT(
      text([](Loader::Options& o) {
        o.batch_size = 4;
        o.by_length->pack_to = std::uint64_t{1} << 30;
        o.memory = std::make_shared<LittleMemory>();
      }),
      test::Says("not fit into memory", "txt, 4.0 GiB", "4 rows of 1073741824 tokens", "pack_to"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->unit = 2; }),
              test::Says("another length", "packed", "column 'txt'"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->pack_to = 7; }),
              test::Says("sequence", "not fit into", "sample 13 has 22 tokens", "3 rows of 7"));
}

TEST(LengthBatchesTest, AColumnThatIsNotThereIsRefused) {
  const test::TempDir dir;
  make_texts(dir, 75);
  std::vector<std::string> shards;
  for (int i = 0; i < 8; ++i) shards.push_back(dir / ("texts-" + std::to_string(i) + ".tar"));
  build_index(dir / "with.idx", shards, {.content = {.columns = {parse_column("n=cls")}}});
  Loader::Options options = options_of();
  options.by_length = Loader::ByLength{.column = "none", .window = 32};
  EXPECT_ERROR(test::Says("no column 'none'"), Loader(Dataset::open(dir / "with.idx"), options));
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

TEST(LengthBatchesTest, WithinAnEpochOtherBatchesAreRefused) {
  const test::TempDir dir;
  const Dataset data = make_texts(dir, 75);
  const ResumeToken token = run(data, options_of(), 1, {}, 2).token;
  EXPECT_TRUE(token.to_text().starts_with("sw3."));
  EXPECT_EQ(ResumeToken::from_text(token.to_text()), token);
  const auto text = [&](const Loader::Options& options, const ResumeToken& from) {
    return test::error_text([&] { Loader(data, options).restore(from); });
  };
  EXPECT_THAT(text(options_of(40), token),
              test::Says("batches by length or group cannot change", "max_tokens 0' in the token",
                         "max_tokens 40' in this loader"));
  Loader::Options plain = options_of();
  plain.by_length.reset();
  EXPECT_THAT(text(plain, token), HasSubstr("none in this loader"));
  EXPECT_THAT(text(options_of(), run(data, plain, 1, {}, 2).token), HasSubstr("none in the token"));
  ResumeToken forged = token;
  forged.batches->delivered = 100;
  EXPECT_THAT(text(options_of(), forged),
              test::Says("100 delivered batches", "only 6: position 0"));
  forged = token;
  forged.batches->delivered = 1;
  EXPECT_THAT(text(options_of(), forged),
              test::Says("12 delivered samples, but 6", "epoch 0, position 0"));
  forged = token;
  forged.position = 12;
  forged.batches->delivered = 0;
  EXPECT_THAT(text(options_of(), forged), test::Says("no window begins", "position 12"));
  forged.batches->rule = "";
  EXPECT_THAT(text(plain, forged), HasSubstr("no window begins"));
  EXPECT_ERROR(test::Says("same by_length"),
               make_sampler(data, options_of().order, {})->resume(token));
  // A token at the end of an epoch can be used with another rule for batches.
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
  EXPECT_ERROR(test::Says("neither is set"), Loader::validate(data, nameless, 2));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->unit = 0; }), HasSubstr("unit"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->field = ""; }),
              HasSubstr("neither is set"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->column = "n"; }),
              HasSubstr("both are set"));
  EXPECT_THAT(text([](Loader::Options& o) { o.by_length->field = "text;caption"; }),
              test::Says("no shard", "field of by_length", "'text;caption' in '/",
                         "`shardwise info` lists the fields"));
  EXPECT_THAT(text([](Loader::Options& o) { o.global_batch_size = 8; }),
              HasSubstr("global_batch_size is set"));
  EXPECT_THAT(text([](Loader::Options& o) { o.order.balance_bytes = true; }),
              HasSubstr("balance_bytes is set"));
  EXPECT_THAT(text([](Loader::Options& o) { o.order.tail = Order::Tail::kDrop; }),
              HasSubstr("tail is drop"));
  EXPECT_THAT(text([](Loader::Options& o) { o.order.kind = Wids{}; }), HasSubstr("wids"));
  EXPECT_THAT(text([](Loader::Options& o) { o.order.epoch_size = std::uint64_t{1} << 60; }),
              test::Says("1,152,921,504,606,846,976 positions", "36,028,797,018,963,968 windows",
                         "more than 2^27", "larger window", "smaller epoch_size"));
}

Loader::Options group_options() {
  Loader::Options options = options_of();
  options.by_length.reset();
  options.by_group = Loader::ByGroup{.expression = "sample % 3", .window = 32};
  return options;
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
              test::Says("batch_sizes 6 6 6, held over, window 32' in the token",
                         "batch_sizes 6 6, held over, window 32' in this loader"));
  EXPECT_THAT(text([](Loader::ByGroup& rule) { rule.window = 64; }), HasSubstr("cannot change"));
  Loader::Options named = group_options();  // other keys for the same groups
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
              test::Says("sample 1 has the key '1'", "groups are '0', '2'"));
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
