#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "shardwise/loader/loader.h"

namespace shardwise::test {

/// Loads all samples of `data` as one batch, in order.
inline Batch one_batch(const Dataset& data, std::vector<Column> columns,
                       Loader::Options options = {}) {
  options.columns = std::move(columns);
  options.order.kind = Sequential{};
  options.batch_size = std::max<std::uint64_t>(data.size(), 1);
  options.threads = 2;
  Loader loader(data, std::move(options));
  return loader.next().value();
}

}  // namespace shardwise::test
