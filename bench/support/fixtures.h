#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardwise::bench {

/// Where fixtures lie: SHARDWISE_BENCH_DIR, else shardwise-bench in the system's temporary
/// directory. They are made at first use, kept between runs, and may be removed at any time.
std::string fixture_dir();

/// Samples of the tiny fixture: SHARDWISE_BENCH_SAMPLES, else 1,000,000.
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

/// 100 shards; "bin" of 300 bytes, so that header and data of a member take 1,024 bytes: 2 GB for
/// 1,000,000 samples.
ShardSet tiny_shards();

/// 10 shards; "jpg" of 80,000 bytes, one sample for every 100 tiny ones: 0.8 GB.
ShardSet image_shards();

/// 10 shards of 0.64 GB in all, for 1,000,000 tiny samples; "bin" of so many bytes.
ShardSet cold_shards(std::uint64_t field_bytes);

std::string key_of(std::uint64_t sample);

/// Reads all files of `set` once, so that the page cache holds them.
void warm_page_cache(const ShardSet& set);

}  // namespace shardwise::bench
