// Runs the two loaders of docs/cpp.md, whose code is between the marks. The runs stop within
// epochs, continue from their tokens, and prove their epochs.

// clang-format off
// [cpp.md]
#include <functional>
#include <string>
#include <shardwise/loader.h>
using shardwise::Batch, shardwise::Dataset, shardwise::Loader;
namespace columns = shardwise::columns;

Loader captioned_images(const char* index) {
  return {Dataset::open(index),
          {.columns = {columns::image("jpg;png", {.random_resized_crop = {{.size = {224, 224}}}, .horizontal_flip = 0.5}),
                       columns::text("txt"), columns::json("json")},
           .order = {.seed = 17}, .batch_size = 256, .threads = 8, .max_bad = 100}};
}

Loader packed_tokens(const char* index) {               // of int32, as numpy.tofile() writes them
  return {Dataset::open(index),
          {.columns = {columns::tokens("tokens")}, .order = {.seed = 17}, .batch_size = 8,
           .by_length = Loader::ByLength{.field = "tokens", .unit = 4, .pack = "tokens", .pack_to = 2048}}};
}

/// `step` says whether to go on. Returns the token of where it ended, to be given to the next run.
std::string train(Loader& loader, const std::string& token, const std::function<bool(const Batch&)>& step) {
  if (!token.empty()) loader.restore(shardwise::ResumeToken::from_text(token));   // on any number of ranks
  for (auto epoch : loader.epochs(3)) {
    for (const Batch& batch : epoch) {                  // batch["jpg"] is uint8 [256, 3, 224, 224],
      if (!step(batch)) return loader.state().to_text();   // batch["txt"].text(i) the caption of row i
    }
    epoch.prove();                                      // each sample exactly once, or an error
  }
  return {};
}
// [cpp.md]
// clang-format on

#include <map>
#include <numeric>
#include <vector>

#include "support/dataset.h"
#include "support/images.h"

namespace shardwise {
namespace {

/// Runs the loader, `steps` steps at a time, until its end. Returns the counts.
template <class Count>
std::map<std::string, int> train_with_ends(Loader (*make)(const char*), const std::string& index,
                                           int steps, Count count) {
  std::map<std::string, int> seen;
  std::string token;
  do {
    int left = steps;
    Loader loader = make(index.c_str());  // a named variable, as in a program
    token = train(loader, token, [&](const Batch& batch) {
      count(batch, seen);
      return --left > 0;
    });
  } while (!token.empty());
  return seen;
}

TEST(ReadmeLoadersTest, CaptionedImagesComeOnceEachEpochHoweverOftenTheRunEnds) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 300; ++i) {
    const bool is_bad = i == 77;
    samples.push_back({{i % 2 == 0 ? "png" : "jpg",
                        is_bad ? "broken" : test::encode_png(test::test_picture(20, 14))},
                       {"txt", "caption " + std::to_string(i)},
                       {"json", "{\"id\": " + std::to_string(i) + "}"}});
  }
  test::make_dataset(dir, "pairs", samples);
  const auto seen = train_with_ends(
      captioned_images, dir / "pairs.idx", 2,
      [](const Batch& batch, std::map<std::string, int>& to) {
        EXPECT_EQ(batch["jpg"].shape(), (std::vector<std::int64_t>{
                                            static_cast<std::int64_t>(batch.size()), 3, 224, 224}));
        for (std::size_t i = 0; i < batch.size(); ++i) {
          const std::string caption(batch["txt"].text(i));
          EXPECT_EQ("{\"id\": " + caption.substr(8) + "}", batch["json"].text(i));
          ++to[caption];
        }
      });
  EXPECT_EQ(seen.size(), 299u);
  EXPECT_FALSE(seen.contains("caption 77"));
  for (const auto& [caption, times] : seen) EXPECT_EQ(times, 3) << caption;
}

TEST(ReadmeLoadersTest, TokensArePackedOnceEachEpochHoweverOftenTheRunEnds) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 400; ++i) {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(1 + i * 37 % 900), i + 1);
    samples.push_back({{"tokens", std::string(reinterpret_cast<const char*>(ids.data()),
                                              ids.size() * sizeof(std::int32_t))}});
  }
  test::make_dataset(dir, "tokens", samples);
  const auto seen = train_with_ends(
      packed_tokens, dir / "tokens.idx", 5, [](const Batch& batch, std::map<std::string, int>& to) {
        EXPECT_EQ(batch["tokens"].shape(), (std::vector<std::int64_t>{8, 2048}));
        for (const auto id : batch["tokens"].values<std::int32_t>()) ++to[std::to_string(id)];
      });
  for (int i = 0; i < 400; ++i) {
    EXPECT_EQ(seen.at(std::to_string(i + 1)), 3 * (1 + i * 37 % 900)) << "tokens of sample " << i;
  }
}

TEST(ReadmeLoadersTest, AreThoseOfThePage) {
  const std::string source = test::source_dir();
  const std::string text = test::read_file(source + "/tests/loader/readme_loaders_test.cc");
  const std::string mark = "// [cpp.md]\n";
  const std::size_t begin = text.find(mark) + mark.size();
  const std::string code = text.substr(begin, text.find(mark, begin) - begin);
  EXPECT_THAT(test::read_file(source + "/docs/cpp.md"),
              testing::HasSubstr("```cpp\n" + code + "```\n"));
}

}  // namespace
}  // namespace shardwise
