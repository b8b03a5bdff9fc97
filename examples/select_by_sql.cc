// Builds an index that contains the class of each sample, queries it with SQL, and reads the
// samples of one class in an exact epoch over these samples only.
//
//     select_by_sql INDEX CLASS SHARD...       for example: select_by_sql train.idx 7 data/*.tar
//
// Each sample has an integer field `cls`. The shards stay unchanged.

#include <shardwise/advanced.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 4) return std::fputs("usage: select_by_sql INDEX CLASS SHARD...\n", stderr), 2;
  try {
    const std::vector<std::string> shards(argv + 3, argv + argc);
    shardwise::BuildOptions options;
    options.content.columns = {shardwise::parse_column("cls")};
    shardwise::build_index(argv[1], shards, options);  // reads only changed shards
    const auto data = shardwise::Dataset::open(argv[1]);

    shardwise::Query classes(shardwise::Index::open(argv[1]),
                             "SELECT cls, count(*) FROM samples GROUP BY cls ORDER BY cls");
    while (classes.next()) {
      std::printf("class %lld: %lld samples\n", static_cast<long long>(classes.value(0).integer),
                  static_cast<long long>(classes.value(1).integer));
    }

    // A view numbers its samples from 0. Samplers, tokens and proofs work for views, too.
    const shardwise::Dataset chosen = data.where(std::string("cls = ") + argv[2]);
    shardwise::DistributedChunkedSampler order(chosen, {.seed = 17});
    for (const std::uint64_t number : order) {
      const shardwise::Sample sample = chosen[number];
      std::printf("%s\n", std::string(sample.key()).c_str());
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "select_by_sql: %s\n", e.what());
    return 1;
  }
}
