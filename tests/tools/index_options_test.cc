// The options of `shardwise index` that say what goes into an index, and what is left out.

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

TEST(PolicyTest, EachKindHasItsOwn) {
  const TempDir dir;
  write_file(dir / "odd.tar", odd_tar());
  std::vector<std::string> arguments = {"index", "-o", dir / "x.idx"};
  const auto index = [&] {
    std::vector<std::string> all = arguments;
    all.push_back(dir / "odd.tar");
    return shardwise(all);
  };
  expect_failure(index(), {"a name that gives no key and field", "offset 1024", "'README'"});
  arguments.insert(arguments.end(), {"--on-no-field", "skip"});
  expect_failure(index(), {"the field 'txt' comes twice in sample 'a'", "offset 2048"});
  arguments.insert(arguments.end(), {"--on-duplicate-field", "skip"});
  expect_failure(index(), {"the key comes in two places of the shard, first at offset 0"});
  arguments.insert(arguments.end(), {"--on-repeated-key", "keep"});
  const Finished kept = index();
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_THAT(kept.err, HasSubstr("2 bad members skipped; see shardwise info"));
  EXPECT_EQ(info(dir / "x.idx")["samples"], 3);
  EXPECT_EQ(info(dir / "x.idx")["on_bad"],
            "damage=error,no-field=skip,duplicate-field=skip,repeated-key=keep");
  EXPECT_THAT(lines_of(shardwise_output({"info", dir / "x.idx"})),
              testing::IsSupersetOf(
                  {"skipped as bad: 2 members",
                   "  shard 0, offset 1024, 'README': a name that gives no key and field: "
                   "WebDataset wants <key>.<field>",
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

TEST(PolicyTest, ABadValueListsTheValidOnes) {
  for (const char* option : {"--on-bad", "--on-no-field", "--on-duplicate-field"}) {
    for (const char* value : {"perhaps", "keep", ""}) {
      const Finished finished = shardwise({"index", "-o", "x.idx", option, value, "a.tar"});
      EXPECT_EQ(finished.code, 2);
      EXPECT_THAT(finished.err, AllOf(HasSubstr(option), HasSubstr("{error,skip}")));
    }
  }
  const Finished finished =
      shardwise({"index", "-o", "x.idx", "--on-repeated-key", "perhaps", "a.tar"});
  EXPECT_EQ(finished.code, 2);
  EXPECT_THAT(finished.err, HasSubstr("--on-repeated-key: perhaps not in {error,skip,keep}"));
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
                HasSubstr(options[0] + " needs SOURCE: without any the index is updated with the "
                                       "options that it was built with"));
  }
  const Finished none = shardwise({"index", "-o", index.dir() / "none.idx"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("SOURCE is required"));
}

TEST(DropMissingTest, LeavesOutWhatIsNotThereAndSaysSo) {
  const SmallIndex index;
  const std::string a = index.dir() / "a.tar", b = index.dir() / "b.tar";
  std::filesystem::remove(a);
  expect_failure(shardwise({"index", "-o", index.path()}), {a, "No such file"});
  EXPECT_EQ(info(index.path())["shards"], 2) << "the old index stays";
  const Finished dropped = shardwise({"index", "-o", index.path(), "--drop-missing"});
  EXPECT_EQ(dropped.code, 0);
  EXPECT_THAT(dropped.err, HasSubstr("note: 1 shard missing, and left out: '" + a + "'"));
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
  EXPECT_THAT(finished.err, StartsWith("shardwise: note: what the descriptor says of its shards "
                                       "was not checked"));
}

}  // namespace
}  // namespace shardwise::test
