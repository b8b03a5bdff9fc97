#pragma once

#include <string>
#include <vector>

#include "libtorch/local_ranks.h"
#include "shardwise/libtorch/process_group.h"
#include "support/dataset.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise::libtorch {

/// Runs cases of the rank program. Its ranks write their results to files, which told() reads.
class RanksTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_distributed())
      GTEST_SKIP() << "needs Gloo; skipped because this build runs one rank only";
  }

  /// @param out  prefix of the ranks' files, in dir_.
  LocalRanksResult run(int num_ranks, const std::string& name,
                       const std::vector<std::string>& more = {}, const std::string& out = "out") {
    LocalRanksOptions options;
    options.num_ranks = num_ranks;
    options.arguments = {SHARDWISE_RANK_PROGRAM, name, dir_ / out};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return run_local_ranks(options);
  }
  std::string told(int rank, const std::string& out = "out") const {
    return test::read_file(dir_ / (out + "." + std::to_string(rank)));
  }

  /// Makes an index of samples with 4x4 images of one level. The classes come in turn, and class c
  /// has the level 20 c + 10. The label of every fifth sample is not its image's class.
  std::string make_levels(const std::string& name, std::size_t count) {
    std::vector<test::Fields> samples;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t shown = i % 12;
      const std::size_t label = i % 5 == 4 ? (shown + 1) % 12 : shown;
      samples.push_back({{"png", test::solid_png(4, 4, static_cast<int>(20 * shown + 10))},
                         {"cls", std::to_string(label)}});
    }
    test::make_dataset(dir_, name, samples, 10);
    return dir_ / (name + ".idx");
  }

  const test::TempDir dir_;
};

}  // namespace shardwise::libtorch
