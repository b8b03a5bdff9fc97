#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace shardwise {

/// Reads the records of a CSV file as RFC 4180 describes them. Lines end in LF or CRLF. A byte
/// order mark and empty lines are skipped. In an unquoted cell, a quote is an ordinary character.
///
/// Threads: one.
/// Memory: that of the largest record, at most 64 MiB, and 1 MiB.
/// Errors: InvalidArgument with the line if the file is malformed.
class CsvReader {
 public:
  CsvReader(const std::string& path, char separator);

  /// Reads the next record. Returns false at the end of the file.
  /// @param cells  receives views that are valid until the next call.
  bool next(std::vector<std::string_view>& cells);
  /// The line at which the latest record begins, from 1.
  [[nodiscard]] std::uint64_t line() const noexcept { return line_; }
  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const;

 private:
  enum class Outcome : std::uint8_t { kRecord, kIncomplete, kEnd };
  struct Cell {
    std::size_t begin;
    std::size_t end;
    bool has_quotes;  // two quotes stand for one
  };

  /// Finds the cells of the record at begin_, and sets end_ to the beginning of the next record.
  Outcome parse();
  Outcome parse_quoted(std::size_t& at);
  Outcome parse_plain(std::size_t& at);
  void read_more();
  std::string_view text_of(const Cell& cell);

  const File file_;
  const char separator_;
  std::string buffer_;
  std::uint64_t offset_ = 0;  // in the file, of the end of the buffer
  bool is_whole_ = false;     // the buffer reaches to the end of the file
  std::size_t begin_ = 0;     // of the next record
  std::size_t end_ = 0;
  std::uint64_t line_ = 1;
  std::uint64_t next_line_ = 1;
  std::vector<Cell> cells_;
  std::string unquoted_;
};

}  // namespace shardwise
