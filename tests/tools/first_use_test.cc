// Tests commands with a SOURCE in place of an INDEX, in real processes.

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/text.h"
#include "served_shards.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

class FirstUseTest : public testing::Test {
 protected:
  FirstUseTest() {
    fs::create_directory(data());
    write_file(data() + "/a.tar", small_shard(0, 3));
    write_file(data() + "/b.tar", small_shard(3, 4));
  }

  std::string data() const { return dir_ / "data"; }
  std::string folder() const { return dir_ / "indexes"; }
  /// Returns the arguments with --index-cache added.
  std::vector<std::string> with_folder(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--index-cache", folder()});
    return arguments;
  }

  const TempDir dir_;
};

/// Runs `program` as a user other than root, with the home folder `home`. If this process is not
/// root's, runs it as this user.
Finished as_user(const std::string& program, const std::string& home,
                 const std::vector<std::string>& arguments) {
  std::vector<std::string> command;
  if (::geteuid() == 0) {
    command = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  }
  command.insert(command.end(), {"/usr/bin/env", "-u", "XDG_CACHE_HOME", "HOME=" + home});
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(std::move(command));
}

TEST_F(FirstUseTest, ShardsThatMayOnlyBeReadWillDo) {
  const std::string home = dir_ / "home";
  fs::create_directory(home);
  // Copy the program: other users cannot read root's home folder, which may contain the build.
  const std::string program = dir_ / "shardwise";
  fs::copy_file(SHARDWISE_PROGRAM, program);
  const auto read_only = fs::perms::owner_read | fs::perms::owner_exec | fs::perms::group_read |
                         fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec;
  fs::permissions(dir_.path(), read_only);
  fs::permissions(data(), read_only);
  const bool is_root = ::geteuid() == 0;
  ASSERT_TRUE(!is_root || ::chown(home.c_str(), 65534, 65534) == 0);
  const Finished finished = as_user(program, home, {"info", data()});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("samples      7\n"));
  EXPECT_TRUE(fs::exists(home + "/.cache/shardwise"));
  EXPECT_EQ(std::distance(fs::directory_iterator(data()), {}), 2);
  // Folders that the user cannot write to, or that belong to another user.
  expect_failure(as_user(program, data(), {"info", data()}),
                 {"cannot make the directory: '" + data() + "/.cache'", "Permission denied",
                  "or name another folder (--index-cache DIR)"});
  if (is_root) {
    expect_failure(as_user(program, home, {"info", data(), "--index-cache", data()}),
                   {"folder for indexes", "belongs to another user", data()});
  }
  fs::permissions(dir_.path(), fs::perms::owner_all);
  fs::permissions(data(), fs::perms::owner_all);
}

