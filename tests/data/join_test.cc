#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error_types.h"
#include "data/dataset_access.h"
#include "data/joins.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/order/sampler.h"
#include "support/dataset.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::make_dataset;
using testing::ElementsAre;
using testing::HasSubstr;
using How = Dataset::JoinOptions::How;

/// A dataset of images, and a dataset with captions of every second image.
struct Pictures {
  Pictures() {
    std::vector<test::Fields> first;
    std::vector<test::Fields> second;
    for (int i = 0; i < 10; ++i) {
      first.push_back({{"jpg", "picture " + std::to_string(i)}, {"cls", std::to_string(i)}});
    }
    images.emplace(make_dataset(dir, "images", first, 4));
    test::TarBuilder tar;
    for (int i = 8; i >= 0; i -= 2) {
      tar.file("s0000" + std::to_string(i) + ".txt", "caption " + std::to_string(i));
    }
    tar.file("other.txt", "caption of no image");
    test::write_file(dir / "captions.tar", tar.end().bytes());
    build_index(dir / "captions.idx", {dir / "captions.tar"});
    captions.emplace(Dataset::open(dir / "captions.idx"));
  }

  test::TempDir dir;
  std::optional<Dataset> images;
  std::optional<Dataset> captions;
};

TEST(JoinTest, AnInnerJoinHasTheFieldsOfBothAndDropsSamplesWithoutAMatch) {
  const Pictures t;
  const Dataset data = t.images->join(*t.captions);
  ASSERT_EQ(data.size(), 5U);
  const Sample sample = data[3];
  EXPECT_EQ(sample.key(), "s00006");
  EXPECT_EQ(sample["jpg"], "picture 6");
  EXPECT_EQ(sample["txt"], "caption 6");
  EXPECT_EQ(sample.integer("cls"), 6);
  EXPECT_EQ(sample.num_fields(), 3U);
  EXPECT_THAT(data.shard_starts(), ElementsAre(0, 2, 4, 5)) << "the shards are those of the images";
  const auto report = data.join_report();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(*report, (Dataset::JoinReport{.num_samples = 10,
                                          .num_samples_without_match = 5,
                                          .num_other_samples = 6,
                                          .num_other_samples_without_match = 1,
                                          .first_sample_without_match = "s00001",
                                          .first_other_sample_without_match = "other"}));
  EXPECT_EQ(t.images->join_report(), std::nullopt);
}

TEST(JoinTest, ALeftJoinKeepsSamplesWithoutAMatch) {
  const Pictures t;
  const Dataset data = t.images->join(*t.captions, {.how = How::kLeft});
  ASSERT_EQ(data.size(), 10U);
  EXPECT_FALSE(data.is_view());
  EXPECT_EQ(data[4].num_fields(), 3U);
  const Sample alone = data[5];
  EXPECT_EQ(alone.num_fields(), 2U);
  EXPECT_FALSE(alone.contains("txt"));
  EXPECT_THROW(static_cast<void>(alone["txt"]), NotFound);
}

TEST(JoinTest, ASampleOutlivesItsDatasets) {
  std::optional<Sample> kept;
  std::optional<Sample> copy;
  {
    const Pictures t;
    const Dataset data = t.images->join(*t.captions, {.suffix = "x"});
    kept = data[1];
    const std::vector<std::uint64_t> numbers{2, 1};
    for (const Sample& sample : data.samples(numbers)) copy = sample;
  }
  EXPECT_EQ((*kept)["txt"], "caption 2");
  EXPECT_EQ((*copy)["txt"], "caption 2");
  EXPECT_EQ(copy->key(), "s00002");
  const Sample moved = *std::move(kept);
  EXPECT_EQ(moved["jpg"], "picture 2");
}

