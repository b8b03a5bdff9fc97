#include "base/error_types.h"

#include <cerrno>
#include <set>
#include <string>

#include "base/errno_error.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ErrorTest, JoinsWhatWhereAndRemedy) {
  EXPECT_STREQ(Error(ErrorCode::kIo, "cannot read", "'a.tar', offset 512", "try again").what(),
               "cannot read: 'a.tar', offset 512; try again");
  EXPECT_STREQ(Error(ErrorCode::kIo, "cannot read", "", "try again").what(),
               "cannot read; try again");
  EXPECT_STREQ(Error(ErrorCode::kIo, "cannot read", "'a.tar'", "").what(), "cannot read: 'a.tar'");
  EXPECT_STREQ(Error(ErrorCode::kIo, "cannot read", "", "").what(), "cannot read");
  EXPECT_STREQ(Error(ErrorCode::kIo, "one text").what(), "one text");
}

TEST(ErrorTest, EachSubclassCarriesItsCodeAndIsAnError) {
  EXPECT_EQ(InvalidArgument("x").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(OutOfRange("x").code(), ErrorCode::kOutOfRange);
  EXPECT_EQ(NotFound("x").code(), ErrorCode::kNotFound);
  EXPECT_EQ(CorruptShard("x").code(), ErrorCode::kCorruptShard);
  EXPECT_EQ(Unsupported("x").code(), ErrorCode::kUnsupported);
  EXPECT_EQ(StaleIndex("a", "b", "c").code(), ErrorCode::kStaleIndex);
  EXPECT_EQ(CorruptIndex("x").code(), ErrorCode::kCorruptIndex);
  EXPECT_EQ(VersionMismatch("x").code(), ErrorCode::kVersionMismatch);
  EXPECT_EQ(BadField("x").code(), ErrorCode::kBadField);
  EXPECT_EQ(Mismatch("x").code(), ErrorCode::kMismatch);
  EXPECT_EQ(NotExact("x").code(), ErrorCode::kNotExact);
  EXPECT_EQ(Cancelled("x").code(), ErrorCode::kCancelled);
  EXPECT_EQ(FetchError("x").code(), ErrorCode::kFetch);
  EXPECT_THROW(throw StaleIndex("x"), Error);
  EXPECT_THROW(throw StaleIndex("x"), std::runtime_error);
}

TEST(ErrorTest, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kFetch); ++code) {
    names.emplace(error_code_name(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kFetch) + 1);
  EXPECT_EQ(names.count("Unknown"), 0U);
  EXPECT_EQ(error_code_name(ErrorCode::kStaleIndex), "StaleIndex");
  EXPECT_EQ(error_code_name(static_cast<ErrorCode>(200)), "Unknown");
}

TEST(ErrorTest, ErrnoBecomesACodeAndATextThatStandsAlone) {
  struct Case {
    int value;
    ErrorCode code;
    std::string part;
  };
  const Case cases[] = {
      {ENOTDIR, ErrorCode::kNotFound, "; check the path"},
      {ENOSPC, ErrorCode::kNoSpace, "free some space"},
      {EDQUOT, ErrorCode::kNoSpace, "free some space"},
      {EFBIG, ErrorCode::kNoSpace, "(ulimit -f)"},
      {EACCES, ErrorCode::kIo, "the permissions"},
      {EPERM, ErrorCode::kIo, "the permissions"},
      {EROFS, ErrorCode::kIo, "the permissions"},
      {EMFILE, ErrorCode::kIo, "(ulimit -n)"},
      {ENFILE, ErrorCode::kIo, "(ulimit -n)"},
      {EIO, ErrorCode::kIo, ")"},
  };
  for (const Case& c : cases) {
    const auto call = [&] { throw_errno(c.value, "cannot open", "dir/a.tar"); };
    EXPECT_EQ(error_code(call), c.code) << c.value;
    const std::string text = error_text(call);
    EXPECT_THAT(text, StartsWith("cannot open: 'dir/a.tar' (")) << c.value;
    EXPECT_THAT(text, HasSubstr(std::generic_category().message(c.value)));
    EXPECT_THAT(text, HasSubstr(c.part));
    if (c.value == EIO) {
      EXPECT_THAT(text, EndsWith(")"));
    }
  }
  const auto missing = [](const char* action) {
    return [action] { throw_errno(ENOENT, action, "dir/a.tar"); };
  };
  EXPECT_THROW(missing("cannot open")(), NotFound);
  for (const char* action : {"cannot open", "cannot access"}) {
    EXPECT_EQ(error_text(missing(action)), "no such file: 'dir/a.tar'; check the path");
  }
  EXPECT_THAT(error_text(missing("cannot create")), EndsWith("; check the path"));
}

TEST(ErrorTest, PathsInTextsAreOnePrintableLine) {
  EXPECT_THAT(error_text([] { throw_errno(EIO, "cannot open", "a\nb\x01.tar"); }),
              StartsWith("cannot open: 'a\\nb\\x01.tar' ("));
}

}  // namespace
}  // namespace shardwise
