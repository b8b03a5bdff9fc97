// The options of `shardwise index` that say what goes into an index, and what is left out.

#include "base/text.h"
#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

nlohmann::json info(const std::string& index) {
  return nlohmann::json::parse(shardwise_output({"info", "--json", index}));
}

/// A tar with one thing of each kind that a policy is for.
std::string odd_tar() {
  TarBuilder tar;
  tar.file("a.txt", "1").file("README", "2").file("a.txt", "3").file("b.txt", "4");
  return tar.file("a.cls", "5").end().bytes();
}

TEST(PolicyTest, AColumnWithoutAValueLeavesNothingOut) {
  const TempDir dir;
  write_file(
      dir / "x.tar",
      TarBuilder().file("a.json", R"({"w": 1})").file("b.json", R"({"w": NaN})").end().bytes());
  std::vector<std::string> arguments = {"index",       "-o",       dir / "x.idx",
                                        dir / "x.tar", "--column", "json:$.w"};
  expect_failure(shardwise(arguments),
                 {"the field is not JSON, from which the column 'w' is taken ('NaN' where a value "
                  "belongs, at offset 6)",
                  "or take NULL for the value with `shardwise index --on-bad skip`"});
  arguments.insert(arguments.end(), {"--on-bad", "skip"});
  const Finished built = shardwise(arguments);
  EXPECT_EQ(built.code, 0) << built.err;
  EXPECT_THAT(built.err, HasSubstr("1 member could not be read for a column, whose value is NULL; "
                                   "see `shardwise ls --left-out"));
  EXPECT_THAT(built.err, testing::Not(HasSubstr("was left out")));
  EXPECT_EQ(
      shardwise_output({"query", dir / "x.idx", "SELECT key, ifnull(w, 'none') FROM samples"}),
      "a\t1\nb\tnone\n");
  EXPECT_THAT(shardwise_output({"info", dir / "x.idx"}),
              testing::AllOf(HasSubstr("not read for a column, whose value is NULL: 1 member"),
                             testing::Not(HasSubstr("\nleft out"))));
  shardwise_output({"export", "--format", "wids", "-o", dir / "x.json", dir / "x.idx"});
}

TEST(PolicyTest, EachKindHasItsOwn) {
  const TempDir dir;
  write_file(dir / "odd.tar", odd_tar());
  std::vector<std::string> arguments = {"index", "-o", dir / "x.idx"};
  const auto index = [&] {
    std::vector<std::string> all = arguments;
    all.push_back(dir / "odd.tar");
    return shardwise(all);
  };
  expect_failure(index(), {"the name has no key and field", "offset 1024", "'README'"});
  arguments.insert(arguments.end(), {"--on-no-field", "skip"});
  expect_failure(index(), {"the field 'txt' comes twice in sample 'a'", "offset 2048"});
  arguments.insert(arguments.end(), {"--on-duplicate-field", "skip"});
  expect_failure(index(), {"the key comes in two places of the shard, first at offset 0"});
  arguments.insert(arguments.end(), {"--on-repeated-key", "keep"});
  const Finished kept = index();
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_THAT(kept.err, HasSubstr("2 members were left out; see `shardwise ls --left-out"));
  EXPECT_EQ(info(dir / "x.idx")["samples"], 3);
  EXPECT_EQ(info(dir / "x.idx")["on_bad"],
            "damage=error,no-field=skip,duplicate-field=skip,repeated-key=keep");
  EXPECT_THAT(
      lines_of(shardwise_output({"info", dir / "x.idx"})),
      testing::IsSupersetOf(
          {"left out: 2 members (1 no-field, 1 duplicate-field)",
           "  shard 0, offset 1024, 'README': the name has no key and field, as in KEY.FIELD",
           "  shard 0, offset 2048, 'a.txt': the field 'txt' comes twice in sample 'a'"}));
  arguments.back() = "skip";
  EXPECT_EQ(index().code, 0);
  const auto skipped = info(dir / "x.idx");
  EXPECT_EQ(skipped["samples"], 2);
  EXPECT_EQ(skipped["num_skipped"], 3);
  ASSERT_EQ(skipped["fields"].size(), 1U) << "the only cls was left out";
  EXPECT_EQ(skipped["fields"][0]["name"], "txt");
  EXPECT_EQ(shardwise_output({"query", dir / "x.idx", "SELECT name FROM skipped ORDER BY offset"}),
            "README\na.txt\na\n");
}

