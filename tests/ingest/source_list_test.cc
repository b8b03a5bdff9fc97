#include "shardwise/ingest/source_list.h"

#include <sys/resource.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "ingest/remote_shards.h"
#include "ingest/source_names.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// A remote source that lists its keys.
class ListedShards : public RemoteShards {
 public:
  explicit ListedShards(std::vector<std::string> urls) : urls_(std::move(urls)) {}
  std::vector<std::string> list(const std::string& url) override {
    asked.push_back(url);
    std::vector<std::string> found;
    for (const std::string& file : urls_) {
      if (file.starts_with(url)) found.push_back(file);
    }
    return found;
  }
  State state(const std::string&) override { return {}; }
  void read(const std::string&, const State&, std::uint64_t, std::optional<std::uint64_t>,
            const std::function<void(std::string_view)>&) override {}
  std::optional<Copy> copy(const std::string&, const State&) override { return std::nullopt; }
  void keep_expanded(const std::string&, const State&, const std::string&, Compression,
                     std::uint64_t) override {}

  std::vector<std::string> asked;

 private:
  const std::vector<std::string> urls_;
};

TEST(SourceListTest, PathsKeepTheOrderGiven) {
  EXPECT_THAT(expand_sources({"b.tar", "a.tar"}), ElementsAre("b.tar", "a.tar"));
}

TEST(SourceListTest, BraceRangesKeepTheirPadding) {
  EXPECT_THAT(expand_sources({"t-{008..011}.tar"}),
              ElementsAre("t-008.tar", "t-009.tar", "t-010.tar", "t-011.tar"));
  EXPECT_THAT(expand_sources({"{8..10}"}), ElementsAre("8", "9", "10"));
  // As in bash and braceexpand, a single 0 does not request padding.
  EXPECT_EQ(expand_sources({"{0..10}"}).front(), "0");
  EXPECT_EQ(expand_sources({"{00..100}"}).front(), "000");
  EXPECT_THAT(expand_sources({"{9..010}"}), ElementsAre("009", "010"));
  EXPECT_THAT(expand_sources({"{a,b}{0..1}.tar"}),
              ElementsAre("a0.tar", "a1.tar", "b0.tar", "b1.tar"));
  EXPECT_THAT(expand_sources({"x{,y}.tar"}), ElementsAre("x.tar", "xy.tar"));
  EXPECT_THAT(expand_sources({"{plain}.tar"}), ElementsAre("{plain}.tar"));
}

TEST(SourceListTest, BracesOfACommandsOwnStay) {
  EXPECT_THAT(expand_braces("pipe:aws s3 cp s3://b/{a,b}-{08..09}.tar -"),
              ElementsAre("pipe:aws s3 cp s3://b/a-08.tar -", "pipe:aws s3 cp s3://b/a-09.tar -",
                          "pipe:aws s3 cp s3://b/b-08.tar -", "pipe:aws s3 cp s3://b/b-09.tar -"));
  for (const std::string own : {"pipe:awk '{print $1,$2}' x", "pipe:grep { x", "pipe:echo {a..b}",
                                "|sed 's/{a, b}/c/' x"}) {
    EXPECT_THAT(expand_braces(own), ElementsAre(own));
  }
}

