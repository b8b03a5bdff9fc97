#include "schema.h"

#include "base/text.h"

namespace shardwise::tools {

std::vector<SchemaColumn> query_schema(const Index& index) {
  std::vector<SchemaColumn> schema = {
      {"samples", "sample", "integer", "number of the sample, from 0"},
      {"samples", "key", "text", "its key; a blob if it is not UTF-8"},
      {"samples", "shard", "integer", "number of its shard, from 0"},
      {"samples", "members", "integer", "how many fields it has"},
      {"samples", "bytes", "integer", "bytes of all its fields"},
  };
  for (const Column& column : index.content().columns) {
    schema.push_back(
        {"samples", column.name, "any",
         "metadata from " + escaped(column.field) +
             (column.json_path.empty() ? std::string() : ":" + escaped(column.json_path))});
  }
  const std::vector<SchemaColumn> others = {
      {"members", "sample", "integer", "number of the sample, from 0"},
      {"members", "member", "integer", "the member's place in the sample, from 0"},
      {"members", "key", "text", "key of the sample; a blob if it is not UTF-8"},
      {"members", "field", "text", "the field, as jpg; a blob if it is not UTF-8"},
      {"members", "shard", "integer", "number of the shard, from 0"},
      {"members", "offset", "integer", "where its bytes begin in the shard, expanded"},
      {"members", "size", "integer", "how many bytes it has"},
      {"shards", "shard", "integer", "number of the shard, from 0"},
      {"shards", "url", "text", "path, or URL without its secrets, as `shardwise ls` shows it"},
      {"shards", "size", "integer", "bytes of the file"},
      {"shards", "mtime_ns", "integer", "time of the last change, ns since 1970; 0 if remote"},
      {"shards", "validator", "text", "a remote shard's ETag or Last-Modified"},
      {"shards", "first_sample", "integer", "number of its first sample"},
      {"shards", "samples", "integer", "how many samples it has"},
      {"shards", "members", "integer", "how many members they have"},
      {"shards", "not_samples", "integer", "directories, links and devices in it"},
      {"shards", "archives", "integer", "archives one after another; usually 1"},
      {"shards", "trailing_bytes", "integer", "bytes after the end marker"},
      {"shards", "end_marker", "integer", "1 if the archive ends with its marker"},
      {"shards", "compression", "text", "none, gzip, zstd, xz, bzip2 or lz4"},
      {"shards", "unchecked", "integer", "1 if its compression has no checksum"},
      {"shards", "expanded_size", "integer", "bytes of the tar, expanded"},
      {"shards", "content_hash", "text", "of the whole file, with `index --hash`"},
      {"shards", "header_hash", "text", "of all its headers"},
      {"shards", "first_header_hash", "text", "of its first 512 bytes"},
      {"shards", "segment_checksum", "text", "of its part of the offset table"},
      {"fields", "field", "text", "name of a field"},
      {"fields", "members", "integer", "how many samples have it"},
      {"fields", "bytes", "integer", "bytes of it in all samples"},
      {"skipped", "shard", "integer", "number of the shard, from 0"},
      {"skipped", "offset", "integer", "of the header that was skipped"},
      {"skipped", "name", "text", "name of the member"},
      {"skipped", "kind", "text", "damage, no-field, duplicate-field, repeated-key, link, ..."},
      {"skipped", "reason", "text", "why it was skipped"},
  };
  schema.insert(schema.end(), others.begin(), others.end());
  return schema;
}

}  // namespace shardwise::tools
