#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shardwise/base/mapped_file.h"
#include "shardwise/index/index.h"
#include "shardwise/index/offset_table.h"

namespace shardwise::detail {

/// A mapped shard with its records: what a Sample points into, and keeps alive.
struct OpenShard {
  std::shared_ptr<const Index> index;  // owns what `segment` points into
  MappedFile file;
  SegmentView segment;
  std::uint64_t first_sample = 0;
  std::string path;

  std::uint64_t size_bytes() const noexcept { return file.bytes().size(); }
};

}  // namespace shardwise::detail
