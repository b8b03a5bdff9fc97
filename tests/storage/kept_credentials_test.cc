// How long credentials are cached, by a clock that the test sets.
#include "storage/kept_credentials.h"

#include <gtest/gtest.h>

#include "support/support.h"

namespace shardwise {
namespace {

struct ToldClock {
  using duration = std::chrono::seconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<ToldClock>;
  static constexpr bool is_steady = false;
  static time_point now() { return at; }
  static inline time_point at{};
};

struct Pass {
  int number = 0;  // 0 means no credentials
  std::optional<ToldClock::time_point> expires = {};

  bool are_there() const { return number != 0; }
  std::string id() const { return std::to_string(number); }
};

class KeptCredentialsTest : public ::testing::Test {
 protected:
  KeptCredentialsTest() { ToldClock::at = {}; }
  /// Returns the number of the credentials at the time `at`. Each request to the service returns
  /// the next number.
  int taken(std::chrono::seconds at, const Refused& refused = {}, const std::string& name = "me") {
    ToldClock::at = ToldClock::time_point(at);
    const auto ask = [&](const CancelToken&) -> Pass {
      ++num_asked_;
      if (is_away_) throw FetchError("away", "", "");
      if (has_none_) return {};
      return {.number = ++last_, .expires = ToldClock::now() + lifetime_};
    };
    return kept_.get(name, refused, ask, {}).number;
  }

  KeptCredentials<Pass, ToldClock> kept_;
  std::chrono::seconds lifetime_ = std::chrono::hours(1);
  int last_ = 0, num_asked_ = 0;
  bool is_away_ = false, has_none_ = false;
};

using std::chrono::minutes;
using std::chrono::seconds;

TEST_F(KeptCredentialsTest, AreRenewedFiveMinutesBeforeTheirEnd) {
  EXPECT_EQ(taken(seconds(0)), 1);
  EXPECT_EQ(taken(minutes(55) - seconds(1)), 1);
  EXPECT_EQ(num_asked_, 1);
  EXPECT_EQ(taken(minutes(55)), 2);
  EXPECT_EQ(taken(minutes(60)), 2);
}

TEST_F(KeptCredentialsTest, ThatDoNotLastLongAreRenewedInTheLastQuarter) {
  lifetime_ = minutes(8);
  EXPECT_EQ(taken(seconds(0)), 1);
  EXPECT_EQ(taken(minutes(6) - seconds(1)), 1);
  EXPECT_EQ(taken(minutes(6)), 2);
}

TEST_F(KeptCredentialsTest, AreUsedUpToTheirEndWhileTheServiceIsAway) {
  EXPECT_EQ(taken(seconds(0)), 1);
  is_away_ = true;
  EXPECT_EQ(taken(minutes(56)), 1);
  EXPECT_EQ(taken(minutes(56) + seconds(29)), 1);
  EXPECT_EQ(num_asked_, 2) << "it is asked again after 30 s";
  EXPECT_EQ(taken(minutes(56) + seconds(30)), 1);
  EXPECT_EQ(num_asked_, 3);
  EXPECT_EQ(test::error_code([&] { taken(minutes(60)); }), ErrorCode::kFetch) << "they are void";
  is_away_ = false;
  EXPECT_EQ(taken(minutes(61)), 2);
}

TEST_F(KeptCredentialsTest, AServiceThatKnowsNobodyAnyMoreTakesNoneThatAreValid) {
  EXPECT_EQ(taken(seconds(0)), 1);
  has_none_ = true;
  EXPECT_EQ(taken(minutes(57)), 1);
  EXPECT_EQ(taken(minutes(61)), 0);
  const int asked = num_asked_;
  EXPECT_EQ(taken(minutes(65)), 0) << "that there are none is believed for a while";
  EXPECT_EQ(num_asked_, asked);
  has_none_ = false;
  EXPECT_EQ(taken(minutes(67)), 2);
}

TEST_F(KeptCredentialsTest, ThatWereRefusedOrAreAnothersAreNotTaken) {
  EXPECT_EQ(taken(seconds(0)), 1);
  EXPECT_EQ(taken(seconds(1), "1"), 2);
  EXPECT_EQ(taken(seconds(2), "1"), 2) << "these are others";
  EXPECT_EQ(taken(seconds(3), {}, "you"), 3);
}

}  // namespace
}  // namespace shardwise
