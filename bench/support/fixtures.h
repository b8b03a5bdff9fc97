#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardwise::bench {

/// The folder of the fixtures: SHARDWISE_BENCH_DIR, or shardwise-bench in the system's temporary
/// directory. They are made at first use, kept between runs, and may be removed at any time.
std::string fixture_dir();

/// Samples of the tiny fixture: SHARDWISE_BENCH_SAMPLES, default 1,000,000.
std::uint64_t num_tiny_samples();

/// A set of shards on disk. Sample i has the key key_of(i) and two fields: `field`, of field_bytes
/// bytes, and "cls".
struct ShardSet {
  std::string dir;
  std::string field;
  std::vector<std::string> shards;
  std::uint64_t num_samples = 0;
  std::uint64_t field_bytes = 0;
};

/// 100 shards. Field "bin" has 300 bytes, so that a member takes 1,024 bytes with its header: 2 GB
/// for 1,000,000 samples.
ShardSet tiny_shards();

/// 10 shards. Field "jpg" has 80,000 bytes. There is one sample for every 100 tiny ones: 0.8 GB.
ShardSet image_shards();

/// 10 shards, 0.64 GB in all for 1,000,000 tiny samples. Field "bin" has `field_bytes` bytes.
ShardSet cold_shards(std::uint64_t field_bytes);

std::string key_of(std::uint64_t sample);

/// Reads all files of `set` once, so that the page cache holds them.
void warm_page_cache(const ShardSet& set);

}  // namespace shardwise::bench
