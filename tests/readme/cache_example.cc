// The example of README.md with a shard cache, as it stands there; readme_test.cc holds the two
// against each other. Compiled, not run: it wants a directory of its own.

#include <functional>

// clang-format off
// [README]
#include <shardwise/advanced.h>

void one_epoch(const char* index, const std::function<void(const shardwise::Sample&)>& use) {
  auto cache = shardwise::ShardCache::open({.directory = "/scratch/cache", .budget_bytes = 200ULL << 30});
  auto data = shardwise::Dataset::open(index, {.cache = cache});
  shardwise::DistributedChunkedSampler order(data, {.seed = 17});
  shardwise::ShardPrefetcher ahead(data, order);          // ImageLoader does this by itself
  while (auto i = order.next()) {
    use(data[*i]);
    ahead.reached(order.position());
  }
}
// [README]
// clang-format on

int main(int argc, char** argv) {
  if (argc == 2) one_epoch(argv[1], [](const shardwise::Sample&) {});
}
