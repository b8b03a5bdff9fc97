// Tests that Ctrl-C leaves nothing half-written.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "terminal.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

/// Many compressed shards: indexing takes seconds, and they take little disk space.
class InterruptTest : public testing::Test {
 protected:
  static constexpr int kSamples = 2000;
  static constexpr int kShards = 1000;

  InterruptTest() {
    TarBuilder tar;
    for (int i = 0; i < kSamples; ++i) tar.file(std::to_string(i) + ".txt", "");
    fs::create_directory(shards_.path() + "/all");
    const std::string shard = compress(tar.end().bytes(), Compression::kGzip);
    for (int i = 0; i < kShards; ++i) {
      write_file(shards_ / ("all/" + std::to_string(i) + ".tar.gz"), shard);
    }
  }

  std::vector<std::string> command() const {
    return {SHARDWISE_PROGRAM, "index", "--quiet", "-o", out_ / "x.idx", shards_ / "all"};
  }

  /// Starts to index. Sends `signal` once a file was created, and waits for the end.
  Finished interrupted_by(int signal) const {
    const std::size_t before = out_.list().size();
    Process build(command());
    while (out_.list().size() == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    build.send(signal);
    return build.wait();
  }

  const TempDir shards_;
  const TempDir out_;
};

TEST_F(InterruptTest, WithoutAnIndexThereIsNone) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    const Finished finished = interrupted_by(signal);
    EXPECT_EQ(finished.code, 128 + signal);  // the exit code of a program that the signal ends
    EXPECT_EQ(finished.err, "shardwise: error: interrupted; nothing was left half-written\n");
    EXPECT_THAT(finished.out, testing::IsEmpty());
    EXPECT_THAT(out_.list(), testing::IsEmpty());
  }
}

