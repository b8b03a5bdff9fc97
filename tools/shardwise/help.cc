#include "help.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "console.h"
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

void append_rows(std::string& help, std::string_view title, const std::vector<Row>& rows,
                 std::size_t width) {
  if (rows.empty()) return;
  std::size_t label_width = 0;
  for (const auto& [label, text] : rows) {
    const std::size_t taken = display_width(label);
    if (taken <= kLargestLabel) label_width = std::max(label_width, taken);
  }
  const std::size_t column = kIndent + label_width + 2;
  help += "\n" + folded(title, width) + ":\n";
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

std::string to_text(const HelpPage& page, std::size_t width) {
  width = std::max(width, kSmallestWidth);
  std::string help = folded(page.description, width) + "\n\n";
  help += folded_command("Usage: " + page.usage, width) + "\n";
  append_rows(help, "Arguments", rows_of(page.arguments), width);
  for (const HelpCommands& group : page.commands) {
    append_rows(help, group.title, group.commands, width);
  }
  for (const HelpGroup& group : page.options) {
    append_rows(help, group.title, rows_of(group.options), width);
  }
  for (const std::string& note : page.notes) help += "\n" + folded(note, width) + "\n";
  if (!page.examples.empty()) help += page.examples.size() == 1 ? "\nExample:\n" : "\nExamples:\n";
  for (const std::string& example : page.examples) {
    help += folded_command(std::string(kIndent, ' ') + example, width) + "\n";
  }
  return help;
}

std::string help_of(const CLI::App& app) {
  return to_text(help_page(app), terminal_width(STDOUT_FILENO));
}

}  // namespace shardwise::tools
