// Tests lists: tables on a terminal, tab-separated text in a pipe.

#include "table.h"

#include "base/text.h"
#include "terminal.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Terminal().is_open())
      GTEST_SKIP() << "needs a terminal; skipped because none can be opened";
  }

 private:
  const Variable plain_{"NO_COLOR", "1"};
};

TEST_F(TerminalTest, ATableHasAHeaderAndNumbersToTheRight) {
  const Terminal terminal;
  tools::Output out(terminal.fd());
  tools::Table table(out, {{"name"}, {"size", tools::Align::kRight}, {"kind"}});
  table.add({"a", "7", "x"});
  table.add({"longer name", "12345", "y"});
  table.finish();
  out.flush();
  EXPECT_EQ(terminal.shown(),
            "name          size  kind\n"
            "a                7  x\n"
            "longer name  12345  y\n");
}

TEST_F(TerminalTest, LinesAreCutToItsWidthAndNumbersAreNot) {
  for (const unsigned short columns : std::initializer_list<unsigned short>{20, 30, 50}) {
    const Terminal terminal(columns);
    tools::Output out(terminal.fd());
    tools::Table table(out, {{"path", tools::Align::kLeft, tools::Cut::kStart},
                             {"key"},
                             {"size", tools::Align::kRight}});
    table.add({"/a/long/path/to/shards/train-000001.tar", "caf\xc3\xa9 caf\xc3\xa9 caf\xc3\xa9",
               "123456"});
    table.finish();
    out.flush();
    const auto lines = lines_of(terminal.shown());
    ASSERT_EQ(lines.size(), 2U);
    for (const std::string& line : lines) {
      EXPECT_LE(tools::display_width(line), columns) << line;
      EXPECT_TRUE(is_utf8(line)) << line;
    }
    if (columns < 30) continue;
    EXPECT_THAT(lines[1], AllOf(HasSubstr("1.tar"), HasSubstr("123456")));
  }
}

TEST_F(TerminalTest, LongListsAreWrittenAsTheyCome) {
  const Terminal terminal;
  tools::Output out(terminal.fd());
  tools::Table table(out, {{"n", tools::Align::kByContent}});
  for (std::size_t i = 0; i < tools::Table::kRowsMeasured; ++i) table.add({std::to_string(i)});
  out.flush();
  EXPECT_EQ(lines_of(terminal.shown()).size(), tools::Table::kRowsMeasured + 1);
  table.add({"1000000"});
  table.finish();
  out.flush();
  EXPECT_EQ(terminal.shown(), "1000000\n") << "wider than what was measured, and still whole";
}

TEST_F(TerminalTest, TextThatGrowsLaterIsCutOnlyWhereTheLineEnds) {
  const Terminal terminal(20);
  tools::Output out(terminal.fd());
  tools::Table table(out, {{"key"}, {"size", tools::Align::kRight}});
  for (std::size_t i = 0; i < tools::Table::kRowsMeasured; ++i) table.add({"k", "1"});
  out.flush();
  terminal.shown();
  table.add({"a longer key", "12"});
  table.add({"a key that is too long", "3"});
  table.finish();
  out.flush();
  EXPECT_EQ(terminal.shown(), "a longer key    12\na key that is\xe2\x80\xa6     3\n");
}

TEST_F(TerminalTest, ListsOfTheProgramAreTables) {
  const SmallIndex index;
  const auto [ls, members] = on_terminal({"ls", index.path(), "--limit", "2"});
  EXPECT_EQ(ls.code, 0) << ls.err;
  ASSERT_EQ(lines_of(members).size(), 3U);
  EXPECT_THAT(lines_of(members)[0], AllOf(StartsWith("url"), HasSubstr("  sample  key")));
  EXPECT_THAT(members, Not(HasSubstr("\t")));
  EXPECT_EQ(on_terminal({"cat", index.path(), "0"}).second,
            "field  size\njpg       7\ncls       1\n");
  EXPECT_EQ(on_terminal({"query", index.path(), "SELECT sample, key FROM samples LIMIT 1"}).second,
            "sample  key\n     0    0\n");
  EXPECT_THAT(on_terminal({"verify", index.path()}).second,
              AllOf(StartsWith("state  url"), HasSubstr("\nok     ")));
}

