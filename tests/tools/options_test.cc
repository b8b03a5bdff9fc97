// Tests sizes as people write them, and that errors name options as on the command line.

#include "options.h"

#include <map>
#include <regex>
#include <set>

#include "base/spelling.h"
#include "base/text.h"
#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using tools::parse_byte_size;

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

TEST(SizeTest, SizesAndCountsAreReadAsTheyArePrinted) {
  for (const std::uint64_t size : {0ULL, 7ULL, 999ULL, 1000ULL, 32'768ULL, 12'345'678ULL, ~0ULL}) {
    std::string number = human_count(size);
    EXPECT_EQ(parse_byte_size(number), size);
    EXPECT_EQ(parse_byte_size(number + " bytes"), size);
    EXPECT_EQ(tools::kWholeNumber(number), "");
    EXPECT_EQ(number, std::to_string(size));
  }
  EXPECT_EQ(parse_byte_size("20 GiB"), std::uint64_t{20} << 30);
  EXPECT_EQ(parse_byte_size("1,024K"), std::uint64_t{1} << 20);
  for (std::string text : {"1,5", "1,0000", ",100", "1000,000", "1,", "12,345,67", "1,a23"}) {
    EXPECT_NE(tools::kWholeNumber(text), "") << text;
  }
}

TEST(SizeTest, WhatIsNoSizeIsRefused) {
  for (const char* text : {"",         "x",
                           "-1",       "+1",
                           "1.",       ".5",
                           "5Q",       "5Ki",
                           "5MBB",     "5 ",
                           " 5",       "5  M",
                           "1,5",      "1,0000K",
                           "1,,000",   ",100",
                           "1000,000", "1,",
                           "1.5",      "1.5G",
                           "16E",      "18446744073709551616",
                           "1e3",      "0x10"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

std::set<std::string> options_in(const std::string& text) {
  const std::regex option("--[a-z0-9-]+");
  std::set<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), option), end; at != end; ++at) {
    found.insert(at->str());
  }
  return found;
}

/// Returns the options that the help of a command lists.
std::set<std::string> options_of(std::vector<std::string> command) {
  command.insert(command.begin(), "help");
  return options_in(shardwise_output(command));
}

TEST(OptionNamesTest, WhatErrorsAdviseIsThere) {
  std::map<std::string, std::set<std::string>> commands;
  // A build without LibTorch has no shardwise-train: its options are read from the source.
  std::set<std::string> all = options_in(read_file(source_dir() + "/tools/train/train_options.cc"));
  for (const char* command : {"index", "merge", "attach", "info", "ls", "cat", "verify", "query",
                              "export", "explain", "pack", "repack", "order", "epoch", "plan"}) {
    commands[command] = options_of({command});
    all.insert(commands[command].begin(), commands[command].end());
  }
  commands["cache"] = options_of({"cache", "fill"});
  const std::regex call("`shardwise ([a-z]+)");
  for (const detail::Spelling& one : detail::kSpellings) {
    const std::string text(one.command);
    std::smatch command;
    const bool is_call = std::regex_search(text, command, call);
    if (is_call) {
      EXPECT_TRUE(commands.contains(command[1])) << text;
    }
    const std::set<std::string>& there = is_call ? commands[command[1]] : all;
    for (const std::string& option : options_in(text)) {
      EXPECT_TRUE(there.contains(option)) << text << ": " << option;
    }
  }
}

}  // namespace
}  // namespace shardwise::test
