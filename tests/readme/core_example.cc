// The first example of README.md, as it stands there; readme_test.cc holds the two against each
// other, and runs this one.

#include <cstdio>

// clang-format off
// [README]
#include <cstdint>
#include <functional>
#include <string_view>
#include <shardwise/shardwise.h>

std::uint64_t one_rank(const char* index, const std::function<void(std::string_view, std::int64_t)>& use) {
  auto data = shardwise::Dataset::open(index);          // or shards: "data/train", "train-{00..99}.tar"
  shardwise::DistributedChunkedSampler order(
      data, {.seed = 17, .chunk_size = 1000}, {.rank = 0, .world_size = 8});
  order.set_epoch(3);
  for (std::uint64_t i : order) {
    shardwise::Sample sample = data[i];
    use(sample["jpg"], sample.integer("cls"));          // the bytes in the mapped shard, no copy
  }
  return order.position();                              // samples delivered; EpochAudit proves them
}
// [README]
// clang-format on

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::uint64_t bytes = 0;
  const std::uint64_t samples = one_rank(argv[1], [&](std::string_view jpg, std::int64_t label) {
    bytes += jpg.size() + (label < 0 ? 1 : 0);
  });
  std::printf("%llu samples, %llu bytes\n", static_cast<unsigned long long>(samples),
              static_cast<unsigned long long>(bytes));
}
