// Tests shards at a server that requires signed URLs. Every command fetches the shards by the URLs
// in its own arguments. Files on the disk must not contain the signatures.

#include <filesystem>

#include "served_shards.h"

namespace shardwise::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class PrivateServerTest : public ::testing::Test {
 protected:
  PrivateServerTest() {
    shards_.server.set_gate([this](const LoggedRequest& request) {
      const bool is_signed =
          request.target.ends_with("?X-Amz-Date=" + today_ + "&X-Amz-Signature=swordfish" + today_);
      const bool has_folder_signature = request.target.ends_with("?sv=1&sig=swordfish");
      const bool has_header = request.header("authorization") == "Bearer swordfish";
      return is_signed || has_folder_signature || has_header
                 ? std::nullopt
                 : std::optional(std::pair(403, std::string("who asks?")));
    });
  }
  ~PrivateServerTest() override {
    for (const auto& entry : fs::recursive_directory_iterator(shards_.dir.path())) {
      if (!entry.is_regular_file() || entry.path().extension() == ".txt") continue;
      EXPECT_THAT(read_file(entry.path()), Not(HasSubstr("swordfish"))) << entry.path();
    }
    EXPECT_THAT(shown_, Not(HasSubstr("swordfish")));
  }
  PrivateServerTest(const PrivateServerTest&) = delete;
  PrivateServerTest& operator=(const PrivateServerTest&) = delete;

  /// Returns a list of all shards with URLs signed on this day. From now on the server accepts no
  /// other signatures.
  std::string signed_on(const std::string& day) {
    today_ = day;
    std::string list;
    for (int i = 0; i < ServedShards::kShards; ++i) {
      list += shards_.server.url(ServedShards::path(i)) + "?X-Amz-Date=" + day +
              "&X-Amz-Signature=swordfish" + day + "\n";
    }
    write_file(shards_.dir / "signed.txt", list);
    return "@" + shards_.dir.path() + "/signed.txt";
  }
  Finished use(std::vector<std::string> arguments) {
    Finished finished = shardwise(std::move(arguments));
    shown_ += finished.out + finished.err;
    return finished;
  }
  std::string output(std::vector<std::string> arguments) {
    const Finished finished = use(std::move(arguments));
    EXPECT_EQ(finished.code, 0) << finished.err;
    return finished.out;
  }
  nlohmann::json json(std::vector<std::string> arguments) {
    return nlohmann::json::parse(output(std::move(arguments)));
  }
  std::string base() const { return shards_.server.url("/"); }

  ServedShards shards_;
  std::string today_;
  std::string shown_;
};

TEST_F(PrivateServerTest, AnIndexIsBuiltAndBroughtUpToDateByUrlsThatAreSignedAnew) {
  output({"index", "--quiet", "-o", shards_.index(), signed_on("1")});
  const int gets = shards_.gets();
  const auto again = json({"index", "--quiet", "--json", "-o", shards_.index(), signed_on("2")});
  EXPECT_EQ(again["shards_reused"], 10);
  EXPECT_EQ(again["shards_moved"], 0);
  EXPECT_EQ(shards_.gets(), gets);
  const auto plan = json({"index", "--dry-run", "--json", "-o", shards_.index(), signed_on("3")});
  EXPECT_EQ(plan["unchanged"].size(), 10U);
  // Build parts, and merge them.
  const std::string list = signed_on("4");
  output({"index", "--quiet", "-o", shards_.dir / "1.idx", "--part", "1/2", list});
  output({"index", "--quiet", "-o", shards_.dir / "2.idx", "--part", "2/2", signed_on("5")});
  output({"merge", "--quiet", "-o", shards_.dir / "all.idx", shards_.dir / "1.idx",
          shards_.dir / "2.idx"});
  EXPECT_EQ(json({"info", "--json", shards_.dir / "all.idx"})["url_base"], base());
  EXPECT_THAT(output({"info", shards_.dir / "all.idx"}),
              HasSubstr("\nURLs         below " + base() + "\n"));
}

