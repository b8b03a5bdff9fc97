// Runs index, ls --json and cat on every shard of the corpus. Compares the results with those of
// four other readers.

#include <openssl/evp.h>

#include <array>

#include "base/text.h"
#include "shardwise_program.h"

namespace shardwise::test {
namespace {

std::string sha256(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EXPECT_EQ(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr),
            1);
  return hex({reinterpret_cast<const char*>(digest.data()), length});
}

void expect_members(const std::string& index, const nlohmann::json& expected) {
  const auto listed = json_lines(shardwise_output({"ls", index, "--json"}));
  ASSERT_EQ(listed.size(), expected.size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const nlohmann::json& member = listed[i];
    EXPECT_EQ(member["key"].get<std::string>() + "." + member["field"].get<std::string>(),
              expected[i]["name"].get<std::string>());
    EXPECT_EQ(member["offset"], expected[i]["off"]);
    EXPECT_EQ(member["size"], expected[i]["size"]);
    const std::string bytes = shardwise_output(
        {"cat", index, std::to_string(member["sample"].get<std::uint64_t>()), member["field"]});
    EXPECT_EQ(sha256(bytes), expected[i]["sha"].get<std::string>());
  }
}

TEST(CorpusTest, ShardsComeOutAsOtherReadersSeeThem) {
  const auto shared = corpus_dir();
  if (!shared)
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
  const TempDir dir;
  int num_read = 0;
  for (const nlohmann::json& line : json_lines(read_file(*shared / "corpus/expected.jsonl"))) {
    const std::string name = line["file"];
    if (!name.starts_with("shards/")) continue;
    SCOPED_TRACE(name);
    const std::string path = *shared / "corpus" / name;
    const std::string index = dir / (std::to_string(num_read) + ".idx");
    const Finished indexed = shardwise({"index", "-o", index, path});
    EXPECT_EQ(indexed.code, 0) << indexed.err;
    if (read_file(path).starts_with("\x1f\x8b")) {
      EXPECT_EQ(json_lines(shardwise({"ls", "--json", index}).out).size(), line["members"].size());
      EXPECT_EQ(shardwise({"verify", index}).code, 0);
      const Finished read = shardwise({"cat", index, "0"});
      EXPECT_EQ(read.code, 1);
      EXPECT_THAT(read.err, testing::HasSubstr("compressed (gzip)"));
      continue;
    }
    expect_members(index, line["members"]);
    EXPECT_EQ(shardwise({"verify", index}).code, 0);
    ++num_read;
  }
  EXPECT_GE(num_read, 4);
}

}  // namespace
}  // namespace shardwise::test
