#include <sys/wait.h>
#include <unistd.h>

#include "shardwise/loader/loader.h"
#include "support/dataset.h"

namespace shardwise {
namespace {

using testing::HasSubstr;

TEST(LoaderForkTest, AForkedChildIsToldToMakeItsOwn) {
  const test::TempDir dir;
  std::vector<test::Fields> samples(30, {{"txt", "text"}});
  for (const bool has_begun : {false, true}) {
    Loader loader(test::make_dataset(dir, "texts", samples, 10),
                  {.columns = {columns::text("txt")}, .batch_size = 4, .threads = 2});
    if (has_begun) loader.next();
    const pid_t child = fork();
    if (child == 0) {
      const std::string text = test::error_text([&] { loader.next(); });
      _exit(text.find("forked child") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    while (loader.next()) {
    }
    EXPECT_THAT(loader.epoch().prove(), HasSubstr("proven"));
  }
}

}  // namespace
}  // namespace shardwise