TEST(SourceListTest, BracesWithinBracesAreExpandedAsInAShell) {
  EXPECT_THAT(expand_braces("x{a,{1..2}}.tar"), ElementsAre("xa.tar", "x1.tar", "x2.tar"));
  EXPECT_THAT(expand_braces("{cc3m/{0..1},{a,../b}/{00..01}}.tar"),
              ElementsAre("cc3m/0.tar", "cc3m/1.tar", "a/00.tar", "a/01.tar", "../b/00.tar",
                          "../b/01.tar"));
  EXPECT_THAT(expand_braces("{{1..1},{2..2}}{3..3}"), ElementsAre("13", "23"));
  EXPECT_THAT(expand_braces("{plain}{a,b}"), ElementsAre("{plain}a", "{plain}b"));
  EXPECT_THAT(expand_braces("{a,{plain}}{1,2}"), ElementsAre("a1", "a2", "{plain}1", "{plain}2"));
  EXPECT_THAT(expand_braces("{x{1,2}-{3,4}}"), ElementsAre("{x1-3}", "{x1-4}", "{x2-3}", "{x2-4}"));
  EXPECT_THAT(expand_braces("}{a,b}"), ElementsAre("}a", "}b"));
  EXPECT_THAT(expand_braces("pipe:sh -c 'cat {' {a,b}"),
              ElementsAre("pipe:sh -c 'cat {' a", "pipe:sh -c 'cat {' b"));
  EXPECT_THAT(test::error_text([] { expand_braces("{x{1,2}"); }),
              HasSubstr("a brace is not closed: '{x{1,2}'"));
  const std::string deep(100'000, '{');
  EXPECT_EQ(expand_braces(deep + std::string(deep.size(), '}')).size(), 1);
}

/// Runs `body` with little memory and time.
std::string in_small_child(const std::function<std::string()>& body) {
  return test::in_child([&] {
    const test::AtMost seconds(60);
    if (!test::kSanitized) test::set_limit(RLIMIT_AS, 1 << 30);
    return body();
  });
}

TEST(SourceListTest, PatternsOfTooManyNamesCostNoMemory) {
  const auto refusal = [](const std::string& pattern) {
    return in_small_child([&] { return test::error_text([&] { expand_braces(pattern); }); });
  };
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const std::string many = "{0..9999999}";
  for (const std::string& pattern :
       {repeated(many, 20), repeated("{a,b}", 24), many + "{a,b}", "{" + many + "," + many + "}",
        "{x," + repeated("{a,b}", 40) + "}"}) {
    EXPECT_THAT(refusal(pattern), HasSubstr("more than 10 million")) << pattern;
  }
  EXPECT_THAT(refusal(many + std::string(1000, 'n')), HasSubstr("more than 2 GiB"));
  EXPECT_THAT(refusal("{a,b}-" + many), HasSubstr("'{a,b}-" + many + "'"));
  EXPECT_EQ(in_small_child([&]() -> std::string {
              const auto names = expand_braces(repeated("{1..1}", 3'000));
              return names == std::vector{std::string(3'000, '1')} ? "" : "other names";
            }),
            "");
}

TEST(SourceListTest, SourcesThatWebdatasetWouldJoinAreNamed) {
  const test::TempDir dir;
  test::write_file(dir / "a.tar", "");
  const auto error = [](const std::string& source) {
    return test::error_text([&] { expand_sources({source}); });
  };
  const std::string joined = dir / "x-{0..1}.tar::" + (dir / "y-{0..1}.tar");
  EXPECT_THAT(error(joined), AllOf(HasSubstr("joined by ::"), HasSubstr("webdataset"),
                                   HasSubstr("'" + joined + "'"), HasSubstr("SOURCE")));
  for (const std::string& others :
       {dir.path() + "::" + dir.path(), dir / "a.tar::" + (dir / "a.tar"),
        std::string("x.json::y.json"), std::string("x-{0..1}::y"),
        std::string("https://h/a.tar::https://h/b.tar")}) {
    EXPECT_THAT(error(others), testing::HasSubstr("joined by ::")) << others;
  }
  EXPECT_THAT(expand_sources({"http://[::1]:80/a.tar"}), ElementsAre("http://[::1]:80/a.tar"));
  EXPECT_THAT(expand_sources({"a::b.tar"}), ElementsAre("a::b.tar"));
  test::write_file(dir / "a.tar::b", "");
  EXPECT_THAT(expand_sources({dir / "a.tar::b"}), ElementsAre(dir / "a.tar::b"));
}

TEST(SourceListTest, DirectoriesGiveAllTarsBelowThemInByteOrder) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "sub");
  for (const char* name : {"b.tar", "B.tar", "a.tar", "sub/c.tar", "note.txt"})
    test::write_file(dir / name, "");
  EXPECT_THAT(expand_sources({dir.path()}),
              ElementsAre(dir / "B.tar", dir / "a.tar", dir / "b.tar", dir / "sub/c.tar"));
}

TEST(SourceListTest, TheListingOfADirectoryCanBeCancelled) {
  const test::TempDir dir;
  test::write_file(dir / "0.tar", "");
  const CancelToken::Flag cancelled = true;
  const detail::CancelScope scope(cancelled);
  EXPECT_EQ(test::error_code([&] { read_sources({dir.path()}); }), ErrorCode::kCancelled);
}

TEST(SourceListTest, DirectoriesGiveShardsOfAnyCodecAndCaseAndCountTheRest) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "sub");
  for (const char* name : {"a.tar", "b.TAR", "c.tgz", "d.tar.gz", "e.tar.zst", "f.Tar.XZ",
                           "g.tar.bz2", "sub/h.tar.lz4", "i.json", "sub/j.gz", "k.tar.tmp"}) {
    test::write_file(dir / name, "");
  }
  const SourceList list = read_sources({dir.path()});
  EXPECT_THAT(list.shards, ElementsAre(dir / "a.tar", dir / "b.TAR", dir / "c.tgz",
                                       dir / "d.tar.gz", dir / "e.tar.zst", dir / "f.Tar.XZ",
                                       dir / "g.tar.bz2", dir / "sub/h.tar.lz4"));
  EXPECT_THAT(list.left_out, ElementsAre(dir / "i.json", dir / "k.tar.tmp", dir / "sub/j.gz"));
}

TEST(SourceListTest, HiddenFilesAndFoldersAreNotOfADirectory) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / ".data/a/.snapshot");
  for (const char* name :
       {".data/0.tar", ".data/._0.tar", ".data/.note", ".data/a/1.tar", ".data/a/.snapshot/1.tar"})
    test::write_file(dir / name, "");
  std::filesystem::create_directory_symlink(dir / ".data/a", dir / ".data/.link");
  const SourceList list = read_sources({dir / ".data"});
  EXPECT_THAT(list.shards, ElementsAre(dir / ".data/0.tar", dir / ".data/a/1.tar"))
      << "a folder that is named is meant";
  EXPECT_THAT(list.left_out, ElementsAre());
  EXPECT_THAT(expand_sources({dir / ".data/*"}), ElementsAre(dir / ".data/0.tar", dir / ".data/a"))
      << "as a glob has it";
  EXPECT_THAT(expand_sources({dir / ".data/._0.tar", dir / ".data/a/.snapshot"}),
              ElementsAre(dir / ".data/._0.tar", dir / ".data/a/.snapshot/1.tar"));
  EXPECT_THAT(test::error_text([&] { expand_sources({dir.path()}); }),
              HasSubstr("begin with a dot"));

  const auto store = std::make_shared<ListedShards>(
      std::vector<std::string>{"s3://b/.d/.x/2.tar", "s3://b/.d/._0.tar", "s3://b/.d/0.tar",
                               "s3://b/.d/e/.x/1.tar", "s3://b/.d/e/1.tar"});
  const SourceList remote = read_sources({"s3://b/.d/"}, store);
  EXPECT_THAT(remote.shards, ElementsAre("s3://b/.d/0.tar", "s3://b/.d/e/1.tar"));
  EXPECT_THAT(remote.left_out, ElementsAre());
  EXPECT_THAT(expand_sources({"s3://b/.d/*.tar"}, store), ElementsAre("s3://b/.d/0.tar"));
  EXPECT_THAT(expand_sources({"s3://b/.d/e/.x/*"}, store), ElementsAre("s3://b/.d/e/.x/1.tar"));
}