TEST(JoinTest, AFieldOfBothNeedsASuffix) {
  const test::TempDir dir;
  const Dataset first =
      make_dataset(dir, "a", {{{"png", "1"}, {"left.png", "2"}, {"json.gz", "3"}, {"x", "4"}}});
  const Dataset second =
      make_dataset(dir, "b", {{{"png", "5"}, {"left.png", "6"}, {"json.gz", "7"}, {"y", "8"}}});
  const std::string text = test::error_text([&] { static_cast<void>(first.join(second)); });
  EXPECT_THAT(text, HasSubstr("suffix"));
  const Dataset both = first.join(second, {.suffix = "mask"});
  const Sample sample = both[0];
  EXPECT_EQ(sample["png"], "1");
  EXPECT_EQ(sample["mask.png"], "5");
  EXPECT_EQ(sample["left.mask.png"], "6");
  EXPECT_EQ(sample["mask.json.gz"], "7") << "the suffix is before all of the type";
  EXPECT_EQ(sample["y"], "8");
  EXPECT_THAT(detail::field_names(both),
              testing::UnorderedElementsAre("png", "left.png", "json.gz", "x", "mask.png",
                                            "left.mask.png", "mask.json.gz", "y"));
  EXPECT_THROW(static_cast<void>(both.join(second, {.suffix = "mask"})), InvalidArgument)
      << "the new name is taken";
  const Dataset thrice = both.join(second, {.suffix = "c"});
  const Sample wide = thrice[0];
  EXPECT_EQ(wide["c.png"], "5");
  for (const char* suffix : {".mask", "mask.", "Mask", "a/b", "a b"}) {
    EXPECT_THROW(static_cast<void>(first.join(second, {.suffix = suffix})), InvalidArgument)
        << suffix;
  }
}

TEST(JoinTest, ADatasetCanBeJoinedWithItself) {
  const Pictures t;
  const Dataset twice = t.images->join(*t.images, {.suffix = "again"});
  const Sample sample = twice[7];
  EXPECT_EQ(sample["jpg"], sample["again.jpg"]);
}

/// Two shards that both have the key "s00001".
Dataset with_repeated_key(const test::TempDir& dir) {
  test::write_file(dir / "r0.tar",
                   test::TarBuilder().file("s00000.r", "0").file("s00001.r", "1").end().bytes());
  test::write_file(dir / "r1.tar",
                   test::TarBuilder().file("s00001.r", "2").file("s00002.r", "3").end().bytes());
  build_index(dir / "r.idx", {dir / "r0.tar", dir / "r1.tar"});
  return Dataset::open(dir / "r.idx");
}

TEST(JoinTest, AKeyMayRepeatInTheFirstDatasetButNotInTheOther) {
  const test::TempDir dir;
  const Dataset repeated = with_repeated_key(dir);
  const Dataset other = make_dataset(dir, "o", {{{"o", "a"}}, {{"o", "b"}}});
  const Dataset data = repeated.join(other);
  ASSERT_EQ(data.size(), 3U);
  EXPECT_EQ(data[1].copy("o"), "b");
  EXPECT_EQ(data[2].copy("o"), "b");
  EXPECT_EQ(data[2].copy("r"), "2");

  const std::string text = test::error_text([&] { static_cast<void>(other.join(repeated)); });
  EXPECT_THAT(text, HasSubstr("'s00001'"));
  EXPECT_THAT(text, HasSubstr("r.idx"));
  EXPECT_THROW(static_cast<void>(other.join(repeated)), InvalidArgument);
  // A view with one of the two samples, and samples after it.
  const Dataset unique = other.join(repeated.subset(std::vector<std::uint64_t>{0, 2, 3}));
  ASSERT_EQ(unique.size(), 2U);
  EXPECT_EQ(unique[1].copy("r"), "2");
}

