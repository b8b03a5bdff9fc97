// Tests shardwise-train over a server: it finds the number of classes without reading labels, and
// stops while it waits for the server.

#include <csignal>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>

#include "storage/test_http_server.h"
#include "support/images.h"
#include "tools/process.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TrainClassesTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1);
    TarBuilder tar;
    for (int i = 0; i < 24; ++i) {
      tar.file(std::to_string(i) + ".cls", std::to_string(i % 3));
      tar.file(std::to_string(i) + ".png", solid_png(8, 8, 10 * i));
    }
    shard_ = tar.end().bytes();
    server_.serve("/train.tar", {.body = shard_});
    index("plain.idx", {});
    index("column.idx", {"--column", "label=cls"});
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  void index(const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {SHARDWISE_PROGRAM, "index", "-o", dir_ / name});
    more.push_back(server_.url("/train.tar"));
    const auto finished = run(std::move(more));
    ASSERT_EQ(finished.code, 0) << finished.err;
  }
  std::vector<std::string> command(const std::string& index, std::vector<std::string> more) const {
    std::vector<std::string> all = {
        SHARDWISE_TRAIN, "--train", dir_ / index,        "--epochs", "1",       "--quiet",
        "--threads",     "1",       "--compute-threads", "1",        "--cache", dir_ / "shards"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished train(const std::string& index, std::vector<std::string> more) const {
    return run(command(index, std::move(more)));
  }

  const TempDir dir_;
  std::string shard_;
  TestHttpServer server_;
};

TEST_F(TrainClassesTest, NoShardIsFetchedToCountThem) {
  const int gets = server_.gets("/train.tar");
  const auto refused = train("plain.idx", {});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("number of classes is unknown"),
                    HasSubstr("plain.idx'; give --classes"), HasSubstr("--column cls\n")));
  EXPECT_EQ(server_.gets("/train.tar"), gets);
}

TEST_F(TrainClassesTest, LabelsOfLocalShardsAreReadWhateverCacheThereIs) {
  write_file(dir_ / "train.tar", shard_);
  const auto indexed =
      run({SHARDWISE_PROGRAM, "index", "-o", dir_ / "local.idx", dir_ / "train.tar"});
  ASSERT_EQ(indexed.code, 0) << indexed.err;
  for (const char* access : {"map", "range"}) {
    const auto trained = train("local.idx", {"--access", access});
    EXPECT_EQ(trained.code, 0) << trained.err;
  }
  const auto built_at_once = run(command("train.tar", {}));
  EXPECT_EQ(built_at_once.code, 0) << built_at_once.err;
}

TEST_F(TrainClassesTest, TheyComeFromTheColumnOrTheOption) {
  EXPECT_EQ(train("plain.idx", {"--classes", "3"}).code, 0);
  const auto from_column = train("column.idx", {"--checkpoint", dir_ / "run.pt"});
  EXPECT_EQ(from_column.code, 0) << from_column.err;
  EXPECT_THAT(
      train("column.idx", {"--checkpoint", dir_ / "run.pt", "--resume", "--classes", "5"}).err,
      HasSubstr("run.pt' has 3, this run 5"));
}

TEST_F(TrainClassesTest, ALabelThatIsNoClassIsNamedWhereItIsMet) {
  const auto finished = train("plain.idx", {"--classes", "2"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("not a class: sample "), HasSubstr("label 2; "),
                                  HasSubstr("larger --classes")));
}

using TrainFetchTest = TrainClassesTest;

TEST_F(TrainFetchTest, ASignalEndsTheWaitForAServerThatSaysNoMore) {
  for (const char* ranks : {"1", "2"}) {
    auto asked = std::make_shared<std::promise<void>>();
    auto once = std::make_shared<std::once_flag>();
    server_.serve("/train.tar",
                  {.body = shard_, .stall_after = 700, .before_get = [=](ServedFile&) {
                     std::call_once(*once, [&] { asked->set_value(); });
                   }});
    Process process(command("plain.idx", {"--classes", "3", "--local-ranks", ranks}));
    asked->get_future().wait();
    process.send(SIGTERM);
    const auto finished = process.wait();
    EXPECT_EQ(finished.code, 128 + SIGTERM) << finished.err;
    EXPECT_THAT(finished.err, AllOf(HasSubstr("interrupted"), Not(HasSubstr("error"))));
  }
}

}  // namespace
}  // namespace shardwise::test
