#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "index/catalogue.h"
#include "index/key_index.h"
#include "index/offset_table.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// The two files of an index, opened together and checked against each other. Immutable; any
/// thread.
class IndexFiles {
 public:
  /// Errors: NotFound; CorruptIndex; VersionMismatch.
  explicit IndexFiles(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const Catalogue& catalogue() const noexcept { return *catalogue_; }
  const TableHeader& header() const noexcept { return *header_; }
  const ShardEntry* directory() const noexcept { return directory_; }
  const std::uint32_t* hints() const noexcept { return hints_; }
  const KeyIndex& keys() const noexcept { return keys_; }
  std::string table_path() const;

  /// The bytes of a shard's segment, unchecked. REQUIRES: shard < num_shards.
  std::string_view segment_bytes(std::uint64_t shard) const noexcept;
  /// The segment, checked in full. Errors: CorruptIndex.
  SegmentView segment(std::uint64_t shard, std::uint64_t expected_checksum) const;

  /// Checks what opening leaves out: every page of the catalogue, every segment, and the key
  /// section.
  /// Errors: CorruptIndex.
  /// Cost: reads all of both files.
  void check_sections() const;

  [[noreturn]] void damaged(std::string_view why) const;

 private:
  void check_table();

  std::string path_;
  std::unique_ptr<Catalogue> catalogue_;
  std::unique_ptr<MappedFile> table_;
  const TableHeader* header_ = nullptr;
  const ShardEntry* directory_ = nullptr;
  const std::uint32_t* hints_ = nullptr;
  KeyIndex keys_;
};

/// The name of the index that a table was written for, both without a folder; empty if `name` is
/// none of a table's.
std::string_view owner_of_table(std::string_view name) noexcept;

/// Removes the offset tables of the index at `path` that its catalogue does not name and nobody is
/// building. Never throws: a table that stays behind costs room, and the next build tries again.
/// @param replaced  the table that the replaced catalogue named; empty: there was none. If the
///                  index was renamed, this table bears another index's name. It is removed, too,
///                  unless that other index exists, or any index in the directory names the table.
void sweep_tables(const std::string& path, const std::string& replaced) noexcept;

/// The path under which a shard's stored url is looked for. `home` is the directory of the index.
std::string resolve_url(const std::string& home, const std::string& url);
/// How the path of a shard is stored: relative to the index's directory if it lies below it, so
/// that the two can be moved together; absolute otherwise; a URL without user, password and
/// signature (unsigned_url). See normal_path for "..".
std::string url_of_path(const std::string& index_path, const std::string& path);

}  // namespace shardwise
