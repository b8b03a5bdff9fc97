// Listings of many pages. The fetchers' tests have the pages of each store.
#include "storage/listing.h"

#include "support/support.h"

namespace shardwise {
namespace {

using test::error_text;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Fetcher::Request kRequest{.url = "s3://bucket/d/"};

TEST(ListingTest, AllPagesAreJoinedAndSorted) {
  const auto page = [](const std::string& at, std::vector<std::string>& urls) -> std::string {
    urls.push_back("x" + at);
    return at.empty() ? "2" : at == "2" ? "1" : "";
  };
  EXPECT_THAT(list_pages(kRequest, page), ElementsAre("x", "x1", "x2"));
}

TEST(ListingTest, PagesThatNameEachOtherInTurnAreAnError) {
  int num_pages = 0;
  const auto page = [&](const std::string& at, std::vector<std::string>&) -> std::string {
    return ++num_pages > 100 ? "" : at == "a" ? "b" : "a";
  };
  EXPECT_THAT(error_text([&] { list_pages(kRequest, page); }),
              AllOf(HasSubstr("'s3://bucket/d/'"), HasSubstr("send a list")));
  EXPECT_EQ(num_pages, 3);
}

TEST(ListingTest, AListingWithoutEndIsRefused) {
  for (const bool has_urls : {true, false}) {
    std::size_t num_pages = 0;
    const auto page = [&](const std::string&, std::vector<std::string>& urls) -> std::string {
      if (has_urls) urls.resize(urls.size() + 400);
      return ++num_pages > 10'000 ? "" : std::to_string(num_pages);
    };
    EXPECT_THAT(error_text([&] { list_pages(kRequest, page, 2000); }),
                AllOf(HasSubstr("more than 2,000 files or pages: 's3://bucket/d/'"),
                      HasSubstr("longer prefix")));
    EXPECT_EQ(num_pages, has_urls ? 6U : 2001U);
  }
}

}  // namespace
}  // namespace shardwise
