// Tests shards behind a server, and commands that write to a pipe, by running the program.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/text.h"
#include "served_shards.h"
#include "support/spawned.h"

namespace shardwise::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
namespace fs = std::filesystem;

nlohmann::json json_of(const std::vector<std::string>& arguments) {
  return nlohmann::json::parse(shardwise_output(arguments));
}

class RemoteCommandTest : public ::testing::Test {
 protected:
  nlohmann::json build(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"index", "--json", "--quiet", "-o", shards_.index()});
    more.push_back(shards_.pattern());
    return json_of(more);
  }
  nlohmann::json epoch(std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"epoch", "--json", "--quiet", shards_.index(), "--sampler", "sharded", "--window",
                 "1", "--batch", "5", "--cache", shards_.cache()});
    return json_of(more);
  }
  static std::string failure(std::vector<std::string> arguments, int code = 1) {
    const Finished finished = shardwise(std::move(arguments));
    EXPECT_EQ(finished.code, code) << finished.err;
    EXPECT_EQ(lines_of(finished.err).size(), 1U) << finished.err;
    return finished.err;
  }

  ServedShards shards_;
};

TEST_F(RemoteCommandTest, IndexReadsEachShardOnceAndAnUnchangedOneNotAgain) {
  const auto first = build();
  EXPECT_EQ(first["shards"], ServedShards::kShards);
  EXPECT_EQ(first["samples"], ServedShards::kShards * ServedShards::kSamples);
  EXPECT_EQ(shards_.gets(), ServedShards::kShards);
  const auto second = build();
  EXPECT_EQ(second["shards_scanned"], 0);
  EXPECT_EQ(second["fingerprint"], first["fingerprint"]);
  EXPECT_EQ(json_of({"index", "--json", "-o", shards_.index()})["shards_scanned"], 0);
  EXPECT_EQ(shards_.gets(), ServedShards::kShards);

  // Local copies of the shards give the same data set.
  std::vector<std::string> local = {"index", "--json", "-o", shards_.dir / "local.idx"};
  for (int i = 0; i < ServedShards::kShards; ++i) {
    local.push_back(shards_.dir / (std::to_string(i) + ".tar"));
    write_file(local.back(), ServedShards::body(i));
  }
  EXPECT_EQ(json_of(local)["fingerprint"], first["fingerprint"]);
}

TEST_F(RemoteCommandTest, KeptShardsAreNotFetchedAgain) {
  EXPECT_THAT(failure({"index", "-o", shards_.index(), "--keep", shards_.pattern()}, 2),
              HasSubstr("--keep requires --cache"));
  build({"--keep", "--cache", shards_.cache()});
  EXPECT_EQ(shards_.gets(), ServedShards::kShards) << "each shard once";
  const auto report = epoch();
  EXPECT_EQ(report["cache"]["fetched"], 0);
  EXPECT_EQ(report["cache"]["hits"], ServedShards::kShards);
  EXPECT_EQ(shards_.gets(), ServedShards::kShards) << "each shard once";
}

TEST_F(RemoteCommandTest, ADescriptorBehindTheServerIsIndexedAndItsClaimsChecked) {
  const std::string tar = ServedShards::body(0);
  const auto serve = [&](int num_samples, const std::string& md5) {
    shards_.server.serve(
        "/sets/train.json",
        {.body =
             nlohmann::json{
                 {"wids_version", 1},
                 {"shardlist", {{{"url", "../0.tar"}, {"nsamples", num_samples}, {"md5sum", md5}}}}}
                 .dump()});
  };
  const std::vector<std::string> index = {"index",       "--quiet",
                                          "-o",          shards_.index(),
                                          "--check-md5", shards_.server.url("/sets/train.json")};
  serve(ServedShards::kSamples, std::string(32, '0'));
  EXPECT_THAT(failure(index), AllOf(HasSubstr("md5"), HasSubstr("/0.tar")));
  serve(ServedShards::kSamples + 1, std::string(32, '0'));
  EXPECT_THAT(failure(index), AllOf(HasSubstr("21"), HasSubstr("20"), HasSubstr("/0.tar")));
  write_file(shards_.dir / "0.tar", tar);
  const std::string md5 = run({"/usr/bin/md5sum", shards_.dir / "0.tar"}).out.substr(0, 32);
  serve(ServedShards::kSamples, md5);
  EXPECT_THAT(shardwise_output(index), HasSubstr("20 samples in 1 shard"));
}

