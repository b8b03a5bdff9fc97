#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "support/support.h"

namespace shardwise::test {

/// Calls use(seed) for consecutive seeds until a check fails. There are repeats(slice, whole)
/// seeds, which begin with a random one. If SHARDWISE_SEED is set, only that seed is used. The
/// trace of a failure names its seed.
inline void for_each_seed(int slice, int whole, const std::function<void(std::uint64_t)>& use) {
  const std::uint64_t first = random_seed();
  const int seeds = std::getenv("SHARDWISE_SEED") == nullptr ? repeats(slice, whole) : 1;
  for (int i = 0; i < seeds && !testing::Test::HasFailure(); ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    SCOPED_TRACE("SHARDWISE_SEED=" + std::to_string(seed));
    use(seed);
  }
}

/// The source of random values for a chain of operations.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15U + 1) {}

  std::uint64_t number() { return engine_(); }
  /// Returns a uniform random number in [0, n). REQUIRES: n > 0.
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  /// Returns a uniform random number in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  bool percent(std::uint64_t chance) { return below(100) < chance; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  bool flip() { return one_in(2); }
  template <class Value>
  void shuffle(std::vector<Value>& values) {
    std::shuffle(values.begin(), values.end(), engine_);
  }
  template <class Value>
  Value one_of(std::initializer_list<Value> values) {
    return values.begin()[below(values.size())];
  }
  template <class Value>
  const Value& one_of(const std::vector<Value>& values) {
    return values[below(values.size())];
  }

 private:
  std::mt19937_64 engine_;
};

/// Thrown when a chain finds an error.
struct ChainBroken {
  std::string text;
};

inline void must(bool holds, const std::string& what) {
  if (!holds) throw ChainBroken{what};
}

template <class Value>
std::string shown(const Value& value) {
  std::ostringstream out;
  if constexpr (requires { out << value; }) {
    out << value;
  } else {
    out << "[";
    for (const auto& one : value) out << " " << shown(one);
    out << " ]";
  }
  return out.str();
}

template <class Value>
void must_equal(const Value& actual, const Value& expected, const std::string& what) {
  if (actual != expected) {
    throw ChainBroken{what + ": " + shown(actual) + ", not " + shown(expected)};
  }
}

template <class Expected, class Action>
void must_throw(Action action, const std::string& what) {
  try {
    action();
  } catch (const Expected&) {
    return;
  }
  throw ChainBroken{"did not throw: " + what};
}

/// Runs random chains of operations against a model. There are repeats(slice, whole) chains, whose
/// consecutive seeds begin with a random one. If SHARDWISE_SEED is set, only the chain of that seed
/// runs, and its log is written to standard output. After three failures, the remaining chains are
/// skipped. Returns the number of chains.
/// @param chain  runs the chain of a seed. Returns the error, or "", or throws the error. It may
///   write its steps to the log. A failed chain is run again with a log.
inline std::uint64_t run_chains(
    int slice, int whole, const std::function<std::string(std::uint64_t, std::ostream*)>& chain) {
  const auto run = [&](std::uint64_t seed, std::ostream* log) {
    try {
      return chain(seed, log);
    } catch (const ChainBroken& broken) {
      return broken.text;
    } catch (const std::exception& error) {
      return std::string("threw ") + error.what();
    }
  };
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

/// The number of events of each kind in all chains, for readers of the test's output.
using Tally = std::map<std::string, std::uint64_t>;

/// Runs chains that are objects: constructs Chain(more..., seed, log, tally) and calls run(), which
/// throws the error.
template <class Chain, class... More>
void run_chains_of(int slice, int whole, More... more) {
  Tally tally;
  const std::uint64_t chains = run_chains(slice, whole, [&](std::uint64_t seed, std::ostream* log) {
    Chain(more..., seed, log, tally).run();
    return std::string();
  });
  std::cout << chains << " chains";
  for (const auto& [what, count] : tally) std::cout << ", " << count << " " << what;
  std::cout << "\n";
}

}  // namespace shardwise::test
