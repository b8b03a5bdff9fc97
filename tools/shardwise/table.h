#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "output.h"
#include "text_layout.h"

namespace shardwise::tools {

/// Alignment of a column's cells. kByContent aligns to the right if the first rows have only
/// numbers.
enum class Align : std::uint8_t { kLeft, kRight, kByContent };

struct TableColumn {
  std::string name;
  Align align = Align::kLeft;
  Cut cut = Cut::kEnd;  ///< where text that is too wide is cut; numbers are never cut
};

/// A list for people and for scripts. On a terminal it has a header, and lines are cut to the
/// terminal's width. Columns are as wide as the widest of the first rows; later rows may widen
/// them. Elsewhere it has unchanged cells separated by tabs, and a header only on request.
///
/// Rows are written immediately, except the first kRowsMeasured rows on a terminal. Threads: one.
/// Errors: those of Output.
class Table {
 public:
  static constexpr std::size_t kRowsMeasured = 256;

  Table(Output& out, std::vector<TableColumn> columns, bool header = false);
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  /// Adds a row. Cells must be printable UTF-8, as escaped() returns. REQUIRES: one cell per
  /// column.
  void add(std::vector<std::string> cells);
  /// Writes the rows not yet written. Call it once, after the last row.
  void finish();

 private:
  void size_columns();
  void shrink_to_fit();
  void grow_for(const std::vector<std::string>& cells);
  std::string line_of(const std::vector<std::string>& cells) const;
  void print_kept();

  Output& out_;
  std::vector<TableColumn> columns_;
  const bool terminal_;
  const std::size_t line_width_;
  std::vector<std::vector<std::string>> kept_;
  std::vector<std::size_t> widths_;  // empty until the first rows have been measured
};

}  // namespace shardwise::tools