TEST_F(PrivateServerTest, SourcesInPlaceOfAnIndexAreFetchedAsTheyAreSignedToday) {
  const std::vector<std::string> kept = {"--index-cache", shards_.dir / "indexes", "--quiet"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), kept.begin(), kept.end());
    return arguments;
  };
  EXPECT_EQ(output(with({"cat", signed_on("1"), "25", "jpg", "--access", "range"})), "image 125");
  const int gets = shards_.gets();
  EXPECT_EQ(output(with({"cat", signed_on("2"), "25", "jpg", "--access", "range"})), "image 125");
  EXPECT_EQ(shards_.gets(), gets + 2) << "one index, however they are signed: the first block, "
                                         "and the sample";
  const std::string list = signed_on("3");
  EXPECT_EQ(json(with({"cache", "fill", list, "--json", "--cache", shards_.cache()}))["fetched"],
            10);
  const auto epoch = json(with({"epoch", signed_on("4"), "--json", "--cache", shards_.cache()}));
  EXPECT_EQ(epoch["cache"]["fetched"], 0) << "the cache knows them";
  const std::string other = shards_.dir / "other";
  EXPECT_EQ(json(with({"epoch", list, "--json", "--cache", other}))["cache"]["fetched"], 10);
  EXPECT_EQ(use(with({"verify", signed_on("5")})).code, 0);
  output(with({"export", list, "--format", "wids", "-o", shards_.dir / "out.json"}));
  EXPECT_THAT(read_file(shards_.dir / "out.json"), HasSubstr("\"" + base() + "3.tar\""));
  EXPECT_THAT(output(with({"ls", list, "--limit", "1"})), HasSubstr(base() + "0.tar"));
  EXPECT_THAT(output(with({"query", list, "SELECT url FROM shards"})), HasSubstr(base() + "9.tar"));
}

TEST_F(PrivateServerTest, AnIndexIsReadByWhatOptionsSay) {
  output({"index", "--quiet", "-o", shards_.index(), signed_on("1")});
  const std::vector<std::string> cat = {"cat", shards_.index(), "25", "jpg", "--access", "range"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = cat;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const Finished without = use(cat);
  expect_failure(without, {"cannot fetch: '" + shards_.server.url("/1.tar") + "' (HTTP status 403",
                           "the URL has no password or signature; add credentials (--url-base, "
                           "--http-header, --bearer-token-file, "
                           "--netrc-file), or use s3:// URLs with keys"});
  for (const std::string& how :
       {base() + "?sv=1&sig=swordfish", base() + "=" + base() + "?sv=1&sig=swordfish",
        "HTTP://127.0.0.1:" + std::to_string(shards_.server.port()) + "=" + base() +
            "?sv=1&sig=swordfish"}) {
    EXPECT_EQ(output(with({"--url-base", how})), "image 125") << how;
  }
  EXPECT_EQ(output(with({"--http-header", "Authorization: Bearer swordfish"})), "image 125");
  EXPECT_EQ(
      use({"verify", "--quiet", shards_.index(), "--url-base", base() + "?sv=1&sig=swordfish"})
          .code,
      0);
  EXPECT_EQ(use({"verify", "--quiet", shards_.index()}).code, 1);
  const auto updated = json({"index", "--json", "--quiet", "-o", shards_.index(), "--url-base",
                             base() + "=" + base() + "?sv=1&sig=swordfish"});
  EXPECT_EQ(updated["shards_reused"], 10);
}

TEST_F(PrivateServerTest, AnIndexIsBroughtUpToDateFromWhereAllItsShardsAreToday) {
  output({"index", "--quiet", "-o", shards_.index(), signed_on("1")});
  const std::string today = base() + "?sv=1&sig=swordfish";
  shards_.server.serve(ServedShards::path(3), {.body = small_shard(400, 5), .etag = "\"new\""});
  const auto updated =
      json({"index", "--json", "--quiet", "-o", shards_.index(), "--url-base", today});
  EXPECT_EQ(updated["shards_scanned"], 1);
  EXPECT_EQ(updated["shards_reused"], 9);
  const auto dry =
      json({"index", "--json", "--dry-run", "-o", shards_.index(), "--url-base", today});
  EXPECT_EQ(dry["unchanged"].size(), 10U);
  EXPECT_EQ(json({"info", "--json", shards_.index()})["url_base"], base());

  // If --url-base does not apply, the error says why.
  const auto refused = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"index", "--quiet", "--url-base", today, "-o"});
    const Finished finished = use(std::move(arguments));
    EXPECT_EQ(finished.code, 2);
    return finished.err;
  };
  EXPECT_THAT(refused({shards_.index(), "--relocate", base(), "s3://box"}),
              HasSubstr("with --relocate write OLD=NEW"));
  write_file(shards_.dir / "local.tar", small_shard(0, 3));
  output({"index", "--quiet", "-o", shards_.dir / "local.idx", shards_.dir / "local.tar"});
  EXPECT_THAT(refused({shards_.dir / "local.idx"}), HasSubstr("has no shard at a URL"));
}

