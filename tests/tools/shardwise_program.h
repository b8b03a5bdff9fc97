#pragma once

#include <nlohmann/json.hpp>
#include <sstream>

#include "process.h"

namespace shardwise::test {

/// Runs `shardwise` with these arguments.
inline Finished shardwise(std::vector<std::string> arguments, const std::string& input = {}) {
  arguments.insert(arguments.begin(), SHARDWISE_PROGRAM);
  return run(std::move(arguments), input);
}

/// Runs `shardwise`, and expects that it succeeds. Returns its standard output.
inline std::string shardwise_output(std::vector<std::string> arguments) {
  const Finished finished = shardwise(std::move(arguments));
  EXPECT_EQ(finished.code, 0) << finished.err;
  return finished.out;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> objects;
  for (const std::string& line : lines_of(text)) objects.push_back(nlohmann::json::parse(line));
  return objects;
}

/// Expects exit code 1, no standard output, and a one-line error with all these parts.
inline void expect_failure(const Finished& finished, const std::vector<std::string>& parts) {
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.out, testing::IsEmpty());
  EXPECT_THAT(finished.err, testing::StartsWith("shardwise: error: "));
  EXPECT_EQ(lines_of(finished.err).size(), 1U) << finished.err;
  for (const std::string& part : parts) EXPECT_THAT(finished.err, testing::HasSubstr(part));
}

/// Returns a tar of `count` samples, "<first>".."<first + count - 1>", with fields jpg and cls.
inline std::string small_shard(int first, int count) {
  TarBuilder tar;
  for (int i = first; i < first + count; ++i) {
    tar.file(std::to_string(i) + ".jpg", "image " + std::to_string(i));
    tar.file(std::to_string(i) + ".cls", std::to_string(i % 10));
  }
  return tar.end().bytes();
}

/// Two shards, a.tar and b.tar, with 3 and 4 samples, and their index all.idx, in a temporary
/// folder.
class SmallIndex {
 public:
  SmallIndex() {
    write_file(dir_ / "a.tar", small_shard(0, 3));
    write_file(dir_ / "b.tar", small_shard(3, 4));
    shardwise_output({"index", "-o", path(), dir_ / "a.tar", dir_ / "b.tar"});
  }

  std::string path() const { return dir_ / "all.idx"; }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

}  // namespace shardwise::test
