#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "index/catalogue.h"
#include "index/key_index.h"
#include "index/offset_table.h"
#include "index/table_view.h"
#include "shardwise/base/cancel.h"
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
  const TableView& table() const noexcept { return view_; }
  const TableHeader& header() const noexcept { return view_.header(); }
  const ShardEntry* directory() const noexcept { return view_.directory(); }
  const std::uint32_t* hints() const noexcept { return view_.hints(); }
  const KeyIndex& keys() const noexcept { return view_.keys(); }
  std::string table_path() const;

  /// Returns the bytes of a shard's segment, unverified. REQUIRES: shard < num_shards.
  std::string_view segment_bytes(std::uint64_t shard) const noexcept {
    return view_.segment_bytes(shard);
  }
  /// Returns a shard's segment after checking it completely. Errors: CorruptIndex.
  SegmentView segment(std::uint64_t shard, std::uint64_t expected_checksum) const;
  /// Checks the counts and the checksum of a shard's segment. Unlike segment(), it does not check
  /// the relations of its records. Errors: CorruptIndex.
  void require_intact(std::uint64_t shard, std::uint64_t expected_checksum) const;

  /// Checks the key section. Errors: CorruptIndex.
  void require_intact_keys() const;
  /// Checks the parts that opening does not check: every page of the catalogue, every segment, and
  /// the key section.
  /// @param check  called with each shard's number and segment; may be null.
  /// Errors: CorruptIndex; Cancelled.
  /// Cost: reads all of both files.
  void check_sections(
      const CancelToken& cancel,
      const std::function<void(std::uint64_t shard, const SegmentView& segment)>& check = {}) const;

  [[noreturn]] void damaged(std::string_view why) const { view_.damaged(why); }

 private:
  void require_own(std::uint64_t shard, std::uint64_t expected_checksum) const;

  std::string path_;
  std::unique_ptr<Catalogue> catalogue_;
  std::unique_ptr<MappedFile> table_;
  // A second mapping of the table, without read-ahead, for look-ups of single keys.
  std::unique_ptr<MappedFile> lookups_;
  TableView view_;
};

/// Returns the name of the index for which a table was written, or an empty text if `name` is not
/// the name of a table. Both names are without a folder.
std::string_view owner_of_table(std::string_view name) noexcept;

/// Removes offset tables of the index at `path` that its catalogue does not name, unless a build is
/// writing them. Never throws: a table that remains takes only space, and the next build tries
/// again.
/// @param replaced  the table that the replaced catalogue named; may be empty. If the index was
///   renamed, this table's name begins with the index's earlier name. The table is then removed,
///   unless an index with the earlier name exists, or an index in the directory uses the table.
void sweep_tables(const std::string& path, const std::string& replaced) noexcept;

/// Returns the path or URL for a shard's stored URL.
/// @param home  directory of the index, or its URL if it was fetched.
/// Errors: the author of a fetched index may be anybody. In such an index, a path on this machine
///   or a command is Unsupported, and a path with ".." is an InvalidArgument.
std::string resolve_url(const std::string& home, const std::string& url);
/// Returns the stored form of a shard's path or URL. A path is relative if the shard is below the
/// index's directory, so that both can be moved together; otherwise it is absolute. normal_path()
/// resolves "..". A URL is stored without user, password and signature (unsigned_url()).
std::string url_of_path(const std::string& index_path, const std::string& path);

}  // namespace shardwise
