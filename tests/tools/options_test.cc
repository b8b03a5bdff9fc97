// Sizes as people write them, and errors that name options as they are typed.

#include "options.h"

#include "option_names.h"
#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using tools::parse_byte_size;
using tools::with_option_names;

TEST(SizeTest, UnitsAreWhatTheySay) {
  EXPECT_EQ(parse_byte_size("0"), 0U);
  EXPECT_EQ(parse_byte_size("512"), 512U);
  EXPECT_EQ(parse_byte_size("512B"), 512U);
  EXPECT_EQ(parse_byte_size("1KiB"), 1024U);
  EXPECT_EQ(parse_byte_size("1kB"), 1000U);
  EXPECT_EQ(parse_byte_size("1K"), 1024U);
  EXPECT_EQ(parse_byte_size("512M"), std::uint64_t{512} << 20);
  EXPECT_EQ(parse_byte_size("512MB"), 512'000'000U);
  EXPECT_EQ(parse_byte_size("20g"), std::uint64_t{20} << 30);
  EXPECT_EQ(parse_byte_size("2TiB"), std::uint64_t{2} << 40);
  EXPECT_EQ(parse_byte_size("15E"), std::uint64_t{15} << 60);
  EXPECT_EQ(parse_byte_size("18446744073709551615"), ~std::uint64_t{0});
}

TEST(SizeTest, WhatIsNoSizeIsRefused) {
  for (const char* text : {"", "x", "-1", "+1", "1.", ".5", "5Q", "5Ki", "5MBB", "5 ", " 5", "5 M",
                           "1.5", "1.5G", "16E", "18446744073709551616", "1e3", "0x10"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

TEST(SizeTest, EveryOptionTakesThemAlike) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"cache", "prune", "d", "--to", "5Q"},
           {"pack", "-o", "d", "--files", "f", "--max-bytes", "5Q"},
           {"plan", "x.idx", "--nodes", "1", "--cache-bytes", "5Q"},
           {"cat", "x.idx", "0", "--cache", "d", "--cache-bytes", "5Q"}}) {
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 2);
    EXPECT_THAT(finished.err, AllOf(HasSubstr(*(arguments.end() - 2) + ": '5Q' is not a size"),
                                    HasSubstr("512M, 20GiB, 500MB")));
  }
}

TEST(WrongUsageTest, TextsSayWhatIsValid) {
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"when", "--size", "9", "--sample", "1", "--batch", "0"},
       "--batch: '0' is not a whole number of 1 or more; see shardwise when --help\n"},
      {{"order", "--size", "18446744073709551616"},
       "--size: '18446744073709551616' is too large a number; see shardwise order --help\n"},
      {{"order", "--size", "9", "--tail", "cut"},
       "--tail: 'cut' is not a choice; choose exact, drop or pad; see shardwise order --help\n"},
      {{"epoch", "x.idx", "--batch", "0"},
       "--batch: '0' is not a number from 1 to 16777216; see shardwise epoch --help\n"},
      {{"order", "--size", "9", "--world", "2", "--world", "3"},
       "--world is given more than once; see shardwise order --help\n"},
      {{"plan", "--shards", "2", "--samples-per-shard", "2", "--shard-bytes", "1", "--nodes", "0",
        "--cache-bytes", "1G"},
       "--nodes is 0; it must be at least 1; see shardwise plan --help\n"},
  };
  for (const auto& [arguments, text] : wrong) {
    EXPECT_THAT(shardwise(arguments).err, HasSubstr("shardwise: error: " + text));
  }
}

// Whoever finds that it is out of its range: the command line, or later the library.
TEST(WrongUsageTest, AValueBeyondItsRangeIsWrongUsage) {
  const SmallIndex index;
  const TempDir dir;
  const std::string cache = dir / "cache";
  const std::string threads = "is not a whole number from 0 to 1024";
  struct Case {
    std::vector<std::string> command, option;
    std::string text;
  };
  const std::vector<Case> cases = {
      {{"epoch", index.path()}, {"--threads", "5000"}, "--threads: '5000' " + threads},
      {{"epoch", index.path()}, {"--prefetch", "1025"}, "--prefetch: '1025' " + threads},
      {{"index", "-o", dir / "x.idx", index.dir().path()},
       {"--threads", "99999999999999999999"},
       "--threads: '99999999999999999999' " + threads},
      {{"epoch", index.path()},
       {"--retry-for", "721h"},
       "the option is not valid: --retry-for; give 0 (one attempt) to 30 days"},
      {{"verify", index.path()},
       {"--retry-for", "721h"},
       "the option is not valid: --retry-for; give 0 (one attempt) to 30 days"},
      {{"epoch", index.path()},
       {"--shard-connections", "0"},
       "the option is not valid: --shard-connections; give 1 to 64"},
      {{"cat", index.path(), "0"},
       {"--http-header", "no header"},
       "the option is not valid: --http-header; write each as 'Name: value'"},
      {{"epoch", index.path(), "--cache", cache},
       {"--cache-bytes", "0"},
       "the budget of the shard cache is 0 bytes: '" + cache + "'; give it as many"},
      {{"pack", "-o", dir / "packed", "--files", index.dir().path()},
       {"--max-bytes", "0"},
       "--max-samples and --max-bytes must be at least 1"},
  };
  for (const Case& one : cases) {
    std::vector<std::string> arguments = one.command;
    arguments.insert(arguments.end(), one.option.begin(), one.option.end());
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 2) << one.command[0] << " " << one.option[0];
    EXPECT_EQ(finished.out, "");
    EXPECT_THAT(finished.err, AllOf(HasSubstr(one.text),
                                    EndsWith("; see shardwise " + one.command[0] + " --help\n")));
  }
}