TEST(IndexOptionsTest, TheRestOfADamagedShardIsCounted) {
  const TempDir dir;
  const std::string whole = small_shard(0, 4);
  write_file(dir / "whole.tar", whole);
  write_file(dir / "cut.tar", small_shard(10, 4).substr(0, whole.size() / 2 + 100));
  std::string broken = small_shard(20, 4);
  broken.replace(2048 + 3, 50, std::string(50, '\xff'));  // the third member's header
  write_file(dir / "broken.tar", broken);
  const auto built = shardwise({"index", "-o", dir / "x.idx", "--on-bad", "skip", dir / "*.tar"});
  EXPECT_EQ(built.code, 0) << built.err;
  const auto json = info(dir / "x.idx");
  EXPECT_EQ(json["shards_cut_short"], 2);
  std::uint64_t bytes = 0;
  for (const auto& member : json["skipped"]) {
    const std::uint64_t size = member["shard"] == 0 ? broken.size() : whole.size() / 2 + 100;
    const std::uint64_t rest = size - member["offset"].get<std::uint64_t>();
    bytes += rest;
    EXPECT_THAT(member["reason"].get<std::string>(),
                testing::EndsWith("; the rest of the shard is left out with it, " +
                                  std::to_string(rest) + " bytes"));
  }
  EXPECT_EQ(json["bytes_cut_off"], bytes);
  EXPECT_THAT(built.err, HasSubstr("2 members were left out, with the rest of 2 shards behind "
                                   "damage, "));
  EXPECT_THAT(shardwise_output({"info", dir / "x.idx"}),
              HasSubstr("(2 damage), with the rest of 2 shards behind damage, "));
}

TEST(IndexOptionsTest, LinksAreErrorsLeftOutOrResolvedAndWhatIsLeftOutIsListed) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.jpg", "image").entry("b.jpg", '1', "", "a.jpg").file("b.cls", "1");
  tar.entry("latest", '2', "", "a.jpg").entry("pipe", '6', "").file("__info.json__", "{}").end();
  write_file(dir / "x.tar", tar.bytes());
  const auto index = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"index", "-o", dir / "x.idx"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back(dir / "x.tar");
    return shardwise(arguments);
  };
  expect_failure(index({}), {"a hard link to 'a.jpg', and is named like a member",
                             "offset 1024, member "
                             "'b.jpg'",
                             "--on-link resolve"});
  EXPECT_EQ(index({"--on-link", "resolve"}).code, 0);
  EXPECT_EQ(shardwise_output({"cat", dir / "x.idx", "--key", "b", "jpg"}), "image");
  EXPECT_THAT(shardwise_output({"verify", dir / "x.idx"}), HasSubstr("ok"));
  EXPECT_EQ(info(dir / "x.idx")["num_skipped"], 3);

  const Finished skipped = index({"--on-link", "skip"});
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_THAT(skipped.err, HasSubstr("4 members were left out; see `shardwise ls --left-out"));
  const std::string shard = dir / "x.tar";
  EXPECT_THAT(
      lines_of(shardwise_output({"ls", "--left-out", dir / "x.idx"})),
      testing::ElementsAre(shard + "\t1024\tlink\tb.jpg\ta hard link to 'a.jpg'",
                           shard + "\t2560\tlink\tlatest\ta symbolic link to 'a.jpg'",
                           shard + "\t3072\tspecial\tpipe\ta device or FIFO",
                           shard + "\t3584\tmeta\t__info.json__\ta name that webdataset reserves"));
  const auto lines = lines_of(shardwise_output(
      {"ls", "--left-out", "--json", "--shard", "0", "--limit", "1", dir / "x.idx"}));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(lines[0]),
            (nlohmann::json{{"shard", 0},
                            {"url", shard},
                            {"offset", 1024},
                            {"kind", "link"},
                            {"name", "b.jpg"},
                            {"reason", "a hard link to 'a.jpg'"}}));
  expect_failure(shardwise({"ls", "--left-out", "--shard", "1", dir / "x.idx"}), {"shard"});
  EXPECT_THAT(shardwise_output({"info", dir / "x.idx"}),
              HasSubstr("left out: 4 members (2 link, 1 special, 1 meta)"));
  EXPECT_EQ(info(dir / "x.idx")["skipped"][1]["kind"], "link");
  EXPECT_EQ(info(dir / "x.idx")["on_bad"],
            "damage=error,no-field=error,duplicate-field=error,repeated-key=error,link=skip");
}

