#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "index/segment_cache.h"
#include "index/table_view.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

// The file of an index's side tables, `<index>.side`. docs/formats/side-tables.md specifies it.
//
//   SideHeader   64 bytes
//   tables       each an offset table (offset_table.h) of rows: samples without members
//   list         JSON: name, columns, offset, ... of each table

inline constexpr std::string_view kSideSuffix = ".side";
inline constexpr char kSideMagic[8] = {'S', 'H', 'A', 'R', 'D', 'W', 'S', '\n'};
inline constexpr std::uint32_t kSideVersion = 1;

struct SideHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t file_bytes;
  std::uint64_t list_offset;
  std::uint64_t list_bytes;
  std::uint64_t list_checksum;  ///< hash64 of the list
  std::uint64_t padding;
  std::uint64_t header_checksum;  ///< hash64 of the bytes before this one
};
static_assert(sizeof(SideHeader) == 64);

std::uint64_t side_header_checksum(const SideHeader& header) noexcept;
/// Returns the list of side tables as JSON. In the file, the tables follow one another, directly
/// after the header.
/// @param table_bytes  size of each table.
std::string side_list(const std::vector<SideTable>& tables,
                      const std::vector<std::uint64_t>& table_bytes);

/// A side table, opened. Its parts are checked on first access.
/// Threads: any.
class SHARDWISE_EXPORT SideTableView {
 public:
  /// @param file  for error texts.
  /// Errors: CorruptIndex; VersionMismatch.
  SideTableView(SideTable info, std::string_view bytes, const std::string& file);

  [[nodiscard]] const SideTable& info() const noexcept { return info_; }
  [[nodiscard]] std::string_view bytes() const noexcept { return bytes_; }

  // Errors of the functions below: CorruptIndex.

  /// Returns the row with this key, or nothing. Cost: O(1).
  [[nodiscard]] std::optional<std::uint64_t> find(std::string_view key) const;
  /// REQUIRES: row < info().num_rows.
  [[nodiscard]] std::string_view key(std::uint64_t row) const;
  /// REQUIRES: row < info().num_rows, column < info().columns.size().
  [[nodiscard]] MetadataValue value(std::uint64_t row, std::uint32_t column) const;
  /// Returns the value of the row with this key; null if there is no such row.
  [[nodiscard]] MetadataValue value_of(std::string_view key, std::uint32_t column) const;
  /// Checks the whole table.
  void validate() const;

 private:
  /// Returns the segment of a row, and sets `row` to the row's number in it.
  const SegmentView& segment_of(std::uint64_t& row) const;
  const SegmentView& segment(std::uint64_t number) const;

  const SideTable info_;
  const std::string_view bytes_;
  const TableView table_;
  mutable SegmentCache segments_;
};

/// Finds values in a side table, faster if samples come in the order of rows.
/// Threads: one.
class SHARDWISE_EXPORT SideRows {
 public:
  /// @param table  must outlive this object.
  explicit SideRows(const SideTableView& table) : table_(&table) {}

  /// Returns the value of the row with this key; null if there is no such row.
  [[nodiscard]] MetadataValue value(std::string_view key, std::uint32_t column);

 private:
  const SideTableView* table_;
  std::uint64_t row_ = 0;
};

/// The side tables of an index.
/// Threads: any.
class SHARDWISE_EXPORT SideTables {
 public:
  SideTables() = default;
  /// Opens the side tables of the index at `index_path`; none if there is no such file.
  /// @param own  the index's own columns.
  /// Errors: CorruptIndex; VersionMismatch; InvalidArgument if two columns have the same name.
  SideTables(const std::string& index_path, const std::vector<Index::Column>& own);

  [[nodiscard]] const std::vector<std::unique_ptr<const SideTableView>>& all() const noexcept {
    return tables_;
  }

 private:
  std::optional<MappedFile> file_;
  std::vector<std::unique_ptr<const SideTableView>> tables_;
};

/// The place of a metadata column.
struct MetadataColumn {
  const SideTableView* table = nullptr;  ///< null for a column of the index itself
  std::uint32_t place = 0;               ///< in the side table, or in the index
};

/// Returns the names of all metadata columns: those of the index, then those of its side tables.
SHARDWISE_EXPORT std::vector<std::string> metadata_columns(const Index& index);
/// Returns the column of this name, or nothing. It is valid while the index lives.
SHARDWISE_EXPORT std::optional<MetadataColumn> find_metadata_column(const Index& index,
                                                                    std::string_view name) noexcept;

/// Throws InvalidArgument if a side table cannot have a column of this name.
/// @param where  the side table, for the error text.
void require_column_name(const std::string& name, const std::string& where);

}  // namespace shardwise::detail