TEST(SourceListTest, FoldersBehindLinksAreGoneIntoOnce) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "all/real/deep");
  std::filesystem::create_directories(dir / "elsewhere");
  test::write_file(dir / "all/real/a.tar", "");
  test::write_file(dir / "all/real/deep/b.tar", "");
  test::write_file(dir / "elsewhere/c.tar", "");
  std::filesystem::create_directory_symlink(dir / "all", dir / "all/real/deep/loop");
  std::filesystem::create_directory_symlink(dir / "all/real", dir / "all/again");
  std::filesystem::create_directory_symlink(dir / "elsewhere", dir / "all/there");
  std::filesystem::create_directory_symlink(dir / "elsewhere", dir / "all/there too");
  const SourceList list = read_sources({dir / "all"});
  EXPECT_THAT(list.shards, ElementsAre(dir / "all/real/a.tar", dir / "all/real/deep/b.tar",
                                       dir / "all/there/c.tar"));
  EXPECT_THAT(list.left_out, testing::IsEmpty());
}

TEST(SourceListTest, AShardThatALinkPromisesIsNotPassedOver) {
  const test::TempDir dir;
  test::write_file(dir / "a.tar", "");
  std::filesystem::create_symlink(dir / "none", dir / "b.tar");
  EXPECT_THAT(expand_sources({dir.path()}), ElementsAre(dir / "a.tar", dir / "b.tar"));
}

TEST(SourceListTest, WordsAreKeptWhereTheyMayNameOthersLater) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir / "sub");
  test::write_file(dir / "sub/a.tar", "");
  test::write_file(dir / "b.tar", "");
  test::write_file(dir / "list.txt", "# a list\n" + dir / "sub" + "\n" + dir / "{b,c}.tar\n");
  EXPECT_THAT(read_sources({dir / "b.tar", dir / "{c,d}.tar"}).sources, testing::IsEmpty());
  EXPECT_THAT(read_sources({dir / "b.tar", dir / "sub"}).sources,
              ElementsAre(dir / "b.tar", dir / "sub"));
  EXPECT_THAT(read_sources({dir / "*.tar"}).sources, ElementsAre(dir / "*.tar"));
  EXPECT_THAT(read_sources({"@" + dir / "list.txt"}).sources,
              ElementsAre(dir / "sub", dir / "{b,c}.tar"));
}