// Fault under test: tests/faults.md 10.
TEST_F(RemoteCommandTest, AServerThatIsAwayIsWaitedForAndThatIsSaidOnce) {
  const std::string url = shards_.server.url("/away.tar");
  const auto index = [&](const std::vector<int>& statuses, std::vector<std::string> more) {
    shards_.server.serve("/away.tar", {.body = ServedShards::body(0), .statuses = statuses});
    more.insert(more.begin(), {"index", "-o", shards_.dir / "away.idx", url});
    const Finished finished = shardwise(std::move(more));
    fs::remove_all(shards_.dir / "away.idx");
    return finished;
  };
  const std::vector<int> outage(5, 503);
  const Finished told = index(outage, {"--retry-for", "10m"});
  EXPECT_EQ(told.code, 0) << told.err;
  const std::string word =
      "shardwise: waiting: '" + url +
      "' cannot be fetched now (HTTP status 503); retrying for at most 10 min (--retry-for)\n";
  const std::size_t at = told.err.find(word);
  ASSERT_NE(at, std::string::npos) << told.err;
  EXPECT_EQ(told.err.find("waiting", at + word.size()), std::string::npos) << told.err;
  EXPECT_THAT(index(outage, {"--quiet"}).err, IsEmpty());

  const Finished once = index(outage, {"--quiet", "--retry-for", "0"});
  EXPECT_EQ(once.code, 1);
  EXPECT_THAT(once.err, AllOf(HasSubstr("(HTTP status 503, after 1 attempt); try again later, or "
                                        "for longer (--retry-for)")));
  for (const char* wrong : {"15", "-1s", "1 h", "5y", "99999999999999d", "s", ""}) {
    const Finished refused = index({}, {"--retry-for", wrong});
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_THAT(refused.err, HasSubstr("--retry-for: ")) << wrong;
  }
  EXPECT_THAT(
      index({}, {"--retry-for", "15"}).err,
      HasSubstr("'15' is not a time; write a number with a unit, e.g. 30s, 15m or 2h, or 0"));
  const Finished too_long = index({}, {"--retry-for", "31d"});
  EXPECT_EQ(too_long.code, 2);
  EXPECT_THAT(too_long.err,
              HasSubstr("the option is not valid: --retry-for; give 0 (one attempt) to 30 days"));
}

TEST_F(RemoteCommandTest, WhatOtherRanksOfTheNodeNeedStaysInTheCache) {
  build();
  const auto fetched = [&](const char* nodes) {
    epoch({"--prefetch", "0"});  // afterwards all shards are cached
    return epoch({"--world", "2", "--rank", "0", "--streams", "2", "--nodes", nodes,
                  "--cache-bytes", "60%", "--threads", "0", "--prefetch", "0"})["cache"]["fetched"];
  };
  EXPECT_EQ(fetched("2"), 0) << "those that this rank needs stay";
  EXPECT_EQ(fetched("1"), 2) << "those that both need first stay";

  const std::vector<std::string> rank = {"epoch", shards_.index(), "--world", "2"};
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), rank.begin(), rank.end());
    return failure(std::move(more), 2);
  };
  EXPECT_THAT(refused({"--rank", "0", "--nodes", "3"}),
              HasSubstr("--world 2 is not a multiple of --nodes 3"));
  EXPECT_THAT(refused({"--nodes", "1"}), HasSubstr("--nodes: needs --rank"));
}

TEST_F(RemoteCommandTest, WhatIsNotThereIsAnErrorAndLeavesNoIndex) {
  EXPECT_EQ(failure({"index", "--quiet", "-o", shards_.index(), shards_.server.url("/none.tar")}),
            "shardwise: error: cannot fetch: '" + shards_.server.url("/none.tar") +
                "' (HTTP status 404, after 1 attempt); check the URL\n");
  EXPECT_THAT(
      failure({"index", "--quiet", "-o", shards_.index(), "ftp://x/0.tar"}),
      AllOf(HasSubstr("the scheme 'ftp'"), HasSubstr("use http, https, s3, gs, az, hf or file")));
  EXPECT_THAT(shards_.dir.list(), IsEmpty());
}

