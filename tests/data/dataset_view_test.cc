#include <algorithm>

#include "base/error_types.h"
#include "data/shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "support/dataset.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Indexed {
  explicit Indexed(int num_shards = 5, int samples_per_shard = 40) {
    BuildOptions options;
    options.content.columns = {parse_column("cls")};
    build_index(dir / "t.idx", test::write_shards(dir, num_shards, samples_per_shard), options);
  }
  Dataset open(Dataset::Access access = Dataset::Access::kMap) const {
    return Dataset::open(dir / "t.idx", {.access = access});
  }

  TempDir dir;
};

TEST(DatasetViewTest, HasTheSameMethodsOverItsOwnNumbers) {
  const Indexed t;
  for (const Dataset::Access access : {Dataset::Access::kMap, Dataset::Access::kRead}) {
    const Dataset all = t.open(access);
    const Dataset view = all.where("cls = 7 AND sample >= 20");
    ASSERT_EQ(view.size(), 18U);
    EXPECT_TRUE(view.is_view());
    EXPECT_FALSE(all.is_view());
    for (std::uint64_t i = 0; i < view.size(); ++i) {
      const Sample sample = view[i];
      EXPECT_EQ(sample.index(), i);
      EXPECT_EQ(sample.number_in_index(), 27 + 10 * i);
      EXPECT_EQ(view.number_in_index(i), 27 + 10 * i);
      EXPECT_EQ(sample["txt"], "text " + std::to_string(27 + 10 * i));
      EXPECT_EQ(view.find(sample.key())->index(), i);
    }
    EXPECT_EQ(view.get("s000037").index(), 1U);
    EXPECT_THAT(view[1].describe(), HasSubstr("sample 37 ('s000037')"));
    EXPECT_EQ(view.find("s000028"), std::nullopt) << "it is not of the view";
    EXPECT_THAT(view.shard_starts(), ElementsAre(0, 2, 6, 10, 14, 18));
    EXPECT_THAT(test::error_text([&] { view[18]; }), HasSubstr("sample 18 of a view of '"));
    EXPECT_EQ(view.sample_bytes()(17), all.sample_bytes()(197));
    EXPECT_EQ(all.sample_bytes()(197), 9U);
  }
}

TEST(DatasetViewTest, WhereCanBeCancelled) {
  const Indexed t;
  CancelToken::Flag cancel = false;
  const Dataset all = Dataset::open(t.dir / "t.idx", {.cancel = &cancel});
  const char* long_condition = "(SELECT count(*) FROM samples a, samples b, samples c) > cls";
  EXPECT_EQ(all.where("cls >= 0").size(), 200U);
  cancel = true;
  EXPECT_THROW((void)all.where(long_condition), Cancelled);
}

TEST(DatasetViewTest, HasAFingerprintOfItsOwn) {
  const Indexed t;
  const Dataset all = t.open();
  EXPECT_EQ(all.where("cls = 7").fingerprint(), t.open().where("cls + 0 = 7").fingerprint());
  EXPECT_NE(all.where("cls = 7").fingerprint(), all.where("cls = 8").fingerprint());
  EXPECT_NE(all.where("1").fingerprint(), all.fingerprint());
  EXPECT_EQ(all.where("cls < 0").size(), 0U);
}

TEST(DatasetViewTest, CanBeMadeOfNumbersKeysAndViews) {
  const Indexed t;
  const Dataset all = t.open();
  const Dataset view = all.subset(std::vector<std::uint64_t>{199, 3, 50});
  EXPECT_EQ(view.size(), 3U);
  EXPECT_EQ(view[0].number_in_index(), 3U) << "in the order of the index";
  EXPECT_EQ(view[2].number_in_index(), 199U);
  EXPECT_EQ(view.fingerprint(),
            all.subset(std::vector<std::string>{"s000050", "s000003", "s000199"}).fingerprint());
  EXPECT_EQ(view.subset(std::vector<std::uint64_t>{2})[0].number_in_index(), 199U)
      << "numbers of the view";
  EXPECT_EQ(view.where("sample > 10").size(), 2U) << "numbers of the index";
  EXPECT_EQ(all.where("cls = 7").where("sample < 100").size(), 10U);

  EXPECT_THAT(test::error_text([&] {
                all.subset(std::vector<std::uint64_t>{5, 200});
              }),
              HasSubstr("sample 200"));
  EXPECT_THAT(test::error_text([&] {
                all.subset(std::vector<std::uint64_t>{5, 5});
              }),
              HasSubstr("named twice: sample 5"));
  EXPECT_THAT(test::error_text([&] {
                all.subset(std::vector<std::string>{"x", "s000001", "y"});
              }),
              AllOf(HasSubstr("key 'x'"), HasSubstr("2 of the given keys")));
  EXPECT_THAT(test::error_text([&] { all.where("size = 3"); }), HasSubstr("no such column: size"));
}