TEST_F(FirstUseTest, OfManyCommandsAtOnceOneReadsTheShards) {
  for (int round = 0; round < 5; ++round) {
    write_file(data() + "/r" + std::to_string(round) + ".tar", small_shard(100 * round + 100, 50));
    std::vector<std::unique_ptr<Process>> commands;
    for (int i = 0; i < 6; ++i) {
      std::vector<std::string> command = with_folder({SHARDWISE_PROGRAM, "info", "--json", data()});
      commands.push_back(std::make_unique<Process>(command));
    }
    int builders = 0;
    for (const auto& command : commands) {
      const Finished finished = command->wait();
      EXPECT_EQ(finished.code, 0) << finished.err;
      EXPECT_EQ(nlohmann::json::parse(finished.out)["samples"], 7 + 50 * (round + 1));
      builders += finished.err.find("note: indexed") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(builders, 1) << round;
  }
}

/// Shards that take seconds to index, but little disk space.
class SlowFirstUseTest : public FirstUseTest {
 protected:
  static constexpr int kSamples = 2000;
  static constexpr int kShards = 600;

  SlowFirstUseTest() {
    fs::remove_all(data());
    fs::create_directory(data());
    TarBuilder tar;
    for (int i = 0; i < kSamples; ++i) tar.file(std::to_string(i) + ".txt", "");
    const std::string shard = compress(tar.end().bytes(), Compression::kGzip);
    for (int i = 0; i < kShards; ++i) {
      write_file(data() + "/" + std::to_string(i) + ".tar.gz", shard);
    }
  }

  std::vector<std::string> command() const {
    return with_folder({SHARDWISE_PROGRAM, "info", "--json", data()});
  }
  bool exists(std::string_view suffix) const {
    if (!fs::exists(folder())) return false;
    for (const auto& entry : fs::directory_iterator(folder())) {
      if (entry.path().string().ends_with(suffix)) return true;
    }
    return false;
  }
  void wait_for(std::string_view suffix) const {
    while (!exists(suffix)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  /// Waits until the process has opened the lock's file: it then waits for the lock or holds it.
  static void wait_until_in_line(pid_t pid) {
    const std::string open = "/proc/" + std::to_string(pid) + "/fd";
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      std::error_code ended;
      for (const auto& entry : fs::directory_iterator(open, ended)) {
        std::error_code closed;
        if (fs::read_symlink(entry.path(), closed).string().ends_with(".lock")) return;
      }
    }
  }
  static void expect_whole(const Finished& finished) {
    EXPECT_EQ(finished.code, 0) << finished.err;
    EXPECT_EQ(nlohmann::json::parse(finished.out)["samples"], kSamples * kShards);
  }
};

TEST_F(SlowFirstUseTest, WhenTheBuilderIsKilledTheNextGoesOn) {
  Process first(command());
  wait_for(".idx.journal");
  Process second(command());
  Process third(command());
  wait_until_in_line(second.pid());
  wait_until_in_line(third.pid());
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().code, 128 + SIGKILL);
  const Finished ends[] = {second.wait(), third.wait()};
  int builders = 0;
  for (const Finished& end : ends) {
    expect_whole(end);
    builders += end.err.find("note: indexed") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(builders, 1) << ends[0].err << ends[1].err;
  EXPECT_FALSE(exists(".journal"));
  EXPECT_FALSE(exists(".tmp"));
}

TEST_F(SlowFirstUseTest, AfterCtrlCTheNextGoesOnFromThere) {
  Process first(command());
  wait_for(".idx.journal");
  Process waiting(command());
  wait_until_in_line(waiting.pid());
  waiting.send(SIGINT);
  const Finished gave_up = waiting.wait();
  EXPECT_EQ(gave_up.code, 130);
  first.send(SIGINT);
  const Finished stopped = first.wait();
  EXPECT_EQ(stopped.code, 130);
  EXPECT_THAT(stopped.err, HasSubstr("interrupted; run the same command to continue"));
  EXPECT_TRUE(exists(".journal")) << "which the next goes on from";
  expect_whole(run(command()));
}

TEST_F(SlowFirstUseTest, WhoWaitsSaysForWhom) {
  Process first(command());
  wait_for(".idx.journal");
  first.send(SIGSTOP);
  Process second(command());
  while (second.err_so_far().find('\n') == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_THAT(second.err_so_far(),
              AllOf(StartsWith("shardwise: waiting: "),
                    HasSubstr(" s for process " + std::to_string(first.pid()) + " on "),
                    HasSubstr(", which builds the index\n")));
  first.send(SIGCONT);
  expect_whole(first.wait());
  expect_whole(second.wait());
}

class RemoteFirstUseTest : public testing::Test {
 protected:
  Finished use(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--index-cache", shards_.dir / "indexes"});
    return shardwise(std::move(arguments));
  }
  int heads() const {
    int count = 0;
    for (int i = 0; i < ServedShards::kShards; ++i) {
      count += shards_.server.count("HEAD", ServedShards::path(i));
    }
    return count;
  }

  ServedShards shards_;
};

TEST_F(RemoteFirstUseTest, AUrlIsASource) {
  const std::string url = shards_.server.url("/0.tar");
  const Finished first = use({"cat", url, "3", "jpg", "--cache", shards_.cache()});
  EXPECT_EQ(first.out, "image 103") << first.err;
  EXPECT_THAT(first.err, StartsWith("shardwise: note: 1 shard will be fetched, at most " +
                                    std::string("41.0 KiB\n")));
  const Finished second = use({"cat", url, "3", "jpg", "--access", "range"});
  EXPECT_EQ(second.out, "image 103") << second.err;
  EXPECT_EQ(second.err, "");
  shards_.server.serve(ServedShards::path(0),
                       {.body = small_shard(500, ServedShards::kSamples), .etag = "\"v2\""});
  EXPECT_EQ(use({"cat", url, "3", "jpg", "--access", "range"}).out, "image 503");
}

TEST_F(RemoteFirstUseTest, EveryCommandThatTakesAUrlTakesWhatItsServerNeeds) {
  const std::string url = shards_.server.url("/0.tar");
  const std::vector<std::vector<std::string>> commands = {
      {"info", url},
      {"ls", url},
      {"query", url, "SELECT count(*) FROM samples"},
      {"verify", url},
      {"export", url, "--format", "dali", "-o", shards_.dir / "dali"},
      {"order", url},
      {"explain", url, "--step", "0", "--batch", "2"},
      {"when", url, "--sample", "1", "--batch", "2"},
      {"plan", url, "--nodes", "1", "--cache-bytes", "1G"},
      {"epoch", url, "--access", "range"}};
  int n = 0;
  for (const auto& command : commands) {
    SCOPED_TRACE(command[0]);
    const std::string asks = std::to_string(n);
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--http-header", "X-Asks: " + asks, "--index-cache",
                                       shards_.dir / ("indexes" + std::to_string(n++))});
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 0) << finished.err;
    const auto requests = shards_.server.requests();
    EXPECT_TRUE(std::any_of(requests.begin(), requests.end(), [&](const LoggedRequest& request) {
      return request.header("x-asks") == asks;
    }));
    arguments.insert(arguments.end(), {"--url-base", "http://elsewhere/=" + url});
    EXPECT_THAT(shardwise(arguments).err, HasSubstr("no shard's URL begins with OLD"));
  }
}

