#include "help.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "console.h"
#include "help_page.h"
#include "text_layout.h"

namespace shardwise::tools {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kLargestLabel = 26;
constexpr std::size_t kSmallestWidth = 40;

/// A label, and the text to its right.
using Row = std::pair<std::string, std::string>;

std::vector<Row> rows_of(const std::vector<HelpOption>& options) {
  std::vector<Row> rows;
  for (const HelpOption& option : options) rows.emplace_back(option.label(), option.text);
  return rows;
}

/// A page in the making, for one stream.
struct Text {
  std::string title(std::string_view text) const {
    return styled(folded(text, width) + ":", Style::kHead, fd);
  }
  void append(std::string_view title, const std::vector<Row>& rows);

  const int fd;
  const std::size_t width = std::max(terminal_width(fd), kSmallestWidth);
  std::string help{};
};

void Text::append(std::string_view named, const std::vector<Row>& rows) {
  if (rows.empty()) return;
  std::size_t label_width = 0;
  for (const auto& [label, text] : rows) {
    const std::size_t taken = display_width(label);
    if (taken <= kLargestLabel) label_width = std::max(label_width, taken);
  }
  const std::size_t column = kIndent + label_width + 2;
  help += "\n" + title(named) + "\n";
  for (const auto& [label, text] : rows) {
    std::string line = std::string(kIndent, ' ') + label;
    if (display_width(line) + 2 > column) {
      help += line + "\n";
      line.clear();
    }
    line.resize(line.size() + column - display_width(line), ' ');
    help += line + folded(text, width, column) + "\n";
  }
}

}  // namespace

std::string help_of(const CLI::App& app, HelpLength length, int fd) {
  HelpPage page = help_page(app);
  if (length == HelpLength::kShort) page = short_page(std::move(page));
  Text text{.fd = fd};
  constexpr std::string_view kUsage = "Usage:";
  text.help = folded(page.description, text.width) + "\n\n" + styled(kUsage, Style::kHead, fd);
  text.help +=
      folded_command(std::string(kUsage) + " " + page.usage, text.width).substr(kUsage.size()) +
      "\n";
  text.append("Arguments", rows_of(page.arguments));
  for (const HelpCommands& group : page.commands) text.append(group.title, group.commands);
  for (const HelpGroup& group : page.options) text.append(group.title, rows_of(group.options));
  for (const std::string& note : page.notes) text.help += "\n" + folded(note, text.width) + "\n";
  if (page.examples.empty()) return text.help;
  text.help += "\n" + text.title(page.examples.size() == 1 ? "Example" : "Examples") + "\n";
  for (const std::string& example : page.examples) {
    text.help += folded_command(std::string(kIndent, ' ') + example, text.width) + "\n";
  }
  return text.help;
}

}  // namespace shardwise::tools