TEST(DatasetViewTest, RangesTogetherGiveWhatTheWholeDoes) {
  const Indexed t;
  const Dataset all = t.open();
  for (const Dataset& data : {all, all.where("cls < 5")}) {
    for (const std::uint64_t step : {1U, 7U, 200U}) {
      std::vector<std::uint64_t> found;
      for (std::uint64_t first = 0; first < data.size(); first += step) {
        const std::uint64_t last = std::min(first + step, data.size());
        const Dataset part = data.where("cls = 3 OR cls = 7", first, last);
        for (std::uint64_t i = 0; i < part.size(); ++i) found.push_back(part.number_in_index(i));
      }
      const Dataset whole = data.where("cls = 3 OR cls = 7");
      ASSERT_EQ(found.size(), whole.size());
      for (std::uint64_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i], whole.number_in_index(i));
      }
    }
    EXPECT_EQ(data.where("1", 4, 4).size(), 0U);
    EXPECT_EQ(data.where("1", 0, 0).size(), 0U);
    EXPECT_EQ(data.where("1", data.size(), data.size()).size(), 0U);
    EXPECT_THAT(test::error_text([&] { data.where("1", 0, data.size() + 1); }),
                HasSubstr("no such sample: sample " + std::to_string(data.size()) + " of "));
    EXPECT_THAT(test::error_text([&] { data.where("1", 4, 3); }),
                AllOf(HasSubstr("range of samples"), HasSubstr("4 to 3")));
  }
  EXPECT_THAT(test::error_text([&] { all.where("0) OR (1", 10, 20); }),
              HasSubstr("cannot be used: near"));
}

TEST(DatasetViewTest, GivesTheValuesOfAColumn) {
  const TempDir dir;
  test::make_dataset(dir, "t", {{{"n", "7"}}, {{"n", "0.5"}}, {{"n", "two words"}}, {{"x", ""}}},
                     3);
  BuildOptions options;
  options.content.columns = {parse_column("n")};
  build_index(dir / "n.idx", {dir / "t-0.tar", dir / "t-1.tar"}, options);
  const Dataset data = Dataset::open(dir / "n.idx");
  using Type = Query::Value::Type;
  const std::vector<std::uint64_t> numbers{2, 0, 3, 1, 0};
  const std::vector<Query::Value> values = data.values("n", numbers);
  ASSERT_EQ(values.size(), 5U);
  EXPECT_EQ(values[0].type, Type::kText);
  EXPECT_EQ(values[0].bytes, "two words");
  EXPECT_EQ(values[1], (Query::Value{.type = Type::kInteger, .integer = 7}));
  EXPECT_EQ(values[2].type, Type::kNull);
  EXPECT_EQ(values[3], (Query::Value{.type = Type::kReal, .real = 0.5}));
  EXPECT_EQ(values[4], values[1]);
  const Dataset view = data.where("n = 7 OR n IS NULL");
  EXPECT_EQ(view.values("n", std::vector<std::uint64_t>{1})[0].type, Type::kNull);
  EXPECT_THAT(test::error_text([&] { view.values("n", numbers); }),
              HasSubstr("sample 2 of a view"));
  EXPECT_THAT(test::error_text([&] { data.values("m", numbers); }), HasSubstr("no column 'm'"));
}

TEST(DatasetViewTest, GivesTheNumbersOfAColumn) {
  const Indexed t(3, 10);
  const Dataset all = t.open();
  std::vector<double> expected;
  for (int i = 0; i < 30; ++i) expected.push_back(i % 10);
  EXPECT_EQ(all.numbers("cls"), expected);
  EXPECT_THAT(all.where("cls = 7").numbers("cls"), ElementsAre(7, 7, 7));
  EXPECT_THAT(all.subset(std::vector<std::uint64_t>{4, 15, 29}).numbers("cls"),
              ElementsAre(4, 5, 9));
  EXPECT_THAT(test::error_text([&] { all.numbers("weight"); }),
              testing::AllOf(HasSubstr("no column 'weight'"), HasSubstr("columns are 'cls'")));
  const auto sampler =
      make_sampler(all, {.kind = Resampled{.weights = "cls"}, .epoch_size = 20'000});
  std::vector<int> times(10);
  for (const std::uint64_t i : *sampler) ++times[i % 10];
  EXPECT_EQ(times[0], 0);
  EXPECT_NEAR(times[9], 20'000 * 9 / 45, 300);
}

}  // namespace
}  // namespace shardwise