TEST_F(RemoteFirstUseTest, StatesAreAskedForOnceAndBytesAreSaidFirst) {
  const Finished first = use({"info", shards_.pattern()});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, StartsWith("shardwise: note: 10 shards will be fetched, at most "
                                    "410.0 KiB\n"));
  EXPECT_EQ(heads(), ServedShards::kShards);
  EXPECT_EQ(shards_.gets(), ServedShards::kShards);
  EXPECT_EQ(use({"info", shards_.pattern()}).err, "");
  EXPECT_EQ(heads(), 2 * ServedShards::kShards);
  EXPECT_EQ(shards_.gets(), ServedShards::kShards);
}

TEST_F(RemoteFirstUseTest, ADescriptorsSizesAreCheckedBeforeAnyShardIsRead) {
  const auto serve = [&](std::size_t size, int num_samples) {
    shards_.server.serve(
        "/train.json",
        {.body =
             nlohmann::json{
                 {"wids_version", 1},
                 {"shardlist", {{{"url", "0.tar"}, {"filesize", size}, {"nsamples", num_samples}}}}}
                 .dump()});
  };
  const std::string url = shards_.server.url("/train.json");
  const std::string size = human_count(ServedShards::shard_bytes());
  serve(ServedShards::shard_bytes() + 1, ServedShards::kSamples);
  const std::string wrong = "is " + size + " bytes long, not ";
  expect_failure(use({"info", url}), {"/0.tar", wrong, "/train.json"});
  expect_failure(shardwise({"index", "-o", shards_.index(), url}), {"/0.tar", wrong});
  EXPECT_EQ(shards_.gets(), 0) << "nothing was read";
  EXPECT_FALSE(fs::exists(shards_.index()));
  serve(ServedShards::shard_bytes(), ServedShards::kSamples);
  const Finished right = shardwise({"index", "-o", shards_.index(), url});
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_THAT(right.err, StartsWith("shardwise: note: 1 shard will be fetched, at most "
                                    "41.0 KiB\n"));
  EXPECT_EQ(shardwise({"index", "-o", shards_.index(), url}).err, "") << "nothing is to be read";
  serve(ServedShards::shard_bytes(), ServedShards::kSamples + 1);
  EXPECT_THAT(use({"info", url}).err, HasSubstr("has 20 samples, not 21 as in"));
}

TEST(DaliFilesTest, BesideShardsTheyAreNoShards) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 3));
  const TempDir out;
  shardwise_output({"index", "-o", out / "x.idx", dir.path()});
  shardwise_output({"export", out / "x.idx", "--format", "dali", "-o", dir.path()});
  const auto report =
      nlohmann::json::parse(shardwise_output({"index", "--json", "-o", out / "x.idx", dir.path()}));
  EXPECT_EQ(report["shards"], 1);
  EXPECT_EQ(report["other_files"], 0);
  expect_failure(shardwise({"info", dir / "a.idx"}), {"the file is not a Shardwise index"});
}

}  // namespace
}  // namespace shardwise::test
