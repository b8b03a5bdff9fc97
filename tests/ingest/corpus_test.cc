// Compares scans of tars from other authors with the results of four other readers.

#include <openssl/evp.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "ingest/shard_bytes.h"
#include "support/support.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace {

std::string sha256(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr);
  return hex({reinterpret_cast<const char*>(digest), length});
}

std::string unhex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

struct Outcome {
  std::vector<nlohmann::json> members;
  std::optional<ErrorCode> error;
};

Outcome scan(const std::filesystem::path& path, bool libarchive_only) {
  Outcome outcome;
  const test::TempDir dir;
  try {
    const ShardBytes file({.path = path.string()},
                          {.temporary = dir / "x",
                           .keep = [](std::string_view, std::uint64_t) { return true; },
                           .tick = [](std::uint64_t) {}});
    scan_tar(file.bytes(), path.string(), {.libarchive_only = libarchive_only},
             [&](const TarMember& m) {
               outcome.members.push_back(
                   {{"name", hex(m.name)},
                    {"off", m.data_offset},
                    {"size", m.size_bytes},
                    {"sha", sha256(file.bytes().substr(m.data_offset, m.size_bytes))}});
             });
  } catch (const Error& e) {
    outcome.error = e.code();
    EXPECT_THAT(e.what(), testing::HasSubstr(path.filename().string()));
  }
  return outcome;
}

bool has_flag(const nlohmann::json& tar, const std::string& prefix) {
  for (const std::string flag : tar["flags"]) {
    if (flag.starts_with(prefix)) return true;
  }
  return false;
}

TEST(CorpusTest, EveryTarIsReadRightOrRefusedWithATypedError) {
  const auto dir = test::corpus_dir();
  if (!dir || !std::filesystem::exists(*dir / "corpus/expected.jsonl")) {
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
  }
  std::ifstream lines(*dir / "corpus/expected.jsonl");
  std::map<std::string, std::map<std::string, int>> table;
  std::string line;
  while (std::getline(lines, line)) {
    const nlohmann::json tar = nlohmann::json::parse(line);
    const std::string file = tar["file"];
    const std::string tar_class = std::string(tar["class"]).substr(0, 1);
    SCOPED_TRACE(file);
    const Outcome outcome = scan(*dir / "corpus" / file, false);
    const Outcome other = scan(*dir / "corpus" / file, true);
    EXPECT_EQ(outcome.members, other.members);
    EXPECT_EQ(outcome.error, other.error);
    if (has_flag(tar, "sparse")) {
      EXPECT_EQ(outcome.error, ErrorCode::kUnsupported);
    } else if (tar_class == "A") {
      EXPECT_FALSE(outcome.error);
      ASSERT_EQ(outcome.members.size(), tar["members"].size());
      for (std::size_t i = 0; i < outcome.members.size(); ++i) {
        const nlohmann::json& expected = tar["members"][i];
        const std::string name = expected.contains("name") ? std::string(expected["name"])
                                                           : unhex(expected.at("name_hex"));
        EXPECT_EQ(outcome.members[i]["name"], hex(name));
        EXPECT_EQ(outcome.members[i]["off"], expected["off"]);
        EXPECT_EQ(outcome.members[i]["size"], expected["size"]);
        EXPECT_EQ(outcome.members[i]["sha"], expected["sha"]);
      }
    } else if (tar_class == "R") {
      EXPECT_TRUE(outcome.error);
    }
    ++table[tar_class][outcome.error ? std::string(error_code_name(*outcome.error)) : "read"];
  }
  for (const auto& [tar_class, counts] : table) {
    for (const auto& [result, count] : counts) {
      std::printf("class %s: %3d %s\n", tar_class.c_str(), count, result.c_str());
    }
  }
}

}  // namespace
}  // namespace shardwise
