// Checks the includes of the source against the map of modules ("rooms"):
//
//     base < {tar, index, storage, order, decode}, {tar, index} < ingest,
//     {ingest, storage, order} < data, {data, decode} < loader < {libtorch, python},
//     libtorch < tools
//
// Modules in the same braces must not include each other. The core's public headers include only
// the C++ standard library and each other.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "support/support.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

/// The modules that each module may include besides itself.
const std::map<std::string, std::set<std::string>> kArrows = {
    {"base", {}},
    {"tar", {"base"}},
    {"index", {"base"}},
    {"ingest", {"base", "tar", "index"}},
    {"storage", {"base"}},
    {"order", {"base"}},
    {"data", {"base", "tar", "index", "ingest", "storage", "order"}},
    {"decode", {"base"}},
    {"loader", {"base", "tar", "index", "ingest", "storage", "order", "data", "decode"}},
    {"libtorch",
     {"base", "tar", "index", "ingest", "storage", "order", "data", "decode", "loader"}},
    {"python", {"base", "tar", "index", "ingest", "storage", "order", "data", "decode", "loader"}},
    {"tools",
     {"base", "tar", "index", "ingest", "storage", "order", "data", "decode", "loader",
      "libtorch"}},
};

/// Returns the module of a path, which is relative to the project or an include folder. Returns an
/// empty text if it is in no module.
std::string room_of(const std::string& path) {
  static const std::regex kUmbrella(
      R"((?:include/)?shardwise/(shardwise|advanced|loader|video|libtorch)\.h)");
  static const std::regex kInRoom(R"((?:include/shardwise/|src/|shardwise/|)([a-z]+)/.+)");
  std::smatch match;
  if (std::regex_match(path, match, kUmbrella)) {
    if (match[1] == "libtorch" || match[1] == "loader") return match[1];
    return match[1] == "video" ? "decode" : "data";
  }
  if (std::regex_match(path, match, kInRoom) && kArrows.contains(match[1])) return match[1];
  return {};
}

/// Returns the errors in the includes of the file at `path` (relative to the project).
std::vector<std::string> violations(const std::string& path, const std::string& text) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*([<"])([^">]+)[">])re");
  static const std::regex kStandard("[a-z_0-9]+");
  const std::string room = room_of(path);
  if (room.empty()) return {path + ": lies in no room"};
  const bool public_core =
      path.starts_with("include/") && room != "libtorch" && !path.ends_with("/libtorch.h");

  std::vector<std::string> found;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (!std::regex_search(line, match, kInclude)) continue;
    const bool angled = match[1] == "<";
    const std::string target = match[2];
    const std::string where = path + ":" + std::to_string(number) + ": includes " + target;
    if (target.find("..") != std::string::npos) {
      found.push_back(where + ", a path that goes up");
      continue;
    }
    const std::string target_room = room_of(target);
    const bool own = target.starts_with("shardwise/");
    if (!target_room.empty() && (own || !angled)) {
      if (target_room != room && !kArrows.at(room).contains(target_room)) {
        found.push_back(where + ", but " + room + " may not know " + target_room);
      }
      if (public_core && !own) found.push_back(where + ", a private header, from a public one");
    } else if (public_core && !(angled && std::regex_match(target, kStandard))) {
      found.push_back(where + ", which is neither standard C++ nor a public header of ours");
    }
  }
  return found;
}