TEST(SourceListTest, GlobsAreSortedByBytes) {
  const test::TempDir dir;
  for (const char* name : {"x-2.tar", "x-10.tar", "x-1.tar", "y.tar"})
    test::write_file(dir / name, "");
  EXPECT_THAT(expand_sources({dir / "x-*.tar"}),
              ElementsAre(dir / "x-1.tar", dir / "x-10.tar", dir / "x-2.tar"));
}

TEST(SourceListTest, AFileWhoseNameHasGlobCharactersIsAFile) {
  const test::TempDir dir;
  test::write_file(dir / "x[1].tar", "");
  EXPECT_THAT(expand_sources({dir / "x[1].tar"}), ElementsAre(dir / "x[1].tar"));
}

TEST(SourceListTest, ListsHoldSourcesALine) {
  const test::TempDir dir;
  test::write_file(dir / "list.txt", "# shards\na.tar\r\n\nb-{0..1}.tar\n");
  EXPECT_THAT(expand_sources({"@" + (dir / "list.txt")}),
              ElementsAre("a.tar", "b-0.tar", "b-1.tar"));
  test::write_file(dir / "none.txt", "# shards\n\n");
  EXPECT_THAT(test::error_text([&] { expand_sources({"@" + (dir / "none.txt")}); }),
              HasSubstr("the list names no shard: '@" + (dir / "none.txt") + "'"));
  EXPECT_THAT(expand_sources({"@" + (dir / "none.txt"), "a.tar"}), ElementsAre("a.tar"));
}

TEST(SourceListTest, RemoteFoldersAndGlobsAreListed) {
  const auto store = std::make_shared<ListedShards>(std::vector<std::string>{
      "s3://b/d/", "s3://b/d/README", "s3://b/d/e/x.tgz", "s3://b/d/train-0.tar",
      "s3://b/d/train-1.tar.zst", "s3://b/d/x?.tar"});
  const SourceList folder = read_sources({"s3://b/d/"}, store);
  EXPECT_THAT(folder.shards, ElementsAre("s3://b/d/e/x.tgz", "s3://b/d/train-0.tar",
                                         "s3://b/d/train-1.tar.zst", "s3://b/d/x?.tar"));
  EXPECT_THAT(folder.left_out, ElementsAre("s3://b/d/", "s3://b/d/README"));
  EXPECT_THAT(folder.sources, ElementsAre("s3://b/d/")) << "it may hold others later";
  EXPECT_THAT(expand_sources({"s3://b/d/train-*"}, store),
              ElementsAre("s3://b/d/train-0.tar", "s3://b/d/train-1.tar.zst"));
  EXPECT_EQ(store->asked.back(), "s3://b/d/train-") << "no more than needed is listed";
  EXPECT_THAT(expand_sources({"s3://b/*/e/*.tgz"}, store), ElementsAre("s3://b/d/e/x.tgz"));
}

TEST(SourceListTest, ARemoteGlobThatMatchesNothingIsAnError) {
  const auto store =
      std::make_shared<ListedShards>(std::vector<std::string>{"s3://b/d/e/x.tgz", "s3://b/d/y"});
  const auto text = [&](const std::string& source) {
    return test::error_text([&] { expand_sources({source}, store); });
  };
  EXPECT_THAT(text("s3://b/*.tgz"),
              AllOf(StartsWith("no file matches: 's3://b/*.tgz'; "), HasSubstr("listed files (2)"),
                    EndsWith("; * does not match /")));
  EXPECT_THAT(expand_sources({"s3://b/d/[a-f]/?.tgz"}, store), ElementsAre("s3://b/d/e/x.tgz"));
  EXPECT_THAT(text("s3://b/none/"),
              AllOf(HasSubstr("holds no shard"), HasSubstr("'s3://b/none/'"),
                    HasSubstr("*.tar, *.tgz or *.tar.<codec>"), HasSubstr("0 other files")));
  EXPECT_THAT(test::error_text([] { expand_sources({"s3://b/d/"}); }),
              AllOf(HasSubstr("cannot be listed"), HasSubstr("'s3://b/d/'"),
                    HasSubstr("BuildOptions::remote")));
  EXPECT_THAT(expand_sources({"https://h/x.tar?a=*&b=[1]"}, store),
              ElementsAre("https://h/x.tar?a=*&b=[1]"))
      << "a query is no glob";
}

