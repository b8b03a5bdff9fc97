#include "base/agreement.h"

#include "support/support.h"

namespace shardwise::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(AgreementTest, WhatDiffersIsNamedWithTheRanksOnEachSide) {
  const Record common = {{"batch size", "32"}, {"seed", "1"}};
  std::vector<Record> ranks(5, common);
  EXPECT_EQ(find_disagreement(ranks), std::nullopt);
  ranks[3][0].second = "64";
  EXPECT_THAT(find_disagreement(ranks).value(),
              AllOf(HasSubstr("batch size"), HasSubstr("'64' on rank 3"),
                    HasSubstr("'32' on ranks 0 to 2 and 4")));
  ranks[0].pop_back();
  EXPECT_THAT(find_disagreement(ranks).value(),
              AllOf(HasSubstr("batch size"), HasSubstr("'64' on rank 3"),
                    HasSubstr("'32' on ranks 0 to 2 and 4"), HasSubstr("seed"),
                    HasSubstr("not given on rank 0"), HasSubstr("'1' on ranks 1 to 4")));
  EXPECT_THAT(*find_disagreement({{{"x", "1"}}, {{"x", "2"}}}),
              AllOf(HasSubstr("the x is"), HasSubstr("'1' on rank 0"), HasSubstr("'2' on rank 1")));
}

TEST(AgreementTest, RecordsGoThroughBytesAndOtherBytesAreNone) {
  const Record record = {{"name", std::string("\0\xff", 2)}, {"", ""}};
  const std::string bytes = to_bytes(record);
  EXPECT_EQ(record_from(bytes), record);
  EXPECT_EQ(record_from(""), Record());
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    const auto part = record_from(std::string_view(bytes).substr(0, size));
    EXPECT_TRUE(!part || part->size() < record.size()) << size;
  }
}

TEST(AgreementTest, ManyRanksAreListedShortly) {
  EXPECT_EQ(list_of({3}), "3");
  EXPECT_EQ(list_of({3, 7}), "3 and 7");
  EXPECT_EQ(list_of({0, 1, 2, 5}), "0 to 2 and 5");
  EXPECT_EQ(list_of({0, 2, 4, 6, 8, 10, 12, 14, 16, 18}), "0, 2, 4, 6, 8, 10, 12, 14, ...");
}

}  // namespace
}  // namespace shardwise::detail
