#include "shardwise/ingest/indexed_shard_writer.h"

#include <utility>

#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {

IndexedShardWriter::IndexedShardWriter(std::string index, std::string_view pattern,
                                       const ShardWriterOptions& options, const BuildOptions& build)
    : index_(std::move(index)), writer_(pattern, options), build_(build) {
  if (options.dry_run) {
    throw InvalidArgument("a dry run makes no index", in_quotes(index_),
                          "use ShardWriter to count what would be written");
  }
}

BuildReport IndexedShardWriter::close() {
  writer_.close();
  return build_index(index_, writer_.paths(), build_);
}

}  // namespace shardwise
