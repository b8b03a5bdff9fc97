#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

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

/// What a chain draws at random.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15U + 1) {}

  std::uint64_t number() { return engine_(); }
  /// In [0, n). REQUIRES: n > 0.
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  /// In [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  bool percent(std::uint64_t chance) { return below(100) < chance; }
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

/// What a chain found wrong.
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

/// Runs random chains of operations beside a model: repeats(slice, whole) of them from a fresh seed
/// on, or that of SHARDWISE_SEED alone, with its log on standard output. Returns how many.
/// @param chain  what went wrong in the chain of a seed, or "", or it throws it; may write what it
///             does to the log. A chain that failed is run again for its log; after three the rest
///             is left out.
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