TEST(PolicyTest, ABadValueListsTheValidOnes) {
  for (const char* option : {"--on-bad", "--on-no-field", "--on-duplicate-field"}) {
    for (const char* value : {"perhaps", "keep"}) {
      const Finished finished = shardwise({"index", "-o", "x.idx", option, value, "a.tar"});
      EXPECT_EQ(finished.code, 2);
      EXPECT_THAT(finished.err, AllOf(HasSubstr(option), HasSubstr("choose error or skip;")));
    }
  }
  const Finished finished =
      shardwise({"index", "-o", "x.idx", "--on-repeated-key", "perhaps", "a.tar"});
  EXPECT_EQ(finished.code, 2);
  EXPECT_THAT(
      finished.err,
      HasSubstr("--on-repeated-key: 'perhaps' is not a choice; choose error, skip or keep"));
}

TEST(UniqueKeysTest, AKeyInTwoShardsIsAnErrorThatNamesBoth) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 3));
  write_file(dir / "b.tar", small_shard(2, 4));
  shardwise_output({"index", "-o", dir / "x.idx", dir.path()});
  expect_failure(shardwise({"index", "-o", dir / "x.idx", "--unique-keys", dir.path()}),
                 {"the key '2' comes in two shards: sample 2 in '", "a.tar' and sample 3 in '",
                  "b.tar'; rename the samples, leave a shard out, or index without --unique-keys"});
  EXPECT_EQ(info(dir / "x.idx")["unique_keys"], false) << "the old index stays";
  shardwise_output({"index", "-o", dir / "x.idx", "--unique-keys", dir / "a.tar"});
  EXPECT_THAT(shardwise_output({"info", dir / "x.idx"}), HasSubstr("keys         unique over all"));
}

TEST(UpdateTest, WithoutSourceTheIndexIsBroughtUpToDateWithWhatItWasBuiltWith) {
  const SmallIndex index;
  const std::string b = index.dir() / "b.tar";
  shardwise_output({"index", "-o", index.path(), "--hash", "--column", "cls", "--on-no-field",
                    "skip", index.dir() / "a.tar", b});
  EXPECT_THAT(shardwise_output({"index", "-o", index.path()}), HasSubstr("(0 read, 2 unchanged)"));
  write_file(b, small_shard(3, 6));
  EXPECT_THAT(shardwise_output({"index", "-o", index.path()}),
              HasSubstr("9 samples in 2 shards (1 read, 1 unchanged)"));
  const auto after = info(index.path());
  EXPECT_EQ(after["hashes"], true);
  EXPECT_EQ(after["columns"][0]["name"], "cls");
  EXPECT_EQ(after["on_bad"], "damage=error,no-field=skip,duplicate-field=error,repeated-key=error");
  EXPECT_EQ(shardwise({"verify", "--full", index.path()}).code, 0);
}

TEST(UpdateTest, OptionsThatChangeAnIndexNeedSource) {
  const SmallIndex index;
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--hash"},
                                             {"--column", "cls"},
                                             {"--part", "1/2"},
                                             {"--unique-keys"},
                                             {"--on-bad", "error"},
                                             {"--on-no-field", "skip"}}) {
    std::vector<std::string> arguments = {"index", "-o", index.path()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 2);
    EXPECT_THAT(finished.err,
                HasSubstr(options[0] + " needs SOURCE: without one, the index is updated with the "
                                       "options that it was built with"));
  }
  const Finished none = shardwise({"index", "-o", index.dir() / "none.idx"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("SOURCE is required"));
}

TEST(MissingShardsTest, OneThatLooksLikeTwoIsToldThatSourcesAreNotJoined) {
  const TempDir dir;
  const std::string joined = (dir / "a") + "::" + (dir / "b");
  expect_failure(shardwise({"index", "-o", dir / "x.idx", joined}),
                 {"the shard does not exist: '" + joined,
                  "; sources are not joined by ::, give each by itself"});
}

