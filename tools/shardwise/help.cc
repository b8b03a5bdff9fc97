#include "help.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "console.h"
#include "options.h"
#include "text_layout.h"

namespace shardwise::tools {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kLargestLabel = 26;
constexpr std::size_t kSmallestWidth = 40;
constexpr std::string_view kUsualGroup = "Options";

struct Row {
  std::string label;
  std::string text;
};
using Group = std::pair<std::string, std::vector<Row>>;

bool is_shown(const CLI::Option& option) { return !option.get_group().empty(); }

/// "N", "map|read|range", or nothing for a flag: CLI11 appends to a type what its checks take.
std::string type_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t colon = type.find(':');
  if (colon == std::string::npos) return type;
  const std::string_view rest = std::string_view(type).substr(colon + 1);
  if (!rest.starts_with('{') || !rest.ends_with('}')) return type.substr(0, colon);
  std::string choices(rest.substr(1, rest.size() - 2));
  std::replace(choices.begin(), choices.end(), ',', '|');
  return choices;
}

std::string names_of(const CLI::Option& option) {
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  return names;
}

bool is_many(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

std::string text_of(const CLI::Option& option) {
  std::string text = option.get_description();
  if (option.get_required() && !option.get_positional()) text += " (required)";
  if (const std::string value = option.get_default_str();
      !value.empty() && option.get_items_expected_max() > 0) {
    text += " (default: " + value + ")";
  }
  std::vector<std::string> needed;
  for (const CLI::Option* other : option.get_needs()) needed.push_back(other->get_name());
  std::sort(needed.begin(), needed.end());
  for (const std::string& name : needed) text += " (needs " + name + ")";
  return text;
}

Row row_of(const CLI::Option& option) {
  const std::string type = type_of(option);
  return {names_of(option) + (type.empty() ? "" : " " + type), text_of(option)};
}

std::vector<Row>& rows_of(std::vector<Group>& groups, const std::string& name) {
  for (Group& group : groups) {
    if (group.first == name) return group.second;
  }
  return groups.emplace_back(name, std::vector<Row>()).second;
}

/// CLI11 calls the group of what has none "Options" or, of late, "OPTIONS".
std::string group_name(const CLI::Option& option) {
  const std::string& name = option.get_group();
  return name == "OPTIONS" ? std::string(kUsualGroup) : name;
}

/// The options with names, those without a group first and help last among them.
std::vector<Group> option_groups(const CLI::App& app) {
  std::vector<Group> groups;
  // An option group of CLI11, of which one is needed, is a sub-command without a name.
  for (const CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!part->get_name().empty()) continue;
    for (const CLI::Option* option : part->get_options()) {
      if (option->get_positional() || option == part->get_help_ptr()) continue;
      rows_of(groups, part->get_description()).push_back(row_of(*option));
    }
  }
  const std::string usual(kUsualGroup);
  rows_of(groups, usual);
  std::vector<const CLI::Option*> last;
  for (const CLI::Option* option : app.get_options()) {
    if (!is_shown(*option) || option->get_positional()) continue;
    if (option == app.get_help_ptr() || option == app.get_version_ptr()) {
      last.push_back(option);
    } else {
      rows_of(groups, group_name(*option)).push_back(row_of(*option));
    }
  }
  for (const CLI::Option* option : last) rows_of(groups, usual).push_back(row_of(*option));
  return groups;
}

std::vector<Group> command_groups(const CLI::App& app) {
  std::vector<Group> groups;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name().empty() || command->get_group().empty()) continue;
    const std::string& group = command->get_group();
    const bool has_none = group == "Subcommands" || group == "SUBCOMMANDS";
    rows_of(groups, has_none ? "Commands" : group)
        .push_back({command->get_name(), command->get_description()});
  }
  return groups;
}

std::vector<Row> argument_rows(const CLI::App& app) {
  std::vector<Row> rows;
  for (const CLI::Option* option : app.get_options()) {
    if (is_shown(*option) && option->get_positional()) {
      rows.push_back({option->get_name(true) + (is_many(*option) ? "..." : ""), text_of(*option)});
    }
  }
  return rows;
}

std::string usage_of(const CLI::App& app) {
  std::string usage = "Usage: " + full_name(app);
  if (!command_groups(app).empty()) return usage + " COMMAND [OPTION...]";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_required() && !option->get_positional()) {
      const std::string names = names_of(*option);
      const std::string type = type_of(*option);
      usage += " " + names.substr(0, names.find(',')) + (type.empty() ? "" : " " + type);
    }
  }
  usage += " [OPTION...]";
  for (const CLI::Option* option : app.get_options()) {
    if (!is_shown(*option) || !option->get_positional()) continue;
    const std::string name = option->get_name(true) + (is_many(*option) ? "..." : "");
    usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  return usage;
}

void append_rows(std::string& help, std::string_view title, const std::vector<Row>& rows,
                 std::size_t width) {
  if (rows.empty()) return;
  std::size_t label_width = 0;
  for (const Row& row : rows) {
    const std::size_t taken = display_width(row.label);
    if (taken <= kLargestLabel) label_width = std::max(label_width, taken);
  }
  const std::size_t column = kIndent + label_width + 2;
  help += "\n" + folded(title, width) + ":\n";
  for (const Row& row : rows) {
    std::string line = std::string(kIndent, ' ') + row.label;
    if (display_width(line) + 2 > column) {
      help += line + "\n";
      line.clear();
    }
    line.resize(line.size() + column - display_width(line), ' ');
    help += line + folded(row.text, width, column) + "\n";
  }
}

bool takes_a_size(const CLI::App& app) {
  const auto options = app.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->get_type_name().starts_with(kSizeType);
  });
}

/// Lines that are indented are examples; others are joined to paragraphs and folded.
void append_footer(std::string& help, std::string_view footer, std::size_t width) {
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) help += folded(paragraph, width) + "\n";
    paragraph.clear();
  };
  help += "\n";
  while (!footer.empty()) {
    const std::size_t end = std::min(footer.find('\n'), footer.size());
    const std::string_view line = footer.substr(0, end);
    if (line.starts_with(' ') || line.empty()) {
      end_paragraph();
      help += folded_command(line, width) + "\n";
    } else {
      paragraph += (paragraph.empty() ? "" : " ") + std::string(line);
    }
    footer.remove_prefix(std::min(end + 1, footer.size()));
  }
  end_paragraph();
}

}  // namespace

std::string full_name(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  const std::size_t width = std::max(width_, kSmallestWidth);
  std::string help = folded(app->get_description(), width) + "\n\n";
  help += folded_command(usage_of(*app), width) + "\n";
  append_rows(help, "Arguments", argument_rows(*app), width);
  for (const Group& group : command_groups(*app)) {
    append_rows(help, group.first, group.second, width);
  }
  for (const Group& group : option_groups(*app)) {
    append_rows(help, group.first, group.second, width);
  }
  if (takes_a_size(*app)) help += "\n" + folded(kSizeRule, width) + "\n";
  if (const std::string footer = app->get_footer(); !footer.empty()) {
    append_footer(help, footer, width);
  }
  return help;
}

std::string help_of(const CLI::App& app) {
  return HelpFormatter(terminal_width(STDOUT_FILENO))
      .make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
}

}  // namespace shardwise::tools
