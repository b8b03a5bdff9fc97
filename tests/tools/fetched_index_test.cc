// Tests commands whose INDEX is a URL, in real processes.

#include <filesystem>
#include <regex>

#include "shardwise_program.h"
#include "storage/test_http_server.h"

namespace shardwise::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FetchedIndexCommandTest : public ::testing::Test {
 protected:
  FetchedIndexCommandTest() {
    for (const auto& entry : fs::directory_iterator(made_.dir().path())) {
      const std::string name = entry.path().filename();
      server_.serve("/set/" + name, {.body = read_file(entry.path())});
    }
  }

  std::string url() const { return server_.url("/set/all.idx"); }
  std::string folder() const { return dir_ / "indexes"; }
  std::vector<std::string> with_folder(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--index-cache", folder()});
    return arguments;
  }
  Finished use(std::vector<std::string> arguments) const {
    return shardwise(with_folder(std::move(arguments)));
  }

  const SmallIndex made_;
  const TempDir dir_;
  TestHttpServer server_;
};

TEST_F(FetchedIndexCommandTest, EachCommandThatReadsAnIndexReadsItFromAUrl) {
  const std::string cache = dir_ / "cache";
  const std::vector<std::vector<std::string>> commands = {
      {"info"},
      {"info", "--json"},
      {"ls"},
      {"ls", "--json"},
      {"cat", "4", "jpg"},
      {"cat", "--key", "5"},
      {"verify"},
      {"verify", "--json"},
      {"query", "SELECT url, samples FROM shards"},
      {"query", "SELECT count(*) FROM samples"},
      {"order", "--seed", "3"},
      {"explain", "--step", "1", "--batch", "2"},
      {"when", "--batch", "2", "--sample", "6"},
      {"epoch", "--quiet"},
      {"export", "--format", "wids", "-o", dir_ / "x.json"}};
  for (const std::vector<std::string>& command : commands) {
    SCOPED_TRACE(testing::PrintToString(command));
    const auto output = [&](const std::string& index, bool is_remote) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.begin() + 1, index);
      if (is_remote && (command[0] == "cat" || command[0] == "epoch")) {
        arguments.insert(arguments.end(), {"--cache", cache});
      }
      const Finished finished = use(std::move(arguments));
      EXPECT_EQ(finished.code, 0) << finished.err;
      std::string text = finished.out;
      // Remove what differs: where the index is, what the cache did, and how long the command took.
      for (const char* line :
           {"index  .*\n", "fetched from .*\n", "\"index\":\"[^\"]*\",\"origin\":\"[^\"]*\",",
            "(bytes|seconds|cache|waited|read|peak|memory|.*samples/s) .*\n", "[0-9.]+ s\\b"}) {
        text = std::regex_replace(text, std::regex(line), "");
      }
      const std::string place = is_remote ? server_.url("/set/") : made_.dir() / "";
      for (std::size_t at = 0; (at = text.find(place)) != std::string::npos;) {
        text.replace(at, place.size(), "PLACE/");
      }
      return text;
    };
    const std::string local = output(made_.path(), false);
    EXPECT_NE(local, "");
    EXPECT_EQ(output(url(), true), local);
  }
  EXPECT_EQ(server_.gets("/set/all.idx"), 1);
  // The plan counts what a cache fetches, which differs from local shards.
  EXPECT_THAT(use({"plan", url(), "--nodes", "1", "--cache-bytes", "1G"}).out,
              HasSubstr("shards       2, 16.0 KiB\n"));
  const Finished filled = use({"cache", "fill", url(), "--cache", cache, "--quiet"});
  EXPECT_EQ(filled.code, 0) << filled.err;
}

TEST_F(FetchedIndexCommandTest, InfoSaysWhereItComesFromAndAFetchIsTold) {
  const Finished first = use({"info", url()});
  EXPECT_THAT(first.out, AllOf(HasSubstr("index        " + folder()),
                               HasSubstr("fetched from " + url() + "\n")));
  EXPECT_THAT(first.err, HasSubstr("note: fetching the index '" + url() + "' ("));
  EXPECT_EQ(use({"info", url()}).err, "");
  const auto before = server_.requests().size();
  EXPECT_EQ(use({"info", url(), "--offline"}).out, first.out);
  EXPECT_EQ(server_.requests().size(), before);
  server_.set_gate([](const auto&) { return std::optional(std::pair(403, std::string("no"))); });
  expect_failure(use({"info", url(), "--retry-for", "0"}),
                 {"HTTP status 403", "or use this machine's copy of the index (--offline)"});
  expect_failure(
      use({"info", server_.url("/no.idx"), "--offline"}),
      {"this machine has no copy of the index: '" + server_.url("/no.idx"), "without --offline"});
}

TEST_F(FetchedIndexCommandTest, AServerThatIsAwayIsSaid) {
  std::string gone;
  {
    TestHttpServer server;
    gone = server.url("");
  }
  EXPECT_EQ(use({"info", url()}).code, 0);
  const Finished finished =
      use({"ls", url(), "--limit", "1", "--url-base", server_.url("/set") + "=" + gone});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("was not reached, so the last copy of the index is used"),
                    HasSubstr("cannot fetch: '" + gone)));
}

TEST_F(FetchedIndexCommandTest, ShardsAreFetchedFromAMirrorOrByASignature) {
  server_.set_gate([](const LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
    if (request.target.ends_with("?sv=1&sig=sesame")) return std::nullopt;
    return std::pair(403, std::string("no"));
  });
  const Finished finished =
      use({"cat", url() + "?sv=1&sig=sesame", "0", "jpg", "--access", "map", "--cache",
           dir_ / "cache", "--url-base", server_.url("/set") + "?sv=1&sig=sesame"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(finished.out, "image 0");
}

TEST_F(FetchedIndexCommandTest, NoCommandWritesAnIndexToAUrl) {
  const std::string shard = made_.dir() / "a.tar";
  const std::vector<std::vector<std::string>> commands = {
      {"index", "-o", url(), shard},
      {"index", "-o", url(), "--dry-run", shard},
      {"index", "-o", url(), "--relocate", "/a", "/b"},
      {"merge", "-o", url(), made_.path()}};
  for (const std::vector<std::string>& command : commands) {
    SCOPED_TRACE(testing::PrintToString(command));
    expect_failure(shardwise(command), {"an index cannot be written to a URL: '" + url() + "'",
                                        "name a local file, then upload both files"});
  }
  expect_failure(shardwise({"merge", "-o", dir_ / "x.idx", url()}),
                 {"the index is at a URL, but its files are needed", "download both files"});
  EXPECT_EQ(server_.requests().size(), 0U);
}

}  // namespace
}  // namespace shardwise::test
