#include "shardwise/data/repack.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "base/fault_point.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/order/epoch_audit.h"
#include "support/chain.h"
#include "support/process.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::HasSubstr;

/// Writes `num_shards` shards of samples with random sizes and fields, and their index. Keys are
/// unique.
Dataset make_data(const TempDir& dir, int num_shards, test::Dice& dice) {
  std::vector<std::string> shards;
  for (int i = 0; i < num_shards; ++i) {
    TarBuilder tar;
    const std::uint64_t count = dice.between(1, 30);
    for (std::uint64_t j = 0; j < count; ++j) {
      const std::string key = "dir/" + std::to_string(i) + "_" + std::to_string(j);
      tar.file(key + ".cls", std::to_string(dice.below(10)));
      if (dice.flip()) tar.file(key + ".seg.bin", std::string(dice.below(3000), 'b'));
    }
    shards.push_back(dir / (std::to_string(i) + ".tar"));
    test::write_file(shards.back(), tar.end().bytes());
  }
  BuildOptions options;
  options.content.columns = {{"cls", "cls", ""}};
  build_index(dir / "old.idx", shards, options);
  return Dataset::open(dir / "old.idx");
}

using Fields = std::map<std::string, std::string>;

std::map<std::string, Fields> content_of(const Dataset& data) {
  std::map<std::string, Fields> all;
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    const Sample sample = data[i];
    Fields& fields = all[std::string(sample.key())];
    EXPECT_TRUE(fields.empty()) << sample.key();
    for (std::size_t j = 0; j < sample.num_fields(); ++j) {
      fields[std::string(sample.field(j).name)] = std::string(sample.field(j).bytes);
    }
  }
  return all;
}

std::vector<std::string> bytes_of(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tar") names.insert(entry.path());
  }
  std::vector<std::string> bytes;
  for (const std::string& name : names) bytes.push_back(test::read_file(name));
  return bytes;
}

