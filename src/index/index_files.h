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

/// The two files of an index, opened together and checked against each other. Immutable.
/// Threads: any.
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

  /// The bytes of a shard's segment, unverified. REQUIRES: shard < num_shards.
  std::string_view segment_bytes(std::uint64_t shard) const noexcept;
  /// The segment, fully verified. Errors: CorruptIndex.
  SegmentView segment(std::uint64_t shard, std::uint64_t expected_checksum) const;

  /// Checks what opening omits: every page of the catalogue, every segment, and the key section.
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

/// The name of the index that a table was written for, without a folder; empty if `name` is not a
/// table's name. `name` has no folder either.
std::string_view owner_of_table(std::string_view name) noexcept;

/// Removes offset tables of the index at `path` that its catalogue does not name, unless they are
/// being built. Never throws: a leftover table costs only space, and the next build tries again.
/// @param replaced  the table that the replaced catalogue named; may be empty. If the index was
///   renamed, this table has another index's name. It is removed unless that other index exists, or
///   an index in the directory names the table.
void sweep_tables(const std::string& path, const std::string& replaced) noexcept;

/// The path of a shard with this stored URL.
/// @param home  directory of the index.
std::string resolve_url(const std::string& home, const std::string& url);
/// The stored form of a shard's path. It is relative if the shard is below the index's directory,
/// so that both can be moved together; otherwise absolute. A URL is stored without user, password
/// and signature (unsigned_url). See normal_path for "..".
std::string url_of_path(const std::string& index_path, const std::string& path);

}  // namespace shardwise
