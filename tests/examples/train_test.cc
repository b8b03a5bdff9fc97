// examples/train.cc trains, proves its epochs, and goes on from its checkpoint.

#include <cstdlib>

#include "libtorch/local_ranks.h"
#include "shardwise/libtorch.h"
#include "support/images.h"
#include "tools/process.h"

namespace shardwise::test {
namespace {

TEST(TrainExampleTest, GoesOnFromItsCheckpointOnOtherRanks) {
  const TempDir dir;
  ::setenv("XDG_CACHE_HOME", (dir / "cache").c_str(), 1);
  TarBuilder tar;
  for (unsigned i = 0; i < 20; ++i) {
    tar.file(std::to_string(i) + ".cls", std::to_string(i % 2));
    tar.file(std::to_string(i) + ".png", encode_png(test_picture(20, 24, i)));
  }
  write_file(dir / "t.tar", tar.end().bytes());
  const std::string checkpoint = dir / "run.pt";
  const auto train = [&](const char* epochs) {
    const Finished finished = run({SHARDWISE_EXAMPLE_TRAIN, dir / "t.tar", epochs, checkpoint});
    EXPECT_EQ(finished.code, 0) << finished.err;
    return finished.out;
  };
  EXPECT_EQ(train("1"), "epoch 0: 20 samples, each exactly once: proven\n");
  std::string rest = "epoch 1: 20 samples, each exactly once: proven\n";
  if (libtorch::has_distributed()) {
    libtorch::LocalRanksOptions two;
    two.num_ranks = 2;
    two.arguments = {SHARDWISE_EXAMPLE_TRAIN, dir / "t.tar", "2", checkpoint};
    EXPECT_TRUE(libtorch::run_local_ranks(two).ok());
    rest.clear();
  }
  EXPECT_EQ(train("3"), rest + "epoch 2: 20 samples, each exactly once: proven\n");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace shardwise::test
