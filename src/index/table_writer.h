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
#include "index/table_view.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/hash.h"

namespace shardwise {

/// Two samples with the same key.
struct RepeatedKey {
  std::string key;
  std::uint64_t first = 0;          ///< number of the first sample
  std::uint64_t second = 0;         ///< number of the second sample
  std::uint64_t first_segment = 0;  ///< number of the first sample's segment
  std::uint64_t second_segment = 0;
  std::uint64_t num_repeated = 0;  ///< samples whose key an earlier sample already has
};

/// Whether keys of a table must be unique.
struct UniqueKeys {
  /// Called if a key is repeated, to throw an error. Empty means that keys may be repeated.
  std::function<void(const RepeatedKey&)> refuse = {};
  bool in_segment = false;  ///< a key must not be repeated within a segment either
};

/// Writes an offset table segment by segment, in shard order.
/// Threads: one.
class TableWriter {
 public:
  /// @param index_path  the catalogue's path; the table is written in the same folder.
  explicit TableWriter(const std::string& index_path);

  /// Appends a segment that SegmentBuilder made, or that is copied from another table.
  void append(std::string_view segment, const std::vector<std::uint64_t>& key_hashes);

  /// Appends a segment of another table, whose keys need not be hashed again. REQUIRES: keep_keys()
  /// was called with that table, and this segment was not appended before.
  void append_kept(std::uint64_t old_shard);
  /// Names the table that append_kept() copies from. REQUIRES: its key section is intact, and it
  /// outlives this object.
  void keep_keys(const TableView& old);

  /// Writes the remaining sections and the header.
  void finish(const UniqueKeys& unique = {}, const CancelToken& cancel = {});
  /// Renames the file to its final name. It remains locked until it is closed, so that no other
  /// build removes it.
  void commit();

  File& file() noexcept { return file_.file(); }
  // Valid after finish():
  const std::string& path() const noexcept { return path_; }
  const TableHeader& header() const noexcept { return header_; }

 private:
  void write_header();
  void write(std::string_view bytes);
  void write_segment(std::string_view segment);
  void write_directory();
  /// Returns the new number of a sample of `old_`, or KeptKeys::kGone.
  std::uint64_t new_number(std::uint64_t old_sample) const noexcept;
  void hash_kept(const CancelToken& cancel);

  const std::string index_path_;
  std::string path_;
  AtomicFile file_;
  KeySorter keys_;
  const TableView* old_ = nullptr;
  std::vector<std::uint64_t>
      kept_first_;              // for each shard of `old_`, its new first sample or kGone
  std::uint64_t num_kept_ = 0;  // samples
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
