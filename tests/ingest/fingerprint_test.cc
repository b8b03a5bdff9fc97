// Resume tokens depend on fingerprints. The fingerprint of an unchanged shard under default
// policies must stay as in golden/, which was made with the sources of commit cb0dd6d.

#include <fstream>

#include "shardwise/ingest/index_builder.h"
#include "support/support.h"

namespace shardwise {
namespace {

std::string fingerprint_of(const std::vector<std::string>& shards) {
  const test::TempDir dir;
  build_index(dir / "i.idx", shards);
  return to_string(Index::open(dir / "i.idx")->fingerprint());
}

TEST(FingerprintTest, OfRealShardsIsWhatItWas) {
  const auto dir = test::corpus_dir();
  if (!dir)
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
  std::ifstream list(std::filesystem::path(test::source_dir()) /
                     "tests/ingest/golden/corpus_fingerprints.txt");
  std::string expected, file;
  int num_read = 0;
  while (list >> expected >> file) {
    SCOPED_TRACE(file);
    std::string found = "refused";
    try {
      found = fingerprint_of({(*dir / file).string()});
      ++num_read;
    } catch (const Error&) {
    }
    EXPECT_EQ(found, expected);
  }
  EXPECT_EQ(num_read, 29);
}

}  // namespace
}  // namespace shardwise