TEST(MissingShardsTest, WhatWasMissingIsTakenWhenItComes) {
  const TempDir dir;
  const auto shard = [&](int i) { return dir / ("p" + std::to_string(i) + ".tar"); };
  for (const int i : {0, 2}) write_file(shard(i), small_shard(i * 10, 3));
  const auto samples = [&] { return info(dir / "x.idx")["samples"]; };
  shardwise_output({"index", "--drop-missing", "-o", dir / "x.idx", dir / "p{0..2}.tar"});
  EXPECT_EQ(samples(), 6);
  const Finished still = shardwise({"index", "-o", dir / "x.idx"});
  EXPECT_EQ(still.code, 1);
  EXPECT_THAT(still.err, HasSubstr("p1.tar"));
  write_file(shard(1), small_shard(10, 3));
  shardwise_output({"index", "-o", dir / "x.idx"});
  EXPECT_EQ(samples(), 9);
  std::filesystem::remove(shard(2));  // its server is away for a day
  shardwise_output({"index", "--drop-missing", "-o", dir / "x.idx"});
  EXPECT_EQ(samples(), 6);
  write_file(shard(2), small_shard(20, 3));
  shardwise_output({"index", "-o", dir / "x.idx"});
  EXPECT_EQ(samples(), 9);
}

TEST(IndexJsonTest, PathsThatAreNotUtf8AreHexadecimal) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 3));
  write_file(dir / "b\xff.tar", small_shard(10, 3));
  shardwise_output({"index", "-o", dir / "x.idx", dir / "a.tar", dir / "b\xff.tar"});
  const auto plan = nlohmann::json::parse(
      shardwise_output({"index", "--dry-run", "--json", "-o", dir / "x.idx", dir / "a.tar"}));
  EXPECT_EQ(plan["gone"].size(), 0u);
  EXPECT_EQ(plan["gone_hex"], nlohmann::json::array({shardwise::hex(dir / "b\xff.tar")}));
  EXPECT_EQ(plan["unchanged"], nlohmann::json::array({dir / "a.tar"}));
  const auto report = nlohmann::json::parse(
      shardwise_output({"index", "--json", "-o", dir / "x.idx", dir / "a.tar"}));
  EXPECT_EQ(report["gone_hex"], plan["gone_hex"]);
}

TEST(KeptOptionsTest, TheyHoldUntilOthersAreGiven) {
  const SmallIndex index;
  const std::string a = index.dir() / "a.tar", b = index.dir() / "b.tar";
  const auto build = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"index", "-o", index.path()});
    options.insert(options.end(), {a, b});
    const Finished finished = shardwise(options);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(build({"--hash", "--column", "cls", "--on-no-field", "skip", "--unique-keys"}),
              testing::Not(HasSubstr("kept from")));
  EXPECT_THAT(
      build({}),
      HasSubstr("note: options kept from the earlier index, unless --forget is given: --on-bad "
                "damage=error,no-field=skip,duplicate-field=error,repeated-key=error"));
  EXPECT_THAT(build({}), HasSubstr("--column cls=cls, --hash, --unique-keys\n"));
  EXPECT_EQ(info(index.path())["hashes"], true);
  EXPECT_EQ(info(index.path())["unique_keys"], true);
  EXPECT_THAT(
      build({"--on-bad", "error", "--column", "label=cls"}),
      AllOf(HasSubstr("is given: --hash, --unique-keys\n"),
            HasSubstr("columns of the earlier index that were not named again, and are gone: "
                      "'cls'\n")));
  const auto changed = info(index.path());
  EXPECT_EQ(changed["on_bad"], "error");
  EXPECT_EQ(changed["columns"].size(), 1U);
  EXPECT_EQ(changed["columns"][0]["name"], "label");
  EXPECT_THAT(build({"--forget"}), testing::Not(HasSubstr("kept from")));
  const auto forgotten = info(index.path());
  EXPECT_EQ(forgotten["hashes"], false);
  EXPECT_EQ(forgotten["unique_keys"], false);
  EXPECT_EQ(forgotten["columns"].size(), 0U);
  EXPECT_EQ(shardwise({"index", "-o", index.path(), "--forget"}).code, 2) << "needs SOURCE";

  build({"--hash"});
  std::string bytes = read_file(index.path());
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  write_file(index.path(), bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(build({}), HasSubstr("the earlier index could not be read: only the options given"));
  EXPECT_EQ(info(index.path())["hashes"], false);
}

