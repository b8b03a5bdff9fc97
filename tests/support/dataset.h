#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "support/support.h"

namespace shardwise::test {

using Fields = std::vector<std::pair<std::string, std::string>>;

/// Packs samples ("s00000.png", "s00000.cls", ...) into shards of `samples_per_shard`. Indexes them
/// as <dir>/<name>.idx, and opens that index.
inline Dataset make_dataset(const TempDir& dir, const std::string& name,
                            const std::vector<Fields>& samples,
                            std::size_t samples_per_shard = 100) {
  std::vector<std::string> shards;
  for (std::size_t first = 0; first < samples.size(); first += samples_per_shard) {
    TarBuilder tar;
    for (std::size_t i = first; i < std::min(first + samples_per_shard, samples.size()); ++i) {
      char key[32];
      std::snprintf(key, sizeof key, "s%05zu", i);
      for (const auto& [field, bytes] : samples[i]) tar.file(std::string(key) + "." + field, bytes);
    }
    shards.push_back(dir / (name + "-" + std::to_string(shards.size()) + ".tar"));
    write_file(shards.back(), tar.end().bytes());
  }
  build_index(dir / (name + ".idx"), shards);
  return Dataset::open(dir / (name + ".idx"));
}

}  // namespace shardwise::test
