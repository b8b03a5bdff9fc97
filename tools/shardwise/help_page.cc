#include "help_page.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "options.h"

namespace shardwise::tools {
namespace {

bool is_shown(const CLI::Option& option) { return !option.get_group().empty(); }

/// Returns the choices that CLI11 appends to an option's type, e.g. "TEXT:{map,read}".
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t begin = type.find(":{");
  if (begin == std::string::npos || !type.ends_with('}')) return choices;
  std::string_view rest = std::string_view(type).substr(begin + 2);
  rest.remove_suffix(1);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    choices.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return choices;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  if (option.get_positional()) return {option.get_name(true)};
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

/// Returns the conditions and the default that help appends to an option's description.
std::string conditions_of(const CLI::Option& option) {
  std::string text;
  if (option.get_required() && !option.get_positional()) text += " (required)";
  if (const std::string value = option.get_default_str();
      !value.empty() && option.get_items_expected_max() > 0) {
    text += " (default: " + value + ")";
  }
  std::vector<std::string> needed;
  for (const CLI::Option* other : option.get_needs()) needed.push_back(other->get_name());
  std::sort(needed.begin(), needed.end());
  if (!needed.empty()) text += " (needs " + joined(needed, " and ") + ")";
  return text;
}

/// The first phrase of a description: up to a semicolon, or to the end of the sentence.
std::string first_phrase(const std::string& text) {
  std::size_t end = text.find(". ");
  while (end != std::string::npos && text.substr(0, end).ends_with("e.g")) {
    end = text.find(". ", end + 1);
  }
  return text.substr(0, std::min(text.find("; "), end));
}

HelpOption help_option(const CLI::Option& option) {
  // After a colon, the type describes the checks of the option.
  const std::string type = option.get_type_name();
  std::vector<std::string> choices = choices_of(type);
  std::string shown = choices.empty() ? type.substr(0, type.find(':')) : joined(choices, "|");
  if (option.get_positional()) shown.clear();
  return {.names = names_of(option),
          .type = std::move(shown),
          .choices = std::move(choices),
          .text = option.get_description() + conditions_of(option),
          .brief = first_phrase(option.get_description()) + conditions_of(option),
          .is_many = option.get_positional() && option.get_items_expected_max() > 1,
          .is_common = is_common(option)};
}

std::vector<HelpOption>& options_of(std::vector<HelpGroup>& groups, const std::string& title) {
  for (HelpGroup& group : groups) {
    if (group.title == title) return group.options;
  }
  return groups.emplace_back(HelpGroup{title, {}}).options;
}

/// Returns the title of an option's group. CLI11's default group is "Options", or "OPTIONS" in
/// newer versions.
std::string title_of(const CLI::Option& option) {
  const std::string& group = option.get_group();
  return group == "OPTIONS" ? std::string(kUsualOptions) : group;
}

/// Options without a group come first. Among them those of each command come last: colours, help
/// and version.
std::vector<HelpGroup> option_groups(const CLI::App& app) {
  std::vector<HelpGroup> groups;
  // If one of several options is required, CLI11 makes their group a sub-command without a name.
  for (const CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!part->get_name().empty()) continue;
    for (const CLI::Option* option : part->get_options()) {
      if (option->get_positional() || option == part->get_help_ptr() ||
          option == part->get_help_all_ptr()) {
        continue;
      }
      options_of(groups, part->get_description()).push_back(help_option(*option));
    }
  }
  options_of(groups, kUsualOptions);
  std::vector<const CLI::Option*> last;
  for (const CLI::Option* option : app.get_options()) {
    if (!is_shown(*option) || option->get_positional()) continue;
    if (option == app.get_help_ptr() || option == app.get_help_all_ptr() ||
        option == app.get_version_ptr()) {
      last.push_back(option);
    } else {
      options_of(groups, title_of(*option)).push_back(help_option(*option));
    }
  }
  for (const CLI::Option* option : last) {
    options_of(groups, kUsualOptions).push_back(help_option(*option));
  }
  return groups;
}

/// Returns the commands that help shows, by group.
std::vector<std::pair<std::string, std::vector<const CLI::App*>>> command_groups(
    const CLI::App& app) {
  std::vector<std::pair<std::string, std::vector<const CLI::App*>>> groups;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name().empty() || command->get_group().empty()) continue;
    const std::string& group = command->get_group();
    const bool has_none = group == "Subcommands" || group == "SUBCOMMANDS";
    const std::string title = has_none ? "Commands" : group;
    const auto there =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == title; });
    (there == groups.end() ? groups.emplace_back(title, std::vector<const CLI::App*>()) : *there)
        .second.push_back(command);
  }
  return groups;
}