// Fault under test: tests/faults.md 12 and 28.
TEST_F(RemoteCommandTest, CtrlCEndsWhatAStalledServerHoldsUp) {
  build();
  const std::string index = read_file(shards_.index());
  const std::vector<std::string> names = shards_.dir.list();
  const auto stall = [&](const char* etag) {
    for (int i = 0; i < ServedShards::kShards; ++i) {
      shards_.server.serve(ServedShards::path(i),
                           {.body = ServedShards::body(i), .etag = etag, .stall_after = 3000});
    }
  };
  stall("\"v2\"");
  const auto interrupted = [&](const std::vector<std::string>& arguments) {
    const int before = shards_.gets();
    std::vector<std::string> command = {SHARDWISE_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Process process(command);
    while (shards_.gets() == before) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    process.send(SIGINT);
    const Finished finished = process.wait();  // without the signal it would never end, as the
                                               // server stalls
    EXPECT_EQ(finished.code, 130) << arguments[0] << ": " << finished.err;
    EXPECT_EQ(finished.err, "shardwise: error: interrupted; nothing was left half-written\n");
  };
  interrupted({"index", "--quiet", "-o", shards_.index(), shards_.pattern()});
  EXPECT_EQ(read_file(shards_.index()), index);
  EXPECT_EQ(shards_.dir.list(), names);
  interrupted({"index", "--quiet", "-o", shards_.dir / "y.idx", "--keep", "--cache",
               shards_.cache(), shards_.pattern()});
  EXPECT_FALSE(fs::exists(shards_.dir / "y.idx"));
  EXPECT_THAT(shards_.half_written(), IsEmpty());
  stall("\"v1\"");  // with the content that was indexed
  interrupted({"verify", "--quiet", shards_.index()});
  interrupted({"epoch", "--quiet", shards_.index(), "--cache", shards_.cache()});
  interrupted({"cat", shards_.index(), "0", "--cache", shards_.cache()});
  EXPECT_THAT(shards_.half_written(), IsEmpty());
}

// Fault under test: tests/faults.md 43.
TEST_F(RemoteCommandTest, CommandsRunOnlyWhereAllowedAndWithoutAShell) {
  write_file(shards_.dir / "a b.tar", ServedShards::body(0));
  const std::string command = "pipe:cat '" + (shards_.dir / "a b.tar") + "'";
  EXPECT_THAT(failure({"index", "--quiet", "-o", shards_.index(), command}),
              AllOf(HasSubstr("pipe: URL"), HasSubstr("--allow-pipe")));
  EXPECT_EQ(shardwise({"index", "--allow-pipe", "-o", shards_.dir / "noted.idx", command}).err,
            "shardwise: note: 1 shard will be fetched, of unknown size\n");
  const auto report =
      json_of({"index", "--json", "--quiet", "--allow-pipe", "-o", shards_.index(), command});
  EXPECT_EQ(report["samples"], ServedShards::kSamples);
  EXPECT_EQ(shardwise_output(
                {"cat", shards_.index(), "3", "jpg", "--cache", shards_.cache(), "--allow-pipe"}),
            "image 103");
  EXPECT_THAT(failure({"cat", shards_.index(), "3", "--cache", shards_.dir / "other"}),
              AllOf(HasSubstr("'pipe:cat ***'"), HasSubstr("--allow-pipe")));
  EXPECT_EQ(shardwise({"verify", shards_.index()}).code, 1);
  EXPECT_EQ(shardwise_output({"verify", shards_.index(), "--allow-pipe"}),
            "ok       pipe:cat ***\n");
  const std::string sentinel = shards_.dir / "sentinel";
  for (const std::string& odd :
       {"; touch " + sentinel, "$(touch " + sentinel + ")", "`touch " + sentinel + "`",
        "&& touch " + sentinel, "| touch " + sentinel, "> " + sentinel,
        "\"$(touch " + sentinel + ")\"", "'; touch " + sentinel + ";'"}) {
    const Finished finished = shardwise(
        {"index", "--quiet", "--allow-pipe", "-o", shards_.dir / "odd.idx", command + " " + odd});
    EXPECT_EQ(finished.code, 1) << odd;  // because cat finds no such file
    EXPECT_FALSE(fs::exists(sentinel)) << odd;
  }
}

TEST_F(RemoteCommandTest, SecretsOfUrlsAreNeverShown) {
  std::string pattern = shards_.pattern() + "?token=hush-hush&part=1";
  pattern.insert(pattern.find("//") + 2, "lovelace:swordfish@");
  std::string shown;
  const auto take = [&](std::vector<std::string> arguments, int code) {
    const Finished finished = shardwise(std::move(arguments));
    EXPECT_EQ(finished.code, code) << finished.err;
    shown += finished.out + finished.err;
  };
  const std::string cache = shards_.cache();
  take({"index", "--keep", "--cache", cache, "-o", shards_.index(), pattern}, 0);
  take({"index", "--json", "-o", shards_.index(), pattern}, 0);
  take({"epoch", shards_.index()}, 1);
  take({"epoch", shards_.index(), "--cache", cache}, 0);
  take({"epoch", shards_.index(), "--cache", shards_.dir / "small", "--cache-bytes", "1"}, 1);
  take({"cache", "ls", cache}, 0);
  take({"cache", "ls", "--json", cache}, 0);
  take({"cache", "verify", cache}, 0);
  take({"verify", shards_.index()}, 0);
  take({"verify", "--json", shards_.index()}, 0);
  take({"explain", shards_.index(), "--step", "0", "--batch", "4"}, 0);
  take({"ls", shards_.index()}, 0);
  take({"ls", "--json", shards_.index()}, 0);
  take({"cat", "--json", shards_.index(), "0", "--cache", cache}, 0);
  std::string open_brace = pattern;
  open_brace.erase(open_brace.find('}'), 1);
  take({"info", open_brace}, 1);
  take({"export", "--json", shards_.index(), "--format", "dali", "-o", shards_.dir / "dali"}, 0);
  EXPECT_TRUE(fs::exists(shards_.dir / "dali/3.idx"));
  shards_.server.remove(ServedShards::path(3));
  take({"cache", "clear", cache}, 0);
  take({"index", "-o", shards_.dir / "y.idx", pattern}, 1);
  take({"epoch", shards_.index(), "--cache", cache}, 1);
  take({"verify", shards_.index()}, 1);
  EXPECT_THAT(shown, AllOf(HasSubstr("/3.tar?token=***&part=***"), Not(HasSubstr("hush")),
                           Not(HasSubstr("swordfish")), Not(HasSubstr("lovelace"))));
  for (const auto& entry : fs::directory_iterator(cache + "/shards")) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_THAT(read_file(entry.path()), AllOf(Not(HasSubstr("hush")), Not(HasSubstr("sword"))));
  }
}

