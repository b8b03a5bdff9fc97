#include "schema.h"

#include <algorithm>

#include "base/text.h"

namespace shardwise::tools {

std::vector<SchemaColumn> query_schema() {
  return {
      {"samples", "sample", "integer", "sample number, from 0"},
      {"samples", "key", "text", "key; a blob if it is not UTF-8"},
      {"samples", "shard", "integer", "number of its shard, from 0"},
      {"samples", "members", "integer", "number of its fields"},
      {"samples", "bytes", "integer", "bytes of all its fields"},
      {"members", "sample", "integer", "sample number, from 0"},
      {"members", "member", "integer", "place in the sample, from 0"},
      {"members", "key", "text", "key of the sample; a blob if it is not UTF-8"},
      {"members", "field", "text", "name of the field, e.g. jpg; a blob if it is not UTF-8"},
      {"members", "shard", "integer", "number of the shard, from 0"},
      {"members", "offset", "integer",
       "offset of its bytes in the shard; of a compressed shard, "
       "in the expanded tar"},
      {"members", "size", "integer", "number of its bytes"},
      {"shards", "shard", "integer", "number of the shard, from 0"},
      {"shards", "url", "text", "path, or URL without secrets, as in `shardwise ls`"},
      {"shards", "size", "integer", "bytes of the file"},
      {"shards", "mtime_ns", "integer", "modification time, ns since 1970; 0 if remote"},
      {"shards", "validator", "text", "a remote shard's ETag or Last-Modified"},
      {"shards", "first_sample", "integer", "number of its first sample"},
      {"shards", "samples", "integer", "number of its samples"},
      {"shards", "members", "integer", "number of members of its samples"},
      {"shards", "not_samples", "integer", "directories, links and devices in it"},
      {"shards", "archives", "integer", "number of archives in it; usually 1"},
      {"shards", "trailing_bytes", "integer", "bytes after the end-of-archive marker"},
      {"shards", "end_marker", "integer", "1 if the shard has an end-of-archive marker"},
      {"shards", "compression", "text", "compression: none, gzip, zstd, xz, bzip2 or lz4"},
      {"shards", "unchecked", "integer", "1 if its compression has no checksum"},
      {"shards", "expanded_size", "integer", "bytes of the expanded tar"},
      {"shards", "content_hash", "text", "hash of the whole file, if built with `index --hash`"},
      {"shards", "header_hash", "text", "hash of all its headers"},
      {"shards", "first_header_hash", "text", "hash of its first 512 bytes"},
      {"shards", "segment_checksum", "text", "checksum of its part of the offset table"},
      {"fields", "field", "text", "name of a field"},
      {"fields", "members", "integer", "number of samples that have the field"},
      {"fields", "bytes", "integer", "bytes of the field in all samples"},
      {"skipped", "shard", "integer", "number of the shard, from 0"},
      {"skipped", "offset", "integer", "offset of the skipped header"},
      {"skipped", "name", "text", "name of the member"},
      {"skipped", "kind", "text", "damage, no-field, duplicate-field, repeated-key, link, ..."},
      {"skipped", "reason", "text", "why the member was skipped"},
  };
}

std::vector<SchemaColumn> query_schema(const Index& index) {
  std::vector<SchemaColumn> schema = query_schema();
  auto end = std::ranges::find(schema, "members", &SchemaColumn::table);
  for (const Index::Column& column : index.content().columns) {
    const std::string path = column.json_path.empty() ? "" : ":" + escaped(column.json_path);
    end = schema.insert(end, {"samples", column.name, "any",
                              "metadata from " + escaped(column.field) + path}) +
          1;
  }
  for (const SideTable& table : index.side_tables()) {
    for (const std::string& column : table.columns) {
      end = schema.insert(end,
                          {"samples", column, "any", "of the side table " + escaped(table.name)}) +
            1;
    }
  }
  return schema;
}

}  // namespace shardwise::tools
