#pragma once

#include <span>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/tar/shard_writer.h"

namespace shardwise {

/// A ShardWriter whose shards have an index when it is closed. One thread.
class SHARDWISE_EXPORT IndexedShardWriter {
 public:
  /// Errors: InvalidArgument (the pattern, a limit of 0, a dry run).
  IndexedShardWriter(std::string index, std::string_view pattern,
                     const ShardWriterOptions& options = {}, const BuildOptions& build = {});

  /// As ShardWriter::write.
  void write(std::string_view key, std::span<const ShardWriter::Field> fields) {
    writer_.write(key, fields);
  }

  /// Finishes the last shard and makes the index, of these shards and no others. Once. Without it
  /// the index stays as it was, and of the shards those that were full.
  /// Cost: that of build_index: the headers are read again, from the page cache where the shards
  ///   are not much larger than memory. So the index is of what lies on the disk, and a shard that
  ///   did not arrive there as it was written is found out at once.
  /// Errors: as ShardWriter::close and build_index; InvalidArgument if nothing was written.
  BuildReport close();

  const ShardWriter::Totals& totals() const noexcept { return writer_.totals(); }

 private:
  std::string index_;
  ShardWriter writer_;
  BuildOptions build_;
};

}  // namespace shardwise
