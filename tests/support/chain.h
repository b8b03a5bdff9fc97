#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <string>

#include "support/support.h"

namespace shardwise::test {

/// Calls use(seed) for repeats(slice, whole) seeds from a fresh one on, or for SHARDWISE_SEED
/// alone, until a check fails. A failure's trace names its seed.
inline void for_each_seed(int slice, int whole, const std::function<void(std::uint64_t)>& use) {
  const std::uint64_t first = random_seed();
  const int seeds = std::getenv("SHARDWISE_SEED") == nullptr ? repeats(slice, whole) : 1;
  for (int i = 0; i < seeds && !testing::Test::HasFailure(); ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    SCOPED_TRACE("SHARDWISE_SEED=" + std::to_string(seed));
    use(seed);
  }
}

/// Runs random chains of operations beside a model: repeats(slice, whole) of them from a fresh seed
/// on, or that of SHARDWISE_SEED alone, with its log on standard output. Returns how many.
/// @param run  what went wrong in the chain of a seed, or ""; may write what it does to the log. A
///             chain that failed is run again for its log; after three the rest is left out.
inline std::uint64_t run_chains(
    int slice, int whole, const std::function<std::string(std::uint64_t, std::ostream*)>& run) {
  const std::uint64_t first = random_seed();
  if (std::getenv("SHARDWISE_SEED") != nullptr) {
    EXPECT_EQ(run(first, &std::cout), "");
    return 1;
  }
  const auto chains = static_cast<std::uint64_t>(repeats(slice, whole));
  int failures = 0;
  for (std::uint64_t seed = first; seed < first + chains && failures < 3; ++seed) {
    const std::string what = run(seed, nullptr);
    if (what.empty()) continue;
    std::ostringstream log;
    run(seed, &log);
    ADD_FAILURE() << "SHARDWISE_SEED=" << seed << "\n" << log.str() << "-> " << what;
    ++failures;
  }
  return chains;
}

/// The dice of a random chain; a base of its model.
class Dice {
 protected:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  bool one_in(std::uint64_t n) { return pick(n) == 0; }
  bool flip() { return one_in(2); }

  std::mt19937_64 random_;
};

}  // namespace shardwise::test