TEST(SourceListTest, AStarInAUrlThatCannotBeListedIsAnErrorThatSaysHowToWriteIt) {
  class NoList : public ListedShards {
   public:
    using ListedShards::ListedShards;
    std::vector<std::string> list(const std::string& url) override {
      throw Unsupported("no list", url, "none");
    }
  };
  const auto store = std::make_shared<NoList>(std::vector<std::string>{});
  const auto text = [&](const std::string& source) {
    return test::error_text([&] { expand_sources({source}, store); });
  };
  EXPECT_THAT(
      text("http://h/train-*.tar?key=sesame"),
      AllOf(HasSubstr("URL has a *"), HasSubstr("cannot be listed"),
            HasSubstr("'http://h/train-*.tar?key=***'"), HasSubstr("train-{000000..000146}.tar"),
            HasSubstr("@list.txt"), HasSubstr("%2A")));
  EXPECT_THAT(expand_sources({"http://h/train-%2A.tar"}, store),
              ElementsAre("http://h/train-%2A.tar"));
  EXPECT_THAT(text("http://h/data/"), HasSubstr("no list"));
}

TEST(SourceListTest, ListsOfOtherProgramsAreReadOrNamed) {
  const test::TempDir dir;
  const auto list = [&](std::string_view text) {
    test::write_file(dir / "x.lst", text);
    return "@" + (dir / "x.lst");
  };
  const auto text = [&](std::string_view given) {
    return test::error_text([&] { expand_sources({list(given)}); });
  };
  const std::string x = dir / "x-0.tar", y = dir / "x-1.tar";
  EXPECT_THAT(expand_sources({list("\xEF\xBB\xBF" + x + "\r\n" + y + "\r\n")}), ElementsAre(x, y));
  EXPECT_THAT(
      text(x + std::string(1, '\0') + y + std::string(1, '\0')),
      AllOf(HasSubstr("NUL byte"), HasSubstr("'" + dir / "x.lst', line 1"), HasSubstr("-print0")));
  EXPECT_THAT(text({"\xFF\xFE"
                    "x\0",
                    4}),
              AllOf(HasSubstr("list of shards"), HasSubstr("UTF-16")));
  EXPECT_THAT(text("x-*.tar\xC2\xA0"), HasSubstr("no file matches: 'x-*.tar\\xc2\\xa0'"));
  for (const std::string& source : {std::string("x\0.tar", 6), std::string("@x\0", 3)}) {
    EXPECT_THAT(test::error_text([&] { expand_sources({source}); }),
                AllOf(HasSubstr("path"), HasSubstr("NUL character")));
  }
}

TEST(SourceListTest, ErrorsNameTheSourceAndTheWayOut) {
  const test::TempDir dir;
  const auto text = [](const std::string& source) {
    return test::error_text([&] { expand_sources({source}); });
  };
  EXPECT_THAT(text(dir / "no-*.tar"), HasSubstr("no file matches: '" + dir.path()));
  EXPECT_THAT(text(dir.path()), HasSubstr("the directory holds no shard"));
  EXPECT_THAT(text("@" + (dir / "none.txt")),
              AllOf(HasSubstr("cannot read"), HasSubstr("list of shards")));
  EXPECT_THAT(text("@"), AllOf(HasSubstr("list of shards"), HasSubstr("no name")));
  EXPECT_THAT(text("x-{000..a}.tar"), HasSubstr("the range is malformed: 'x-{000..a}.tar'"));
  EXPECT_THAT(text("x-{9..1}.tar"), HasSubstr("smaller number first"));
  EXPECT_THAT(text("x-{0..99999999999}.tar"), HasSubstr("more than 10 million"));
  EXPECT_THAT(text("x-{1..2.tar"), HasSubstr("a brace is not closed"));
  EXPECT_THAT(text("http://host/x.json"),
              AllOf(HasSubstr("remote descriptor"), HasSubstr("'http://host/x.json'")));
  EXPECT_THAT(text("pipe:cat x.tar"), HasSubstr("pipe: URL"));
  EXPECT_THAT(text("http:///x.tar"), HasSubstr("host"));
  EXPECT_THAT(test::error_text([] {
                expand_sources({"a.tar", "a.tar"});
              }),
              HasSubstr("a shard is named twice: 'a.tar'"));
  test::write_file(dir / "self.txt", "@" + (dir / "self.txt") + "\n");
  EXPECT_THAT(text("@" + (dir / "self.txt")), HasSubstr("nested too deep"));
}

}  // namespace
}  // namespace shardwise
