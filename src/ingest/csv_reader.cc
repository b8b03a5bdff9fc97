#include "ingest/csv_reader.h"

#include <algorithm>

#include "base/lines.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;

}  // namespace

CsvReader::CsvReader(const std::string& path, char separator)
    : file_(File::open_read(path)), separator_(separator) {
  read_more();
  if (buffer_.starts_with(detail::kByteOrderMark)) begin_ = detail::kByteOrderMark.size();
}

void CsvReader::refuse(const std::string& what, const std::string& remedy) const {
  throw InvalidArgument(what, "line " + std::to_string(line_) + " of " + in_quotes(file_.path()),
                        remedy);
}

/// Reads the file's next bytes into the buffer, and removes the records before begin_.
void CsvReader::read_more() {
  if (buffer_.size() - begin_ > kMaxRecordBytes) {
    refuse("a record has more than 64 MiB", "look for an unmatched quote");
  }
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t kept = buffer_.size();
  buffer_.resize(kept + std::max(kReadBytes, kept));
  const std::size_t size = file_.read_at(offset_, buffer_.data() + kept, buffer_.size() - kept);
  is_whole_ = size < buffer_.size() - kept;
  buffer_.resize(kept + size);
  offset_ += size;
}

/// Parses a cell that begins with the quote at `at`, and moves `at` past its closing quote.
CsvReader::Outcome CsvReader::parse_quoted(std::size_t& at) {
  Cell cell{at + 1, 0, false};
  for (at = cell.begin;; at += 2) {
    at = buffer_.find('"', at);
    if (at == std::string::npos || at + 1 == buffer_.size()) {
      if (!is_whole_) return Outcome::kIncomplete;
      if (at == std::string::npos) {
        refuse("a quoted cell has no closing quote", "add the missing quote");
      }
      break;
    }
    if (buffer_[at + 1] != '"') break;
    cell.has_quotes = true;
  }
  cell.end = at++;
  cells_.push_back(cell);
  return Outcome::kRecord;
}

/// Parses a cell without quotes, and moves `at` to its end.
CsvReader::Outcome CsvReader::parse_plain(std::size_t& at) {
  const std::size_t begin = at;
  while (at < buffer_.size() && buffer_[at] != separator_ && buffer_[at] != '\n') ++at;
  if (at == buffer_.size() && !is_whole_) return Outcome::kIncomplete;
  const bool at_line_end = at == buffer_.size() || buffer_[at] == '\n';
  const bool has_cr = at_line_end && at > begin && buffer_[at - 1] == '\r';
  cells_.push_back({begin, at - (has_cr ? 1 : 0), false});
  return Outcome::kRecord;
}

CsvReader::Outcome CsvReader::parse() {
  cells_.clear();
  if (begin_ == buffer_.size()) return is_whole_ ? Outcome::kEnd : Outcome::kIncomplete;
  for (std::size_t at = begin_;; ++at) {
    const bool is_quoted = at < buffer_.size() && buffer_[at] == '"';
    const Outcome outcome = is_quoted ? parse_quoted(at) : parse_plain(at);
    if (outcome != Outcome::kRecord) return outcome;
    if (is_quoted && at < buffer_.size() && buffer_[at] == '\r') {
      if (at + 1 == buffer_.size() && !is_whole_) return Outcome::kIncomplete;
      if (at + 1 == buffer_.size() || buffer_[at + 1] == '\n') ++at;
    }
    end_ = std::min(at + 1, buffer_.size());
    if (at == buffer_.size()) {
      if (!is_whole_) return Outcome::kIncomplete;
      return Outcome::kRecord;
    }
    if (buffer_[at] == '\n') return Outcome::kRecord;
    if (buffer_[at] != separator_) {
      refuse("a quoted cell has text after its closing quote",
             "write two quotes for one within a quoted cell");
    }
  }
}

std::string_view CsvReader::text_of(const Cell& cell) {
  const std::string_view text = std::string_view(buffer_).substr(cell.begin, cell.end - cell.begin);
  if (!cell.has_quotes) return text;
  const std::size_t begin = unquoted_.size();
  for (std::size_t i = 0; i < text.size(); ++i) {
    unquoted_ += text[i];
    if (text[i] == '"') ++i;
  }
  return std::string_view(unquoted_).substr(begin);
}

bool CsvReader::next(std::vector<std::string_view>& cells) {
  for (;;) {
    line_ = next_line_;
    Outcome outcome = parse();
    for (; outcome == Outcome::kIncomplete; outcome = parse()) read_more();
    if (outcome == Outcome::kEnd) return false;
    const auto record = buffer_.begin();
    next_line_ +=
        static_cast<std::uint64_t>(std::count(record + static_cast<std::ptrdiff_t>(begin_),
                                              record + static_cast<std::ptrdiff_t>(end_), '\n'));
    unquoted_.clear();
    unquoted_.reserve(end_ - begin_);  // prevents reallocation, so that views into it stay valid
    begin_ = end_;
    if (cells_.size() > 1 || cells_[0].begin != cells_[0].end) break;
  }
  cells.clear();
  for (const Cell& cell : cells_) cells.push_back(text_of(cell));
  return true;
}

}  // namespace shardwise