TEST_F(InterruptTest, SignalsThatComeTogetherAreOne) {
  // `timeout` signals its child, and then the child's group.
  for (int round = 0; round < 20; ++round) {
    Process build(command());
    while (out_.list().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < 4; ++i) {
      build.send(SIGTERM);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(build.wait().code, 128 + SIGTERM);
    EXPECT_THAT(out_.list(), testing::IsEmpty());
  }
}

TEST(LongConditionTest, ATerminalShowsThatItRunsUntilItIsInterrupted) {
  const SmallIndex index;
  const std::string endless =
      "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c)";
  const Variable kind("TERM", "xterm");
  const std::vector<std::pair<std::vector<std::string>, std::string>> commands = {
      {{"query", index.path(), "SELECT " + endless}, "querying: 0:0"},
      {{"order", index.path(), "--where", endless + " > 0"}, "selecting: 0:0"},
      {{"repack", index.path(), "-o", index.dir() / "new", "--where", endless + " > 0"},
       "selecting: 0:0"}};
  for (const auto& [arguments, text] : commands) {
    const Terminal terminal;
    if (!terminal.is_open()) GTEST_SKIP() << "needs a terminal; skipped because none can be opened";
    std::vector<std::string> command = {SHARDWISE_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Process run(command, "", -1, terminal.fd());
    wait_for_texts(terminal, {text, text});
    run.send(SIGINT);
    EXPECT_EQ(run.wait().code, 128 + SIGINT);
    const std::string shown = terminal.shown();
    EXPECT_THAT(shown, testing::HasSubstr("\033[Kshardwise: ")) << "the bar is erased";
    EXPECT_THAT(shown, testing::EndsWith("\n"));
  }
}

TEST_F(InterruptTest, WhatWaitsForAPipeHearsOfIt) {
  const SmallIndex index;
  const std::string fifo = out_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::vector<std::vector<std::string>> commands = {
      {"query", index.path(), "@" + fifo},
      {"order", index.path(), "--skip", fifo},
      {"index", "-o", out_ / "y.idx", "@" + fifo},
      {"index", "--http-header", "@" + fifo, "-o", out_ / "y.idx", shards_ / "all"}};
  for (const std::vector<std::string>& command : commands) {
    std::vector<std::string> line = {SHARDWISE_PROGRAM};
    line.insert(line.end(), command.begin(), command.end());
    Process waiting(line);
    const int writer = ::open(fifo.c_str(), O_WRONLY | O_CLOEXEC);  // waits for the reader
    waiting.send(SIGINT);
    const Finished finished = waiting.wait();
    ::close(writer);
    EXPECT_EQ(finished.code, 130) << command[0];
    EXPECT_EQ(finished.err, "shardwise: error: interrupted; nothing was left half-written\n");
  }
}

TEST_F(InterruptTest, AnOldIndexStaysAsItWas) {
  shardwise_output({"index", "-o", out_ / "x.idx", shards_ / "all/0.tar.gz"});
  const std::vector<std::string> names = out_.list();
  const std::string bytes = read_file(out_ / "x.idx");
  EXPECT_EQ(interrupted_by(SIGINT).code, 130);
  EXPECT_EQ(out_.list(), names);
  EXPECT_EQ(read_file(out_ / "x.idx"), bytes);
  EXPECT_EQ(json_lines(shardwise_output({"info", "--json", out_ / "x.idx"}))[0]["shards"], 1);
}

TEST_F(InterruptTest, ALongBuildIsGoneOnWith) {
  std::vector<std::string> one_thread = command();
  one_thread.insert(one_thread.end(), {"--threads", "1"});
  Process build(one_thread);
  while (!fs::exists(out_ / "x.idx.journal")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  build.send(SIGINT);
  const Finished stopped = build.wait();
  EXPECT_EQ(stopped.code, 130);
  EXPECT_EQ(stopped.err,
            "shardwise: error: interrupted; run the same command to continue, without reading "
            "finished shards again\n");
  EXPECT_THAT(out_.list(), testing::ElementsAre("x.idx.journal"));

  const std::string first = shards_ / "all/0.tar.gz";  // even a slow machine has written this shard
                                                       // to the journal
  const Finished resumed = shardwise({"index", "--json", "-o", out_ / "x.idx", first});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  const auto report = nlohmann::json::parse(resumed.out);
  EXPECT_EQ(report["shards_resumed"], 1);
  EXPECT_EQ(report["shards_scanned"], 0);
  const auto anew =
      nlohmann::json::parse(shardwise_output({"index", "--json", "-o", out_ / "y.idx", first}));
  EXPECT_EQ(report["fingerprint"], anew["fingerprint"]);
  EXPECT_EQ(out_.list().size(), 4U) << "two indexes of two files; the journal is gone";
}

TEST_F(InterruptTest, AFailedBuildThatKeptItsWorkSaysHowToContinue) {
  write_file(shards_ / "all/zz.tar", std::string(2000, 'x'));  // the last shard, and not a tar
  std::vector<std::string> one_thread = command();
  one_thread.insert(one_thread.end(), {"--threads", "1"});
  expect_failure(shardwise({one_thread.begin() + 1, one_thread.end()}),
                 {"zz.tar", "; then run the same command to continue"});
  EXPECT_THAT(out_.list(), testing::ElementsAre("x.idx.journal"));
  const auto plan = nlohmann::json::parse(
      shardwise_output({"index", "--dry-run", "--json", "-o", out_ / "x.idx", shards_ / "all"}));
  EXPECT_GT(plan["resumed"].size(), 0U);
  EXPECT_EQ(plan["resumed"].size() + plan["read"].size(), std::size_t{kShards} + 1);
}

TEST_F(InterruptTest, PackLeavesWholeShardsOnly) {
  const TempDir images;
  fs::create_directory(images / "class");
  write_file(images / "class/0.png", std::string(100'000, 'x'));
  for (int i = 1; i < 20'000; ++i) {
    fs::create_hard_link(images / "class/0.png", images / ("class/" + std::to_string(i) + ".png"));
  }
  const std::string out = out_ / "made";
  Process pack(
      {SHARDWISE_PROGRAM, "pack", "--images", images.path(), "-o", out, "--max-samples", "50"});
  while (!fs::exists(out + "/shard-000001.tar")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pack.send(SIGINT);
  const Finished interrupted = pack.wait();
  EXPECT_EQ(interrupted.code, 130);
  EXPECT_THAT(interrupted.err,
              testing::AllOf(testing::HasSubstr("interrupted"),
                             testing::ContainsRegex("[0-9]+ shards? (is|are) complete"),
                             testing::HasSubstr("'" + out + "'"), testing::HasSubstr("--force")));
  for (const auto& entry : fs::directory_iterator(out)) {
    EXPECT_EQ(entry.path().extension(), ".tar") << entry.path();
  }
  const auto report =
      nlohmann::json::parse(shardwise_output({"index", "-o", out_ / "x.idx", "--json", out}));
  EXPECT_EQ(report["samples"].get<int>() % 50, 0);
  EXPECT_LT(report["samples"].get<int>(), 20'000);
}

}  // namespace
}  // namespace shardwise::test
