// Reads two epochs of remote shards through a shard cache. A shard is fetched before it is needed,
// and only once for all processes on the machine that share the cache.
//
//     remote_shards SHARDS CACHE
//
// SHARDS is a URL, e.g. 'https://host/train-{000000..000099}.tar' or s3://bucket/train.tar, or an
// index of such shards. For a URL, an index is built at first use, which reads every shard once;
// `shardwise index` builds it beforehand. CACHE is a folder on a local disk, created if missing.

#include <shardwise/advanced.h>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("usage: remote_shards SHARDS CACHE\n", stderr), 2;
  try {
    const auto cache = shardwise::ShardCache::open(
        {.directory = argv[2], .budget_bytes = std::uint64_t{20} << 30});
    const auto data = shardwise::Dataset::open(argv[1], {.cache = cache});
    // Reads shards one after another, and mixes eight at a time, so that few must be in the cache.
    const auto order =
        shardwise::make_sampler(data, {.seed = 17, .kind = shardwise::Sharded{.window = 8}});
    shardwise::ShardPrefetcher ahead(data, *order);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      order->set_epoch(epoch);
      std::uint64_t bytes = 0;
      while (const auto number = order->next()) {
        const shardwise::Sample sample = data[*number];
        for (std::size_t i = 0; i < sample.num_fields(); ++i) bytes += sample.field(i).bytes.size();
        ahead.reached(order->position());  // the cache may evict shards before this position
      }
      const shardwise::ShardCache::Stats stats = cache->stats();
      std::printf(
          "epoch %llu: %llu samples, %llu bytes; %llu shards fetched so far\n",
          static_cast<unsigned long long>(epoch), static_cast<unsigned long long>(order->size()),
          static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(stats.fetched));
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "remote_shards: %s\n", e.what());
    return 1;
  }
}
