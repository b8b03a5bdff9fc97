#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// Findings about index files of other programs that lie beside the shards of an index: what they
/// say, compared with the shards.
struct IndexHints {
  struct Stale {
    std::string path;  ///< of the file
    std::string why;   ///< "it has 12 samples, the shard 10"
  };

  std::vector<std::string> agreeing;  ///< paths
  std::vector<Stale> stale;
};

/// Looks beside each shard of `index` that is a local file, uncompressed, for an index of DALI's
/// (`x.idx` or `x.tar.idx`, versions 1.1 and 1.2) or Energon's (`x.tar.idx`), and holds it against
/// what was found in the shard: the number of samples, and where each begins. One that differs is
/// of another shard, or of this one before it changed; the programs that go by it read wrong bytes.
///
/// An index is never built from them: it says of each header block what is in it, so each is read
/// anyway. They could only say beforehand where the headers lie: 150 of them, 5 MB apart in a cold
/// file, took 51 ms one after another, and 49 ms 16 at once (medians of 5, a busy virtual disk);
/// shards are scanned side by side as it is.
/// Cost: a listing of each folder that holds shards; the files that there are, are read.
/// Errors: CorruptIndex; Cancelled.
SHARDWISE_EXPORT IndexHints check_hints(const Index& index, const CancelToken& cancel = {});

/// True if `path` is one of those, by its name and first bytes.
SHARDWISE_EXPORT bool is_index_hint(const std::string& path);

}  // namespace shardwise::detail

namespace shardwise {
using detail::check_hints;
using detail::IndexHints;
using detail::is_index_hint;
}  // namespace shardwise