TEST(NotesTest, ShardsThatGoAndFilesThatAreLeftOutAreCounted) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "d");
  write_file(dir / "d/a.tar", small_shard(0, 3));
  write_file(dir / "d/b.TAR", small_shard(3, 4));
  write_file(dir / "d/notes.txt", "");
  const auto index = [&](const std::vector<std::string>& sources) {
    std::vector<std::string> arguments = {"index", "-o", dir / "d/x.idx"};
    arguments.insert(arguments.end(), sources.begin(), sources.end());
    return shardwise(arguments);
  };
  EXPECT_EQ(
      index({dir / "d"}).err,
      "shardwise: note: 1 file is in the folders, but not named like a shard, and left out: '" +
          dir / "d/notes.txt" + "'\n");
  EXPECT_EQ(info(dir / "d/x.idx")["shards"], 2);
  EXPECT_THAT(
      index({dir / "d/a.tar"}).err,
      HasSubstr(
          "note: 1 shard is in the earlier index, but not among the sources, and left out: '" +
          dir / "d/b.TAR'"));
  EXPECT_EQ(index({dir / "d"}).code, 0);
  write_file(dir / "d/c.tar", small_shard(7, 1));
  std::filesystem::remove(dir / "d/a.tar");
  const Finished anew = index({});  // without SOURCE the folder is listed anew
  EXPECT_THAT(anew.out, HasSubstr("5 samples in 2 shards (1 read, 1 unchanged)"));
  EXPECT_THAT(anew.err, AllOf(HasSubstr("1 shard is in the earlier index"), HasSubstr("d/a.tar'"),
                              HasSubstr("notes.txt'\n"), testing::Not(HasSubstr("x.idx"))));
  const auto report =
      nlohmann::json::parse(shardwise_output({"index", "--json", "-o", dir / "d/x.idx"}));
  EXPECT_THAT(report["gone"], IsEmpty());
  EXPECT_EQ(report["left_out"], 1);
}

TEST(NotesTest, ColumnsWithoutValuesAreCounted) {
  const SmallIndex index;
  const Finished finished =
      shardwise({"index", "-o", index.path(), "--column", "cls", "--column", "w=json:$.width",
                 index.dir() / "a.tar", index.dir() / "b.tar"});
  EXPECT_EQ(finished.err,
            "shardwise: note: the column 'w' is null for 7 of 7 samples, which have no such "
            "value: w=json:$.width\n");
  write_file(index.dir() / "c.tar",
             TarBuilder().file("1.jpg", std::string(5000, '\xff')).end().bytes());
  expect_failure(
      shardwise({"index", "-o", index.dir() / "c.idx", "--column", "jpg", index.dir() / "c.tar"}),
      {"a value above 4 KiB that is no text cannot be a metadata column", "'1.jpg'",
       "take another field, or a part of one"});
}

TEST(DropMissingTest, LeavesOutWhatIsNotThereAndSaysSo) {
  const SmallIndex index;
  const std::string a = index.dir() / "a.tar", b = index.dir() / "b.tar";
  std::filesystem::remove(a);
  expect_failure(shardwise({"index", "-o", index.path()}), {a, "No such file"});
  EXPECT_EQ(info(index.path())["shards"], 2) << "the old index stays";
  const Finished dropped = shardwise({"index", "-o", index.path(), "--drop-missing"});
  EXPECT_EQ(dropped.code, 0);
  EXPECT_THAT(dropped.err, HasSubstr("note: 1 shard is missing, and left out: '" + a + "'"));
  EXPECT_THAT(dropped.out, HasSubstr("4 samples in 1 shard (0 read, 1 unchanged)"));
  EXPECT_EQ(shardwise_output({"cat", index.path(), "0", "jpg"}), "image 3");
  const auto again = nlohmann::json::parse(
      shardwise_output({"index", "-o", index.path(), "--drop-missing", "--json", a, b}));
  EXPECT_THAT(again["dropped"], ElementsAre(a));
}

TEST(DropMissingTest, NotesAreOfTheShardsThatAreThere) {
  const TempDir dir;
  write_file(dir / "b.tar", small_shard(0, 3));
  write_file(dir / "c.tar", TarBuilder().file("x.jpg", "x").bytes());  // no end marker
  const auto report = nlohmann::json::parse(shardwise_output(
      {"index", "-o", dir / "x.idx", "--drop-missing", "--json", dir / "{a,b,c}.tar"}));
  EXPECT_THAT(report["without_end_marker"], ElementsAre(dir / "c.tar"));
}

