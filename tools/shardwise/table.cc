#include "table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/assert.h"

namespace shardwise::tools {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kSmallestColumn = 8;

bool is_number(std::string_view cell) {
  return cell == "NULL" || cell.find_first_not_of("0123456789.,+-eE") == std::string_view::npos;
}

}  // namespace

Table::Table(Output& out, std::vector<TableColumn> columns, bool header)
    : out_(out),
      columns_(std::move(columns)),
      terminal_(out.is_terminal()),
      line_width_(terminal_ ? out.width() : 0) {
  if (terminal_ || !header) return;
  std::vector<std::string> names;
  for (const TableColumn& column : columns_) names.push_back(column.name);
  out_.print("{}\n", out_.head(fmt::format("{}", fmt::join(names, "\t"))));
}

void Table::add(std::vector<std::string> cells) {
  SHARDWISE_ASSERT(cells.size() == columns_.size());
  if (!terminal_) {
    out_.print("{}\n", fmt::join(cells, "\t"));
  } else if (!widths_.empty()) {
    grow_for(cells);
    out_.print("{}\n", line_of(cells));
  } else {
    kept_.push_back(std::move(cells));
    if (kept_.size() == kRowsMeasured) print_kept();
  }
}

void Table::finish() {
  if (terminal_ && widths_.empty()) print_kept();
}

void Table::print_kept() {
  size_columns();
  std::vector<std::string> names;
  for (const TableColumn& column : columns_) names.push_back(column.name);
  out_.print("{}\n", out_.head(line_of(names)));
  for (const auto& cells : kept_) out_.print("{}\n", line_of(cells));
  kept_.clear();
}

void Table::size_columns() {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    TableColumn& column = columns_[i];
    std::size_t width = display_width(column.name);
    bool numbers = !kept_.empty();
    for (const auto& cells : kept_) {
      width = std::max(width, display_width(cells[i]));
      numbers = numbers && is_number(cells[i]);
    }
    if (column.align == Align::kByContent) column.align = numbers ? Align::kRight : Align::kLeft;
    widths_.push_back(width);
  }
  shrink_to_fit();
}

/// Narrows the widest text column repeatedly, until a line fits or no column can be narrower.
void Table::shrink_to_fit() {
  if (widths_.empty()) return;
  std::size_t sum = std::accumulate(widths_.begin(), widths_.end(), kGap * (widths_.size() - 1));
  while (sum > line_width_) {
    std::size_t widest = widths_.size();
    for (std::size_t i = 0; i < widths_.size(); ++i) {
      if (columns_[i].align == Align::kRight || widths_[i] <= kSmallestColumn) continue;
      if (widest == widths_.size() || widths_[i] > widths_[widest]) widest = i;
    }
    if (widest == widths_.size()) return;
    --widths_[widest];
    --sum;
  }
}

/// Widens columns for cells wider than the first rows', e.g. growing numbers. Widens text columns
/// only if the line has room.
void Table::grow_for(const std::vector<std::string>& cells) {
  std::size_t sum = std::accumulate(widths_.begin(), widths_.end(), kGap * (widths_.size() - 1));
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t wanted = std::max(widths_[i], display_width(cells[i])) - widths_[i];
    const std::size_t room = line_width_ - std::min(line_width_, sum);
    const std::size_t more = columns_[i].align == Align::kRight ? wanted : std::min(wanted, room);
    widths_[i] += more;
    sum += more;
  }
}

std::string Table::line_of(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line.append(kGap, ' ');
    const bool right = columns_[i].align == Align::kRight;
    const std::string cell = right ? cells[i] : cut_to_width(cells[i], widths_[i], columns_[i].cut);
    const std::size_t taken = display_width(cell);
    const std::string fill(widths_[i] - std::min(widths_[i], taken), ' ');
    if (right) line += fill;
    line += cell;
    if (!right && i + 1 < cells.size()) line += fill;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return cut_to_width(line, line_width_);
}

}  // namespace shardwise::tools