TEST_F(RemoteCommandTest, CatReadsFromTheCacheOrByRange) {
  build();
  const std::vector<std::string> cat = {"cat", shards_.index(), "25", "jpg"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = cat;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  EXPECT_EQ(failure(cat),
            "shardwise: error: the shard is remote, and there is no shard cache: '" +
                shards_.server.url("/1.tar") +
                "'; give a cache (--cache DIR), or read single samples (--access range)\n");
  EXPECT_EQ(shardwise_output(with({"--access", "range"})), "image 125");
  EXPECT_EQ(shardwise_output(with({"--cache", shards_.cache()})), "image 125");
  const int before = shards_.gets();
  EXPECT_EQ(shardwise_output(with({"--cache", shards_.cache()})), "image 125");
  EXPECT_EQ(shards_.gets(), before);
  EXPECT_THAT(failure(with({"--cache-bytes", "1M"}), 2),
              HasSubstr("--cache-bytes requires --cache"));
  EXPECT_THAT(failure(with({"--access", "range", "--shard-connections", "65"}), 2),
              HasSubstr("--shard-connections; give 1 to 64"));
}

TEST_F(RemoteCommandTest, AnEpochInASmallCacheIsProvenAndFetchesWhatThePlanSays) {
  build();
  const std::vector<std::string> order = {"--sampler", "sharded",       "--window",
                                          "1",         "--cache-bytes", "20%"};
  std::vector<std::string> plan = {"plan",     "--json", shards_.index(), "--nodes", "1",
                                   "--epochs", "2"};
  plan.insert(plan.end(), order.begin(), order.end());
  const auto planned = json_of(plan);
  EXPECT_EQ(planned["cache_bytes"], 2 * ServedShards::shard_bytes());
  for (const char* number : {"0", "1"}) {
    const auto report =
        epoch({"--epoch", number, "--cache-bytes", "20%", "--threads", "0", "--prefetch", "0"});
    EXPECT_EQ(report["proof"],
              std::string("epoch ") + number + ": 200 samples, each exactly once: proven");
    const auto& cache = report["cache"];
    EXPECT_EQ(cache["fetched_bytes"],
              planned["epochs"][std::atoi(number)]["next_use"]["fetched_bytes"])
        << "epoch " << number;
    EXPECT_EQ(cache["hits"].get<int>() + cache["misses"].get<int>(), ServedShards::kShards);
    EXPECT_EQ(cache["bypassed"], 0);
  }
  const auto ahead = epoch({"--epoch", "2", "--cache-bytes", "20%", "--threads", "2"});
  EXPECT_EQ(ahead["samples"], 200);
}

TEST_F(RemoteCommandTest, ABudgetThatHoldsNoShardIsAnErrorThatSaysWhatIsEnough) {
  build();
  const std::vector<std::string> epoch = {"epoch",   "--quiet",       shards_.index(),
                                          "--cache", shards_.cache(), "--cache-bytes"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = epoch;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  EXPECT_THAT(failure(with({"1K"})),
              AllOf(HasSubstr("larger than the shard cache's budget: 'http://127.0.0.1:"),
                    HasSubstr("budget 1.0 KiB)"),
                    HasSubstr(std::to_string(ServedShards::shard_bytes()) + " bytes"),
                    HasSubstr("--cache-bypass-large")));
  const Finished bypassed = shardwise(with({"1K", "--cache-bypass-large"}));
  EXPECT_EQ(bypassed.code, 0) << bypassed.err;
  EXPECT_THAT(bypassed.out, HasSubstr("did not fit into the cache"));
  for (const char* wrong : {"0%", "101%", "x%", "%", "-5%", "1X", "1.5", ""}) {
    EXPECT_THAT(failure(with({wrong}), 2), HasSubstr("--cache-bytes")) << wrong;
  }
  EXPECT_THAT(failure({"index", "-o", shards_.index(), "--keep", "--cache", shards_.cache(),
                       "--cache-bytes", "20%", shards_.pattern()},
                      2),
              HasSubstr("a percentage needs"));
}

// Fault under test: tests/faults.md 15.
TEST_F(RemoteCommandTest, TwoEpochsAtOnceFetchEachShardOnce) {
  build();
  for (int i = 0; i < ServedShards::kShards; ++i) {
    shards_.server.serve(ServedShards::path(i), {.body = ServedShards::body(i),
                                                 .drip_bytes = 4000,
                                                 .drip_wait = std::chrono::milliseconds(5)});
  }
  const int before = shards_.gets();
  const std::vector<std::string> command = {SHARDWISE_PROGRAM, "epoch",   "--json",       "--quiet",
                                            shards_.index(),   "--cache", shards_.cache()};
  Process one(command);
  Process two(command);
  const Finished first = one.wait();
  const Finished second = two.wait();
  ASSERT_EQ(first.code + second.code, 0) << first.err << second.err;
  const auto a = nlohmann::json::parse(first.out);
  const auto b = nlohmann::json::parse(second.out);
  EXPECT_EQ(a["checksum"], b["checksum"]);
  EXPECT_EQ(a["cache"]["fetched"].get<int>() + b["cache"]["fetched"].get<int>(),
            ServedShards::kShards);
  EXPECT_EQ(shards_.gets() - before, ServedShards::kShards);
}

// Fault under test: tests/faults.md 2.
TEST_F(RemoteCommandTest, AKilledEpochLeavesNothingThatTheNextOneMinds) {
  build();
  const auto whole = epoch();
  for (int i = 0; i < ServedShards::kShards; ++i) {
    shards_.server.serve(ServedShards::path(i), {.body = ServedShards::body(i),
                                                 .drip_bytes = 4000,
                                                 .drip_wait = std::chrono::milliseconds(5)});
  }
  for (int round = 0; round < 5; ++round) {
    shardwise_output({"cache", "clear", shards_.cache()});
    const int before = shards_.gets();
    Process killed(
        {SHARDWISE_PROGRAM, "epoch", "--quiet", shards_.index(), "--cache", shards_.cache()});
    while (shards_.gets() < before + 1 + 2 * round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    killed.send(SIGKILL);
    EXPECT_EQ(killed.wait().code, 128 + SIGKILL);
    const auto again = epoch();
    EXPECT_EQ(again["checksum"], whole["checksum"]);
    EXPECT_THAT(shards_.half_written(), IsEmpty());
    EXPECT_EQ(json_of({"cache", "verify", "--json", shards_.cache()}),
              (nlohmann::json{{"shards", ServedShards::kShards},
                              {"damaged", nlohmann::json::array()},
                              {"foreign", nlohmann::json::array()}}));
  }
}

TEST_F(RemoteCommandTest, VerifyFindsWhatChangedBehindTheServer) {
  build({"--hash"});
  EXPECT_EQ(lines_of(shardwise_output({"verify", shards_.index(), "--full", "--quiet"})).size(),
            10U);
  std::string damaged = ServedShards::body(4);
  damaged[512] ^= 1;
  shards_.server.serve(ServedShards::path(4), {.body = damaged});
  EXPECT_EQ(shardwise({"verify", shards_.index(), "--quiet"}).code, 0) << "its headers are right";
  const Finished full = shardwise({"verify", shards_.index(), "--full", "--quiet"});
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.out, HasSubstr("DIFFERS  " + shards_.server.url("/4.tar") + ": the content of"));
  shards_.server.remove(ServedShards::path(5));
  const Finished gone = shardwise({"verify", shards_.index(), "--quiet"});
  EXPECT_EQ(gone.code, 1);
  EXPECT_THAT(gone.out, HasSubstr("HTTP status 404"));
}

TEST_F(RemoteCommandTest, VerifyNamesBothVersionsOfAShardThatWasReplaced) {
  shards_.server.serve(ServedShards::path(4), {.body = ServedShards::body(4), .etag = "\"v1\""});
  build({});
  const std::string longer = ServedShards::body(4) + std::string(512, '\0');
  shards_.server.serve(ServedShards::path(4), {.body = longer, .etag = "\"v2\""});
  const Finished replaced = shardwise({"verify", shards_.index(), "--quiet"});
  EXPECT_EQ(replaced.code, 1);
  const std::string size = human_count(ServedShards::body(4).size());
  EXPECT_THAT(
      replaced.out,
      HasSubstr("changed at its source since it was indexed: '" + shards_.server.url("/4.tar") +
                "' (" + size + " bytes, version '\"v1\"' when indexed; " +
                human_count(longer.size()) + " bytes, version '\"v2\"' now)"));
}

// faults.md 43: the program starts no other program.
TEST_F(RemoteCommandTest, Row43_AnEpochOverHttpRunsNoOtherProgram) {
  const auto strace = find_program("strace");
  if (!strace) GTEST_SKIP() << "needs strace; skipped because it is not in PATH";
  build();
  const std::string trace = shards_.dir / "trace";
  const Finished finished =
      run({*strace, "-f", "-qq", "-e", "trace=execve,execveat", "-o", trace, SHARDWISE_PROGRAM,
           "epoch", "--quiet", shards_.index(), "--cache", shards_.cache()});
  const std::string text = fs::exists(trace) ? read_file(trace) : "";
  if (text.find("exec") == std::string::npos)
    GTEST_SKIP() << "needs strace; skipped because it is not allowed to trace here";
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::vector<std::string> execs;
  for (const std::string& line : lines_of(text)) {
    if (line.find("exec") != std::string::npos) execs.push_back(line);
  }
  EXPECT_THAT(execs, ElementsAre(HasSubstr("shardwise")));
}

}  // namespace
}  // namespace shardwise::test