TEST(NotesTest, ACompressedShardWithoutAChecksumIsNotedUnlessItIsHashed) {
  const TempDir dir;
  const std::string path = dir / "x.tar.zst";
  write_file(path, compress_unchecked(small_shard(0, 3), Compression::kZstd));
  const Finished noted = shardwise({"index", "-o", dir / "x.idx", path});
  EXPECT_THAT(noted.err,
              HasSubstr("note: 1 shard is compressed without a checksum of the content, so "
                        "that damage may go unnoticed; --hash stores a hash: '" +
                        path + "'"));
  const auto json =
      nlohmann::json::parse(shardwise_output({"index", "-o", dir / "y.idx", "--json", path}));
  EXPECT_THAT(json["without_checksum"], ElementsAre(path));
  EXPECT_THAT(shardwise_output({"info", dir / "x.idx"}),
              HasSubstr("unchecked    1 of them without a checksum: give --hash\n"));
  EXPECT_EQ(info(dir / "x.idx")["unchecked_shards"], 1);
  const Finished hashed = shardwise({"index", "-o", dir / "z.idx", "--hash", path});
  EXPECT_THAT(hashed.err, testing::Not(HasSubstr("checksum")));
  EXPECT_THAT(shardwise_output({"info", dir / "z.idx"}), testing::Not(HasSubstr("unchecked")));
}

TEST(DropMissingTest, AWrongPathDoesNotEmptyAnIndex) {
  const SmallIndex index;
  expect_failure(
      shardwise({"index", "-o", index.path(), "--drop-missing", index.dir() / "no-{0..5}.tar"}),
      {"none of the shards exists: '" + index.dir() / "no-0.tar" +
       "' and 5 more; check the paths"});
  EXPECT_EQ(info(index.path())["samples"], 7);
}

class CheckMd5Test : public testing::Test {
 protected:
  CheckMd5Test() {
    shardwise_output({"export", index_.path(), "--format", "wids", "--md5", "-o", descriptor()});
  }
  std::string descriptor() const { return index_.dir() / "all.json"; }

  const SmallIndex index_;
};

TEST_F(CheckMd5Test, HoldsTheShardsAgainstTheDescriptor) {
  EXPECT_EQ(shardwise({"index", "-o", index_.path(), "--check-md5", descriptor()}).code, 0);
  std::string text = read_file(descriptor());
  const std::size_t at = text.rfind("\"md5sum\": \"") + 11;
  const std::string right = text.substr(at, 32);
  text.replace(at, 4, right.starts_with("0000") ? "1111" : "0000");
  write_file(descriptor(), text);
  EXPECT_EQ(shardwise({"index", "-o", index_.path(), descriptor()}).code, 0);
  expect_failure(shardwise({"index", "-o", index_.path(), "--check-md5", descriptor()}),
                 {"a shard is not what its descriptor says", index_.dir() / "b.tar",
                  "has md5 " + right, text.substr(at, 32), descriptor()});
}

TEST_F(CheckMd5Test, WhereThereIsNothingToCheckItIsWrongUsage) {
  const Finished no_descriptor =
      shardwise({"index", "-o", index_.path(), "--check-md5", index_.dir() / "a.tar"});
  EXPECT_EQ(no_descriptor.code, 2);
  EXPECT_THAT(no_descriptor.err, HasSubstr("--check-md5: needs a wids descriptor"));
  EXPECT_EQ(shardwise({"index", "-o", index_.path(), "--check-md5"}).code, 2);
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--part", "1/2"}, {"--drop-missing"}}) {
    std::vector<std::string> arguments = {"index", "-o", index_.dir() / "y.idx", "--check-md5",
                                          descriptor()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 2);
    EXPECT_THAT(finished.err, HasSubstr("cannot be given together with"));
  }
}

TEST_F(CheckMd5Test, APartSaysThatTheDescriptorWasNotChecked) {
  const Finished finished =
      shardwise({"index", "-o", index_.dir() / "p.idx", "--part", "1/2", descriptor()});
  EXPECT_EQ(finished.code, 0);
  EXPECT_THAT(finished.err, StartsWith("shardwise: note: the wids descriptor was not checked: not "
                                       "all of its shards are in this index"));
}

}  // namespace
}  // namespace shardwise::test