std::vector<std::string> sources_below(const fs::path& root, const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const fs::path extension = entry.path().extension();
    if (entry.is_regular_file() && (extension == ".h" || extension == ".cc")) {
      paths.push_back(fs::relative(entry.path(), root).string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(ArrowTest, NoIncludeRunsTheWrongWay) {
  const fs::path root = test::source_dir();
  std::vector<std::string> found;
  std::size_t num_files = 0;
  for (const char* folder : {"include", "src", "python", "tools"}) {
    for (const std::string& path : sources_below(root, folder)) {
      ++num_files;
      std::ranges::copy(violations(path, read_file(root / path)), std::back_inserter(found));
    }
  }
  EXPECT_GT(num_files, 20u);
  EXPECT_THAT(found, testing::IsEmpty());
}

/// Returns the sources whose text satisfies the condition.
std::vector<std::string> sources_with(
    const std::function<bool(const std::string& text)>& condition) {
  const fs::path root = test::source_dir();
  std::vector<std::string> found;
  for (const char* folder : {"include", "src", "python", "tools"}) {
    for (const std::string& path : sources_below(root, folder)) {
      if (condition(read_file(root / path))) found.push_back(path);
    }
  }
  return found;
}

TEST(ArrowTest, CoresAreCountedByOneFunction) {
  EXPECT_THAT(sources_with([](const std::string& text) {
                return text.find("hardware_concurrency") != std::string::npos ||
                       text.find("sched_getaffinity") != std::string::npos;
              }),
              testing::ElementsAre("src/base/cores.cc"))
      << "elsewhere: usable_cores()";
}

// fmt 11, with which wheels are built, no longer has join() in format.h. Debian's fmt 9 has.
TEST(ArrowTest, FilesThatJoinTextsIncludeTheHeaderOfJoin) {
  const auto joins = [](const std::string& text) {
    return text.find("fmt::join(") != std::string::npos;
  };
  EXPECT_THAT(sources_with(joins), testing::Not(testing::IsEmpty()));
  EXPECT_THAT(sources_with([&](const std::string& text) {
                return joins(text) && text.find("#include <fmt/ranges.h>") == std::string::npos;
              }),
              testing::IsEmpty());
}

TEST(ArrowTest, EachRoomHasItsPlace) {
  EXPECT_EQ(room_of("include/shardwise/index/index.h"), "index");
  EXPECT_EQ(room_of("src/storage/cache.cc"), "storage");
  EXPECT_EQ(room_of("tools/shardwise/main.cc"), "tools");
  EXPECT_EQ(room_of("include/shardwise/shardwise.h"), "data");
  EXPECT_EQ(room_of("include/shardwise/advanced.h"), "data");
  EXPECT_EQ(room_of("include/shardwise/video.h"), "decode");
  EXPECT_EQ(room_of("include/shardwise/libtorch.h"), "libtorch");
  EXPECT_EQ(room_of("include/shardwise/libtorch/advanced.h"), "libtorch");
  EXPECT_EQ(room_of("python/src/dataset.cc"), "python");
  EXPECT_EQ(room_of("order/permutation.h"), "order");
  EXPECT_EQ(room_of("index/catalogue.h"), "index");
  EXPECT_EQ(room_of("boost/interprocess/file_mapping.hpp"), "");
}

TEST(ArrowTest, WrongArrowsAreCaught) {
  const auto caught = [](const std::string& path, const std::string& include) {
    return violations(path, "#pragma once\n#include " + include + "\n").size() == 1;
  };
  EXPECT_TRUE(caught("src/base/file.cc", R"("shardwise/index/index.h")"));
  EXPECT_TRUE(caught("src/ingest/scan.cc", R"("storage/shard_pool.h")"));
  EXPECT_TRUE(caught("src/index/index.cc", R"("tar/tar_scanner.h")"));
  EXPECT_TRUE(caught("src/tar/scan.cc", R"("index/segment.h")"));
  EXPECT_TRUE(caught("src/storage/pool.cc", R"("order/permutation_impl.h")"));
  EXPECT_TRUE(caught("include/shardwise/order/sampler.h", R"("shardwise/data/dataset.h")"));
  EXPECT_TRUE(caught("src/order/sampler.cc", R"(<shardwise/shardwise.h>)"));
  EXPECT_TRUE(caught("src/data/dataset.cc", R"("shardwise/libtorch/batch.h")"));
  EXPECT_TRUE(caught("src/data/dataset.cc", R"(  "shardwise/libtorch.h")"));
  EXPECT_TRUE(caught("src/decode/pixels.cc", R"("data/dataset.h")"));
  EXPECT_TRUE(caught("src/data/dataset.cc", R"("decode/pixels.h")"));
  EXPECT_TRUE(caught("src/libtorch/batch.cc", R"("tools/shardwise/output.h")"));
  EXPECT_TRUE(caught("src/data/dataset.cc", R"("../index/catalogue.h")"));
  EXPECT_TRUE(caught("include/shardwise/index/index.h", "<sqlite3.h>"));
  EXPECT_TRUE(caught("include/shardwise/base/file.h", "<boost/interprocess/file_mapping.hpp>"));
  EXPECT_TRUE(caught("include/shardwise/index/index.h", R"("index/catalogue.h")"));
  EXPECT_TRUE(caught("src/loader/loader.cc", R"("python/src/objects.h")"));
  EXPECT_TRUE(caught("python/src/dataset.cc", R"("libtorch/token_tensor.h")"));
  EXPECT_TRUE(caught("src/attic/file.cc", R"("base/file.h")"));

  EXPECT_FALSE(caught("src/loader/engine.cc", R"("decode/pixels.h")"));
  EXPECT_FALSE(caught("src/ingest/scan.cc", R"("base/file.h")"));
  EXPECT_FALSE(caught("python/src/dataset.cc", R"("data/dataset_access.h")"));
  EXPECT_FALSE(caught("src/ingest/scan.cc", R"("index/catalogue.h")"));
  EXPECT_FALSE(caught("src/ingest/scan.cc", "<sqlite3.h>"));
  EXPECT_FALSE(caught("src/data/dataset.cc", R"("shardwise/order/sampler.h")"));
  EXPECT_FALSE(caught("include/shardwise/base/file.h", "<string_view>"));
  EXPECT_FALSE(caught("include/shardwise/libtorch/batch.h", "<torch/torch.h>"));
  EXPECT_FALSE(caught("tools/shardwise/main.cc", "<shardwise/shardwise.h>"));
}

}  // namespace
}  // namespace shardwise::test
