// Reads samples of WebDataset shards by number and by key, without a copy.
//
//     read_samples SHARDS [KEY]          for example: read_samples data/train 000042
//
// SHARDS is an index, or any source that `shardwise index` takes: a tar, a folder, a pattern, a
// URL. For a source, an index is built at first use and kept in ~/.cache/shardwise.

#include <shardwise/shardwise.h>

#include <cstdio>
#include <exception>

namespace {

void print(const shardwise::Sample& sample) {
  std::printf("sample %llu, key %.*s\n", static_cast<unsigned long long>(sample.index()),
              static_cast<int>(sample.key().size()), sample.key().data());
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    // Name and bytes are views into the mapped shard, valid while the sample lives.
    const shardwise::Sample::Field field = sample.field(i);
    std::printf("  %.*s: %zu bytes\n", static_cast<int>(field.name.size()), field.name.data(),
                field.bytes.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: read_samples SHARDS [KEY]\n", stderr);
    return 2;
  }
  try {
    const auto data = shardwise::Dataset::open(argv[1]);
    std::printf("%llu samples\n", static_cast<unsigned long long>(data.size()));
    if (argc == 3) {
      print(data.get(argv[2]));  // throws NotFound if no sample has this key
    } else if (!data.empty()) {
      print(data[data.size() / 2]);
    }
  } catch (const std::exception& e) {
    // The text says what failed, for which shard or file, and what to do.
    std::fprintf(stderr, "read_samples: %s\n", e.what());
    return 1;
  }
}