std::string usage_of(const CLI::App& app) {
  std::string usage = full_name(app);
  if (!command_groups(app).empty()) return usage + " COMMAND [OPTION...]";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_required() || option->get_positional()) continue;
    const HelpOption shown = help_option(*option);
    usage += " " + shown.names.front() + (shown.type.empty() ? "" : " " + shown.type);
  }
  usage += " [OPTION...]";
  for (const CLI::Option* option : app.get_options()) {
    if (!is_shown(*option) || !option->get_positional()) continue;
    const std::string label = help_option(*option).label();
    usage += option->get_required() ? " " + label : " [" + label + "]";
  }
  return usage;
}

bool takes_a_size(const CLI::App& app) {
  const auto options = app.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->get_type_name().starts_with(kSizeType);
  });
}

void add_footer(HelpPage& page, std::string_view footer) {
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) page.notes.push_back(paragraph);
    paragraph.clear();
  };
  while (!footer.empty()) {
    const std::size_t end = std::min(footer.find('\n'), footer.size());
    const std::string_view line = footer.substr(0, end);
    footer.remove_prefix(std::min(end + 1, footer.size()));
    if (line.empty() || line == "Example:" || line == "Examples:") {
      end_paragraph();
    } else if (line.starts_with(' ')) {
      end_paragraph();
      page.examples.emplace_back(line.substr(line.find_first_not_of(' ')));
    } else {
      paragraph += (paragraph.empty() ? "" : " ") + std::string(line);
    }
  }
  end_paragraph();
}

}  // namespace

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

std::string HelpOption::label() const {
  return joined(names, ", ") + (type.empty() ? "" : " " + type) + (is_many ? "..." : "");
}

std::string full_name(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

HelpPage help_page(const CLI::App& app) {
  HelpPage page;
  page.name = full_name(app);
  page.description = app.get_description();
  page.usage = usage_of(app);
  for (const CLI::Option* option : app.get_options()) {
    if (is_shown(*option) && option->get_positional()) {
      page.arguments.push_back(help_option(*option));
    }
  }
  for (const auto& [title, commands] : command_groups(app)) {
    HelpCommands& group = page.commands.emplace_back(HelpCommands{title, {}});
    for (const CLI::App* command : commands) {
      group.commands.emplace_back(command->get_name(), command->get_description());
    }
  }
  page.options = option_groups(app);
  if (takes_a_size(app)) page.notes.emplace_back(kSizeRule);
  add_footer(page, app.get_footer());
  return page;
}

HelpPage short_page(HelpPage page) {
  constexpr std::size_t kFew = 12;
  std::size_t count = 0;
  for (const HelpGroup& group : page.options) count += group.options.size();
  HelpGroup common{kUsualOptions, {}};
  std::vector<HelpOption> last;  // those of each command, which come last here, too
  for (HelpGroup& group : page.options) {
    for (HelpOption& option : group.options) {
      option.text = option.brief;
      const std::string& name = option.names.front();
      const bool is_last = name == "-h" || name == "--help" || name == "-V";
      if (option.is_common || count <= kFew) {
        (is_last ? last : common.options).push_back(std::move(option));
      }
    }
  }
  std::ranges::move(last, std::back_inserter(common.options));
  for (HelpOption& argument : page.arguments) argument.text = argument.brief;
  page.notes.clear();
  if (!page.commands.empty()) {
    page.notes.push_back("`" + page.name +
                         " COMMAND -h` shows the common options of a command, and " +
                         "`--help` all of them.");
  } else if (common.options.size() < count) {
    page.notes.push_back("`" + page.name + " --help` shows all " + std::to_string(count) +
                         " options, and more about each.");
  }
  page.options = {std::move(common)};
  if (page.examples.size() > 1) page.examples.resize(1);
  return page;
}

HelpTree help_tree(const CLI::App& app) {
  HelpTree tree = {help_page(app), {}};
  for (const auto& [title, commands] : command_groups(app)) {
    for (const CLI::App* command : commands) tree.commands.push_back(help_tree(*command));
  }
  return tree;
}

}  // namespace shardwise::tools