std::ptrdiff_t num_files(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

/// Repacks random data with random conditions, limits and numbers of threads. Calls are interrupted
/// and continued. The new shards must have the samples of the data.
TEST(RepackTest, EachSampleIsInOneNewShardWhateverInterruptsTheCall) {
  test::for_each_seed(8, 300, [](std::uint64_t seed) {
    test::Dice dice(seed);
    const TempDir dir;
    const Dataset all = make_data(dir, static_cast<int>(dice.between(1, 6)), dice);
    const Dataset some = dice.flip() ? all : all.where("cls <= 7");
    if (some.empty()) return;
    Repacking::Options options;
    options.max_samples = dice.between(4, 40);
    if (dice.flip()) options.max_bytes = dice.between(3000, 20'000);
    if (dice.flip()) options.shuffle = dice.below(3);
    options.threads = static_cast<unsigned>(dice.below(4));
    const Repacking::Report whole = repack(some, dir / "whole", options);
    EXPECT_EQ(whole.samples, some.size());
    EXPECT_EQ(whole.shards_resumed, 0u);

    const std::uint64_t last = dice.below(whole.shards);
    Repacking::Options broken = options;
    broken.progress = [&](const Progress& at) {
      if (at.shards_done > last) throw Cancelled("enough");
    };
    EXPECT_EQ(test::error_code([&] { repack(some, dir / "parts", broken); }),
              ErrorCode::kCancelled);
    options.threads = static_cast<unsigned>(dice.below(4));
    const Repacking::Report resumed = repack(some, dir / "parts", options);
    EXPECT_GT(resumed.shards_resumed, last);
    EXPECT_EQ(bytes_of(dir / "parts"), bytes_of(dir / "whole"));
    EXPECT_FALSE(std::filesystem::exists(dir / "parts/repack.json"));

    const Dataset repacked = Dataset::open(resumed.index);
    EXPECT_EQ(content_of(repacked), content_of(some));
    if (!options.shuffle) {
      for (std::uint64_t i = 0; i < some.size(); ++i) {
        const Sample now = repacked[i], before = some[i];
        EXPECT_EQ(now.key(), before.key());
      }
    }
    for (std::uint64_t i = 0; i < repacked.index().num_shards(); ++i) {
      const Index::Shard shard = repacked.index().shard(i);
      EXPECT_LE(shard.num_samples, options.max_samples);
      // The end of the archive takes two blocks and the padding to 10 KiB. A larger sample is alone
      // in its shard.
      constexpr std::uint64_t kMaxEnd = 1024 + 10'239;
      const bool fits =
          shard.size_bytes <= kMaxEnd || shard.size_bytes - kMaxEnd <= options.max_bytes;
      EXPECT_TRUE(fits || shard.num_samples == 1) << shard.size_bytes;
    }
    EXPECT_EQ(repacked.numbers("cls").size(), some.size());
  });
}

TEST(RepackTest, NoShardThatIsReadIsReplaced) {
  const TempDir dir;
  test::Dice dice(2);
  const std::string folder = dir / "out", link = dir / "link";
  repack(make_data(dir, 3, dice), folder, {.max_samples = 5});
  const Dataset data = Dataset::open(folder + "/shards.idx");
  const std::vector<std::string> before = bytes_of(folder);
  const std::ptrdiff_t files = num_files(folder);
  std::filesystem::create_directory_symlink(folder, link);
  for (const std::string& to : {folder, link}) {
    for (const bool restart : {false, true}) {
      const Repacking::Options options{.index = dir / "new.idx", .restart = restart};
      EXPECT_THAT(test::error_text([&] { repack(data, to, options); }),
                  HasSubstr("a shard that is read: '" + folder));
    }
  }
  EXPECT_EQ(bytes_of(folder), before);
  EXPECT_EQ(num_files(folder), files);
  const Repacking::Report beside = repack(data, link, {.prefix = "a-", .index = dir / "a.idx"});
  EXPECT_EQ(beside.samples, data.size());
  EXPECT_EQ(content_of(Dataset::open(beside.index)), content_of(data));
}

TEST(RepackTest, LimitsOfZeroAndNoLimitsAreHandled) {
  const TempDir dir;
  test::Dice dice(3);
  const Dataset data = make_data(dir, 2, dice);
  EXPECT_EQ(test::error_code([&] { repack(data, dir / "out", {.max_samples = 0}); }),
            ErrorCode::kInvalidArgument);
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const Repacking::Report report =
      repack(data, dir / "out", {.max_samples = kMax, .dry_run = true});
  EXPECT_EQ(report.shards, 1u);
  EXPECT_EQ(report.samples, data.size());
  EXPECT_EQ(report.index, dir / "out/shards.idx");
  EXPECT_EQ(repack(data, dir / "out", {.max_samples = kMax, .max_bytes = kMax - 1}).shards, 1u);
}

/// Makes several calls in one folder, which differ in their options, or in the bytes but not the
/// headers of their data. Some calls are killed at random places. A call that returns has written
/// what an undisturbed call writes. A call that is refused has changed nothing.
TEST(RepackTest, AKilledCallIsContinuedOnlyByTheSameCall) {
  test::for_each_seed(6, 200, [](std::uint64_t seed) {
    test::Dice dice(seed);
    const TempDir dir;
    std::vector<Dataset> sources;
    for (const char text : {'a', 'b'}) {
      const std::string home = dir / std::string(1, text);
      std::filesystem::create_directory(home);
      test::Dice same(seed);
      std::vector<std::string> shards;
      for (int i = 0; i < 3; ++i) {
        TarBuilder tar;
        for (std::uint64_t j = same.between(1, 12); j > 0; --j) {
          tar.file("s" + std::to_string(100 * i + static_cast<int>(j)) + ".txt",
                   std::string(same.below(2000), text));
        }
        shards.push_back(home + "/" + std::to_string(i) + ".tar");
        test::write_file(shards.back(), tar.end().bytes());
      }
      build_index(home + "/old.idx", shards);
      sources.push_back(Dataset::open(home + "/old.idx"));
    }
    ASSERT_EQ(sources[0].fingerprint(), sources[1].fingerprint());

    struct Call {
      const Dataset* data;
      Repacking::Options options;
      std::vector<std::string> bytes;  // of an undisturbed call
      std::string plan;
    };
    std::vector<Call> calls;
    for (int i = 0; i < 4; ++i) {
      Call call{&sources[static_cast<std::size_t>(i % 2)], {}, {}, {}};
      call.options.max_samples = i < 2 ? 4 : dice.between(1, 6);
      if (dice.one_in(3)) call.options.max_bytes = dice.between(1000, 9000);
      if (i >= 2 && dice.flip()) call.options.shuffle = dice.below(3);
      const std::string folder = dir / ("whole" + std::to_string(i));
      {
        const Repacking work(*call.data, folder, call.options);
        call.plan = test::read_file(folder + "/repack.json");
      }
      repack(*call.data, folder, call.options);
      call.bytes = bytes_of(folder);
      calls.push_back(std::move(call));
    }
    const std::string folder = dir / "out";
    const Call* owner = nullptr;  // the killed call that the next one may continue
    for (int step = 0; step < 14; ++step) {
      const Call& call = owner != nullptr && dice.flip() ? *owner : dice.one_of(calls);
      Repacking::Options options = call.options;
      options.restart = dice.one_in(3);
      options.threads = static_cast<unsigned>(dice.below(3));
      static int left = 0;
      left = static_cast<int>(dice.below(30));  // 0 means that nothing is killed
      const std::vector<std::string> before =
          std::filesystem::exists(folder) ? bytes_of(folder) : std::vector<std::string>();
      const std::string end = test::in_child([&]() -> std::string {
        set_fault_handler([](const char*) {
          if (--left == 0) ::kill(::getpid(), SIGKILL);
        });
        try {
          repack(*call.data, folder, options);
          return "";
        } catch (const InvalidArgument& e) {
          return std::string("refused: ") + e.what();
        }
      });
      SCOPED_TRACE("step " + std::to_string(step) + ": " + end);
      if (end.empty()) {
        EXPECT_EQ(bytes_of(folder), call.bytes);
        EXPECT_FALSE(std::filesystem::exists(folder + "/repack.json"));
        EXPECT_EQ(content_of(Dataset::open(folder + "/shards.idx")), content_of(*call.data));
        owner = nullptr;
      } else if (end.starts_with("refused")) {
        EXPECT_EQ(bytes_of(folder), before);
        EXPECT_FALSE(options.restart) << "a restart is never refused";
        EXPECT_NE(&call, owner) << "the same call continues";
      } else {
        ASSERT_EQ(end, "killed by signal 9");
        const std::string path = folder + "/repack.json";
        const std::string plan = std::filesystem::exists(path) ? test::read_file(path) : "";
        owner = nullptr;
        for (const Call& each : calls) {
          if (each.plan == plan) owner = &each;
        }
      }
      if (testing::Test::HasFailure()) return;
    }
    const Call& last = calls[3];
    Repacking::Options options = last.options;
    options.restart = true;
    repack(*last.data, folder, options);
    EXPECT_EQ(bytes_of(folder), last.bytes);
  });
}

/// The old index has policies that keep or leave out bad members, and columns that lack values.
TEST(RepackTest, SamplesOfAnIndexWithLenientPoliciesAreCopied) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("./a.json", R"({"n": 1})").file("./a.TXT", "first").file("./a.txt", "second");
  tar.file("README", "no field").file("d/.hidden", "x").entry("dir/", '5', "");
  tar.file("d/b.json", "{broken").file("d/b.x.y", "");
  tar.entry("d/b.link", '1', "", "d/b.json");
  tar.file("./a.json", "again").file("__info__.json", "{}");
  tar.file(std::string(120, 'k') + ".json", "2").file("c.json", R"({"n": 3})");
  test::write_file(dir / "a.tar", tar.end().bytes());
  std::string cut = TarBuilder().file("e.json", R"({"n": 4})").file("f.json", "5").bytes();
  cut[1024 + 3] = 'X';  // the header of f.json
  test::write_file(dir / "b.tar", cut);
  for (const bool keeps : {false, true}) {
    BuildOptions options;
    options.content.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip);
    if (keeps) {
      options.content.policies.repeated_key = DefectPolicies::OnDefect::kKeep;
      options.content.policies.link = DefectPolicies::OnLink::kResolve;
    }
    options.content.columns = {{"n", "json", "$.n"}};
    const std::string path = dir / (keeps ? "keep.idx" : "skip.idx");
    build_index(path, {dir / "a.tar", dir / "b.tar"}, options);
    const Dataset data = Dataset::open(path);
    ASSERT_GE(data.size(), 4u);
    // One sample in each shard, because keys may be repeated.
    const std::string folder = path + ".new";
    const Dataset repacked = Dataset::open(repack(data, folder, {.max_samples = 1}).index);
    ASSERT_EQ(repacked.size(), data.size());
    for (std::uint64_t i = 0; i < data.size(); ++i) {
      const Sample now = repacked[i], before = data[i];
      EXPECT_EQ(now.key(), before.key());
      ASSERT_EQ(now.num_fields(), before.num_fields()) << now.key();
      for (std::size_t j = 0; j < now.num_fields(); ++j) {
        EXPECT_EQ(now.field(j).name, before.field(j).name);
        EXPECT_EQ(now.field(j).bytes, before.field(j).bytes);
      }
    }
    EXPECT_EQ(repacked.where("n IS NULL").size(), data.where("n IS NULL").size());
    EXPECT_EQ(repacked.where("n = 3").size(), 1u);
  }
}

