// Tests that memory does not grow with the indexed data, except for a small amount per shard.

#include <filesystem>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// A folder with many shards of 10 samples with 80 fields each, compressed to save disk space.
class ManyShards {
 public:
  explicit ManyShards(int num_shards) {
    TarBuilder tar;
    for (int i = 0; i < 800; ++i) {
      tar.file(std::to_string(i / 80) + ".f" + std::to_string(i % 80), "");
    }
    std::filesystem::create_directory(dir_ / "all");
    const std::string shard = compress(tar.end().bytes(), Compression::kGzip);
    for (int i = 0; i < num_shards; ++i) {
      write_file(dir_ / ("all/" + std::to_string(i) + ".tar.gz"), shard);
    }
  }

  /// Returns the peak memory of `shardwise` with these arguments, followed by the folder of shards.
  std::uint64_t peak_bytes(std::vector<std::string> arguments) const {
    arguments.push_back(dir_ / "all");
    const Finished finished = shardwise(std::move(arguments));
    EXPECT_EQ(finished.code, 0) << finished.err;
    return finished.peak_memory_bytes;
  }
  std::string index() const { return dir_ / "x.idx"; }

 private:
  const TempDir dir_;
};

TEST(MemoryTest, AnIndexOfTenTimesTheShardsTakesHardlyMoreToBuild) {
  const ManyShards few(400);
  const ManyShards many(4000);  // 3,200,000 members, whose table takes about 50 MB
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{}, {"--column", "f3"}}) {
    const auto peak = [&](const ManyShards& shards) {
      std::vector<std::string> arguments = {"index", "--quiet", "--threads",
                                            "2",     "-o",      shards.index()};
      arguments.insert(arguments.end(), options.begin(), options.end());
      std::filesystem::remove(shards.index());
      return shards.peak_bytes(arguments);
    };
    const std::uint64_t less = peak(few), more = peak(many);
    std::printf("400 shards: %.1f MiB, 4,000 shards: %.1f MiB\n", static_cast<double>(less) / kMiB,
                static_cast<double>(more) / kMiB);
    EXPECT_LT(more, less + 16 * kMiB);
  }
}

TEST(MemoryTest, HugeSizesAnswerAtOnceInLittleMemory) {
  const Finished finished = shardwise({"order", "--size", "1000000000000", "--limit", "5"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(lines_of(finished.out).size(), 5u);
  EXPECT_LT(finished.peak_memory_bytes, 50'000'000u);
}

}  // namespace
}  // namespace shardwise::test