TEST_F(PrivateServerTest, AnOldBaseThatFitsNoShardIsNamed) {
  const std::string list = signed_on("1");
  output({"index", "--quiet", "-o", shards_.index(), list});
  const std::string wrong = "http://me:swordfish@old.example/data?sig=swordfish&sv=1";
  const std::string right = base() + "=" + base() + "?sv=1&sig=swordfish";
  const std::vector<std::vector<std::string>> commands = {
      {"cat", shards_.index(), "0", "--access", "range"},
      {"epoch", shards_.index(), "--quiet", "--cache", shards_.cache()},
      {"cache", "fill", shards_.index(), "--quiet", "--cache", shards_.cache()},
      {"verify", "--quiet", shards_.index()},
      {"index", "--quiet", "-o", shards_.index()},
      {"index", "--quiet", "-o", shards_.dir / "new.idx", list}};
  for (std::vector<std::string> command : commands) {
    for (const std::string& old :
         {wrong, base().substr(0, base().size() - 2), base() + "0", base() + "0.ta"}) {
      std::vector<std::string> one = command;
      one.insert(one.end(), {"--url-base", right, "--url-base", old + "=https://new.example/d"});
      const Finished finished = use(one);
      EXPECT_EQ(finished.code, 2) << one[0] << " " << old << finished.err;
      const std::string name = old == wrong ? "http://old.example/data?sig=***&sv=***" : old;
      EXPECT_THAT(finished.err,
                  AllOf(HasSubstr("--url-base: no shard's URL begins with OLD, '" + name + "'"),
                        HasSubstr("the first shard is '" + base() + "0.tar")))
          << one[0];
    }
    command.insert(command.end(), {"--url-base", right});
    EXPECT_EQ(use(command).code, 0) << command[0];
  }
  EXPECT_FALSE(fs::exists(shards_.dir / "x.idx.journal"));
}

TEST_F(PrivateServerTest, OptionsThatGoToNoShardAreNoted) {
  const std::string list = signed_on("1");
  output({"index", "--quiet", "-o", shards_.index(), list});
  write_file(shards_.dir / "token", "sesame");
  for (const std::vector<std::string>& given :
       {std::vector<std::string>{"--http-header", "X-Tenant: sesame"},
        {"--bearer-token-file", shards_.dir / "token"},
        {"--netrc-file", shards_.dir / "token"}}) {
    std::vector<std::string> command = {"verify", shards_.index(), "--url-base",
                                        "file://" + shards_.dir.path()};
    command.insert(command.end(), given.begin(), given.end());
    const std::string note = "note: " + given[0] + " has no effect";
    EXPECT_THAT(use(command).err, AllOf(HasSubstr(note), Not(HasSubstr("sesame"))));
    command.emplace_back("--quiet");
    EXPECT_THAT(use(command).err, Not(HasSubstr("has no effect")));
    command = {"verify", shards_.index(), "--url-base",
               base() + "=" + base() + "?sv=1&sig=swordfish"};
    command.insert(command.end(), given.begin(), given.end());
    EXPECT_THAT(use(command).err, Not(HasSubstr("has no effect")));
  }
}

TEST_F(PrivateServerTest, SeveralHostsNeedABaseEach) {
  TestHttpServer other;
  other.serve("/a.tar", {.body = small_shard(0, 3)});
  output({"index", "--quiet", "-o", shards_.index(), other.url("/a.tar"),
          shards_.server.url("/0.tar") + "?sv=1&sig=swordfish"});
  EXPECT_EQ(json({"info", "--json", shards_.index()})["url_base"], "");
  EXPECT_THAT(output({"info", shards_.index()}), Not(HasSubstr("\nURLs ")));
  const Finished alone =
      use({"cat", shards_.index(), "0", "--access", "range", "--url-base", base()});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("the index has shards at several hosts; write OLD=NEW"));
  EXPECT_EQ(output({"cat", shards_.index(), "3", "jpg", "--access", "range", "--url-base",
                    base() + "=" + base() + "?sv=1&sig=swordfish"}),
            "image 100");
}

}  // namespace
}  // namespace shardwise::test