TEST(RepackTest, AFolderIsNotShared) {
  const TempDir dir;
  test::Dice dice(1);
  const Dataset data = make_data(dir, 3, dice);
  const std::string folder = dir / "out";
  {
    const Repacking running(data, folder, {});
    EXPECT_THAT(test::error_text([&] { repack(data, folder); }), HasSubstr("another process"));
  }
  EXPECT_THAT(test::error_text([&] { repack(data, folder, {.shuffle = 1}); }),
              HasSubstr("other data or options"));
  EXPECT_THAT(test::error_text([&] { repack(data.where("cls < 5"), folder); }),
              HasSubstr("other data or options"));
  repack(data, folder);
  EXPECT_THAT(test::error_text([&] { repack(data, folder); }), HasSubstr("shard-000000.tar"));
  const Repacking::Report again = repack(data, folder, {.max_samples = 10'000, .restart = true});
  EXPECT_EQ(again.shards, 1u);
  EXPECT_EQ(bytes_of(folder).size(), 1u);
  test::write_file(folder + "/shard-000007.tar", std::string(2000, 'x'));
  EXPECT_THAT(test::error_text([&] { repack(data, folder, {.restart = true}); }),
              HasSubstr("shard-000007.tar"));
}

TEST(RepackTest, WhatCannotBeRepackedIsNamed) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("same.txt", "1").end();
  test::write_file(dir / "a.tar", tar.bytes());
  test::write_file(dir / "b.tar", TarBuilder().file("same.txt", "2").end().bytes());
  build_index(dir / "old.idx", {dir / "a.tar", dir / "b.tar"});
  const Dataset data = Dataset::open(dir / "old.idx");
  EXPECT_THAT(test::error_text([&] { repack(data, dir / "out"); }), HasSubstr("key 'same'"));
  EXPECT_EQ(repack(data, dir / "single", {.max_samples = 1}).shards, 2u);
  EXPECT_EQ(test::error_code([&] { repack(data.where("0"), dir / "none"); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { repack(data, dir / "other", {.index = dir / "old.idx"}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(repack(data, dir / "dry", {.max_samples = 1, .dry_run = true}).shards, 2u);
  EXPECT_FALSE(std::filesystem::exists(dir / "dry"));
}

}  // namespace
}  // namespace shardwise