TEST_F(TerminalTest, BinaryContentIsNotWrittenToIt) {
  const TempDir dir;
  write_file(dir / "a.tar", TarBuilder()
                                .file("0.jpg", std::string("\xff\xd8\xff\x00", 4))
                                .file("0.txt", "a text\n")
                                .file("0.esc", "\x1b[31m")
                                .end()
                                .bytes());
  shardwise_output({"index", "-o", dir / "x.idx", dir / "a.tar"});
  for (const char* field : {"jpg", "esc"}) {
    const auto [refused, screen] = on_terminal({"cat", dir / "x.idx", "0", field});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(screen, IsEmpty());
    EXPECT_THAT(refused.err, AllOf(StartsWith("shardwise: error: "), HasSubstr("to a terminal"),
                                   HasSubstr(std::string("'") + field + "' of sample 0"),
                                   HasSubstr(std::string("> 0.") + field), HasSubstr("--force")));
    EXPECT_EQ(on_terminal({"cat", dir / "x.idx", "0", field, "--force"}).first.code, 0);
  }
  EXPECT_EQ(on_terminal({"cat", dir / "x.idx", "0", "txt"}).second, "a text\n");
  EXPECT_EQ(shardwise_output({"cat", dir / "x.idx", "0", "jpg"}).size(), 4U);
}

TEST_F(TerminalTest, AMessageWipesTheBarFirst) {
  const Terminal terminal;
  const int standard_error = ::dup(STDERR_FILENO);
  ::dup2(terminal.fd(), STDERR_FILENO);
  tools::draw_bar("a bar");
  tools::say("note", "a message");
  tools::say("note", "another");
  tools::draw_bar("a bar");
  tools::clear_bar();
  ::dup2(standard_error, STDERR_FILENO);
  ::close(standard_error);
  EXPECT_EQ(terminal.shown(),
            "\x1b[Ka bar\x1b[Kshardwise: note: a message\nshardwise: note: another\n"
            "\x1b[Ka bar\x1b[K");
}

TEST_F(TerminalTest, HelpIsFoldedToItsWidth) {
  for (const unsigned short columns : std::initializer_list<unsigned short>{60, 120}) {
    std::size_t widest = 0;
    for (const std::string& line : lines_of(on_terminal({"help", "ls"}, columns).second)) {
      widest = std::max(widest, tools::display_width(line));
    }
    EXPECT_LE(widest, columns);
  }
}

TEST(ListTest, InAPipeTheHeaderComesWhenItIsAskedFor) {
  const SmallIndex index;
  EXPECT_THAT(lines_of(shardwise_output({"ls", "--header", "--limit", "1", index.path()})),
              ElementsAre("url\tsample\tkey\tfield\toffset\tsize",
                          index.dir() / "a.tar" + "\t0\t0\tjpg\t512\t7"));
  EXPECT_EQ(shardwise_output({"cat", "--header", index.path(), "5"}),
            "field\tsize\njpg\t7\ncls\t1\n");
  EXPECT_EQ(lines_of(shardwise_output({"verify", "--header", index.path()}))[0], "state    url");
  EXPECT_THAT(shardwise_output({"ls", "--header", "--json", "--limit", "1", index.path()}),
              StartsWith("{"));
}

TEST(ListTest, TheFieldsOfASampleComeInJsonToo) {
  const SmallIndex index;
  EXPECT_EQ(nlohmann::json::parse(shardwise_output({"cat", "--json", index.path(), "5"})),
            nlohmann::json::parse(R"({"sample": 5, "key": "5", "url": ")" + index.dir() / "b.tar" +
                                  R"(", "fields": [{"field": "jpg", "size": 7},
                                                   {"field": "cls", "size": 1}]})"));
  EXPECT_EQ(shardwise({"cat", "--json", index.path(), "5", "jpg"}).code, 2);
}

TEST(ListTest, AFieldWithADotIsAnsweredWithItsName) {
  const SmallIndex index;
  expect_failure(shardwise({"cat", index.path(), "5", ".jpg"}),
                 {"no field '.jpg'", "write names of fields without the leading dot: use \"jpg\""});
  expect_failure(
      shardwise({"cat", index.path(), "5", ".gif"}),
      {"write names of fields without the leading dot: the sample's fields are jpg, cls"});
  expect_failure(shardwise({"cat", index.path(), "5", "gif"}), {"its fields are jpg, cls"});
}

}  // namespace
}  // namespace shardwise::test
