#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardwise::bench {

/// Returns the fixtures' folder: SHARDWISE_BENCH_DIR, or shardwise-bench in the system's temporary
/// folder. Fixtures are made at first use, kept between runs, and may be removed at any time.
std::string fixture_dir();

/// Returns the number of samples of the tiny fixture: SHARDWISE_BENCH_SAMPLES, default 1,000,000.
std::uint64_t num_tiny_samples();

/// A set of shards on disk. Sample i has the key key_of(i) and two fields: `field`, with
/// field_bytes bytes, and "cls".
struct ShardSet {
  std::string dir;
  std::string field;
  std::vector<std::string> shards;
  std::uint64_t num_samples = 0;
  std::uint64_t field_bytes = 0;
};

/// Makes 100 shards. Field "bin" has 300 bytes, so that a member with its header takes 1,024 bytes:
/// 2 GB for 1,000,000 samples.
ShardSet tiny_shards();

/// Makes 100 shards like the tiny ones, with the same keys, but the fields "txt" of 300 bytes and
/// "score".
/// @param in_order  the keys come in the order of the tiny shards; otherwise scattered.
ShardSet caption_shards(bool in_order);

/// Makes 10 shards. Field "jpg" has 80,000 bytes. There is one image per 100 tiny samples: 0.8 GB.
ShardSet image_shards();

/// Makes 10 shards of 0.64 GB in total for 1,000,000 tiny samples. Field "bin" has `field_bytes`
/// bytes.
ShardSet cold_shards(std::uint64_t field_bytes);

std::string key_of(std::uint64_t sample);

/// Reads all files of `set` once, to fill the page cache.
void warm_page_cache(const ShardSet& set);

}  // namespace shardwise::bench
