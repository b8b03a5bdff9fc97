#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/hasher.h"
#include "index/key_index.h"
#include "index/offset_table.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/hash.h"

namespace shardwise {

/// Writes an offset table segment by segment, in shard order.
/// Threads: one.
class TableWriter {
 public:
  /// @param index_path  the catalogue's path; the table is written in the same folder.
  explicit TableWriter(const std::string& index_path);

  /// Appends a segment that SegmentBuilder made, or that is copied from another table.
  void append(std::string_view segment, const std::vector<std::uint64_t>& key_hashes);

  /// Writes the remaining sections and the header.
  /// @param unique_keys  fail if a key occurs in two shards.
  /// @param shard_name   returns a shard's name for the error of a repeated key.
  void finish(bool unique_keys = false,
              const std::function<std::string(std::uint64_t)>& shard_name = {},
              const CancelToken& cancel = {});
  /// Renames the file to its final name. It remains locked until it is closed, so that no other
  /// build removes it.
  void commit();

  File& file() noexcept { return file_.file(); }
  // After finish():
  const std::string& path() const noexcept { return path_; }
  const TableHeader& header() const noexcept { return header_; }

 private:
  void write_header();
  void write(std::string_view bytes);
  void write_directory();

  const std::string index_path_;
  std::string path_;
  AtomicFile file_;
  KeySorter keys_;
  std::vector<ShardEntry> directory_;
  std::uint64_t offset_ = sizeof(TableHeader);
  Hasher128 segments_hash_;
  TableHeader header_{};
};

inline constexpr std::string_view kTableSuffix = ".table";
/// Number of hexadecimal digits of the checksum in the table's file name.
inline constexpr std::size_t kTableNameLength = 16;
/// Returns the path of the table with this header_checksum, for the index that is written to
/// `index_path`.
std::string table_of(std::string_view index_path, std::uint64_t checksum);

/// Returns the value for TableHeader::header_checksum.
std::uint64_t table_header_checksum(const TableHeader& header) noexcept;

}  // namespace shardwise