TEST(JoinTest, TheFingerprintIsOfBothDatasetsAndTheSamples) {
  const Pictures t;
  const Dataset inner = t.images->join(*t.captions);
  const Dataset left = t.images->join(*t.captions, {.how = How::kLeft});
  const Dataset selected = t.images->subset(std::vector<std::uint64_t>{0, 2, 4, 6, 8});
  EXPECT_EQ(selected.join(*t.captions).fingerprint(), inner.fingerprint())
      << "the same samples of the same datasets";
  EXPECT_NE(inner.fingerprint(), left.fingerprint());
  EXPECT_NE(left.fingerprint(), t.images->fingerprint());
  EXPECT_NE(left.fingerprint(),
            t.images->join(t.captions->subset(std::vector<std::uint64_t>{0}), {.how = How::kLeft})
                .fingerprint());
  // A join with another version of the captions has another fingerprint, so tokens distinguish
  // them.
  const auto sampler = make_sampler(left, {.seed = 3});
  const ResumeToken token = sampler->token();
  test::TarBuilder tar;
  tar.file("s00000.txt", "another caption");
  test::write_file(t.dir / "captions.tar", tar.end().bytes());
  build_index(t.dir / "captions.idx", {t.dir / "captions.tar"});
  const Dataset updated =
      t.images->join(Dataset::open(t.dir / "captions.idx"), {.how = How::kLeft});
  EXPECT_THROW(make_sampler(updated, {.seed = 3})->resume(token), Mismatch);
}

TEST(JoinTest, AnErrorNamesTheShardOfTheFieldsDataset) {
  const test::TempDir dir;
  const Dataset first = make_dataset(dir, "a", {{{"x", "1"}}});
  const Dataset second = make_dataset(dir, "b", {{{"n", "no number"}}});
  const Dataset both = first.join(second);
  EXPECT_THAT(test::error_text([&] { static_cast<void>(both[0].integer("n")); }),
              HasSubstr("b-0.tar"));
  test::write_file(dir / "b-0.tar", test::TarBuilder().file("s00000.n", "12").end().bytes());
  EXPECT_THROW(static_cast<void>(first.join(Dataset::open(dir / "b.idx"))[0]), StaleIndex);
}

/// Samples with a field of the dataset's name.
Dataset plain(const test::TempDir& dir, const std::string& name, std::size_t num_samples,
              std::size_t per_shard) {
  return make_dataset(dir, name, std::vector<test::Fields>(num_samples, {{name, "x"}}), per_shard);
}

TEST(JoinTest, AShardOfTheOtherIsNeededWhileAShardThatNeedsItIs) {
  const test::TempDir dir;
  const Dataset first = plain(dir, "a", 6, 2);
  const Dataset data = first.join(plain(dir, "b", 6, 3));
  const auto uses_in = [](const Dataset& joined, const EpochSchedule& schedule) {
    const auto side = detail::DatasetAccess::joins(joined)[0];
    return detail::shards_met(joined, *side).uses(schedule);
  };
  const auto uses = uses_in(data, {.num_slots = 6, .uses = {{2, 0, 2}, {0, 2, 4}, {1, 4, 6}}});
  ASSERT_TRUE(uses.has_value());
  EXPECT_EQ(uses->num_slots, 6U);
  EXPECT_THAT(uses->uses,
              ElementsAre(UseInterval{1, 0, 2}, UseInterval{0, 2, 6}, UseInterval{1, 4, 6}));
  const Dataset scattered = plain(dir, "c", 9, 9).join(plain(dir, "d", 9, 1));
  EXPECT_EQ(uses_in(scattered, {.num_slots = 9, .uses = {{0, 0, 9}}}), std::nullopt)
      << "it needs 9 shards";
}

TEST(JoinTest, MatchesOfManySamplesAreNarrowOrWide) {
  for (const std::uint64_t num_others : {std::uint64_t{9}, std::uint64_t{1} << 33}) {
    detail::SampleMatches matches(5, num_others);
    matches.set(3, num_others - 1);
    matches.set(0, 0);
    EXPECT_EQ(matches.of(3), num_others - 1);
    EXPECT_EQ(matches.of(0), 0U);
    EXPECT_EQ(matches.of(4), std::nullopt);
  }
}

}  // namespace
}  // namespace shardwise