// A variable of the shell that is not set must not choose another run.
TEST(WrongUsageTest, AnEmptyValueIsNotTakenForNone) {
  const std::string index = "x.idx";
  for (const char* option : {"--token", "--checkpoint", "--skip", "--where", "--mix", "--seed"}) {
    const Finished finished = shardwise({"order", index, option, ""});
    EXPECT_EQ(finished.code, 2) << option;
    EXPECT_THAT(finished.err, HasSubstr(std::string("error: ") + option + ": "));
  }
  for (const char* option : {"--root", "--cache", "--index-cache"}) {
    EXPECT_EQ(shardwise({"epoch", index, option, ""}).err,
              "shardwise: error: " + std::string(option) +
                  ": its value is empty; see shardwise epoch --help\n");
  }
  EXPECT_EQ(shardwise({"index", "-o", "", "a.tar"}).code, 2);
}

TEST(OptionNamesTest, TextsOfTheLibraryNameOptionsAsTheyAreTyped) {
  EXPECT_EQ(with_option_names("streams 2 with world_size 3: one must divide the other"),
            "--streams 2 with --world 3: one must divide the other");
  EXPECT_EQ(with_option_names("rank is 3 with world_size 3; ranks are in [0, 3)"),
            "--rank is 3 with --world 3; ranks are in [0, 3)");
  EXPECT_EQ(with_option_names("chunk_size is 0 samples; it is at least 1"),
            "--chunk is 0 samples; it is at least 1");
  EXPECT_EQ(with_option_names("cannot fetch: 'http://h/a.tar' (cut); try again later, or for "
                              "longer (Fetchers::Options::retry_for)"),
            "cannot fetch: 'http://h/a.tar' (cut); try again later, or for longer (--retry-for)");
  EXPECT_EQ(with_option_names("name it (SSL_CERT_FILE, Fetchers::Options::ca_file)"),
            "name it with --ca-file");
  EXPECT_EQ(with_option_names("give a cache (Dataset::Options::cache, --cache DIR), or read single "
                              "samples (Dataset::Access::kRange, --access range)"),
            "give --cache DIR, or read single samples with --access range");
}

TEST(OptionNamesTest, NamesOfFilesAndOtherWordsStay) {
  for (const char* text :
       {"cannot open: 'chunk_size/streams.tar'; check the path", "my_chunk_size is no option",
        "chunk_sizes", "the ranks lost each other: rank 3 of 8", "upstreams", "it's streamy"}) {
    EXPECT_EQ(with_option_names(text), text);
  }
  EXPECT_EQ(with_option_names("the server's streams"), "the server's --streams");
}

TEST(OptionNamesTest, ErrorsOfTheProgramHoldNoNameOfCpp) {
  const TempDir dir;
  write_file(dir / "odd.tar", TarBuilder().file("README", "x").end().bytes());
  const SmallIndex index;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"index", "-o", dir / "x.idx", "ftp://host/a.tar"},
       "use http, https, s3, gs, az, hf or file\n"},
      {{"index", "-o", dir / "x.idx", "pipe:cat a.tar"}, "--allow-pipe"},
      {{"index", "-o", dir / "x.idx", dir / "odd.tar"},
       "or leave it out with `shardwise index --on-no-field skip`\n"},
      {{"info", dir / "odd.tar"}, "with `shardwise index --on-no-field skip`\n"},
      {{"info", dir / "gone-{0..2}.tar"}, "`shardwise index --drop-missing` leaves out"},
      {{"index", "-o", dir / "x.idx", "http://127.0.0.1:1/a.tar", "--retry-for", "0"},
       "check the host's name"},
      {{"order", "--size", "10", "--world", "3", "--streams", "2"}, "--world"},
      {{"order", "--size", "10", "--world", "3", "--rank", "5"}, "--rank"},
  };
  for (const auto& [arguments, words] : cases) {
    const Finished finished = shardwise(arguments);
    EXPECT_NE(finished.code, 0);
    EXPECT_THAT(finished.err,
                AllOf(HasSubstr(words), Not(HasSubstr("::")), Not(HasSubstr("world_size"))));
  }
}

}  // namespace
}  // namespace shardwise::test
