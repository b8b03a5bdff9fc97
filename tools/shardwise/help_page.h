#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// The words with `between` between them.
std::string joined(const std::vector<std::string>& words, std::string_view between);

/// An option or an argument, as help shows it.
struct HelpOption {
  std::vector<std::string> names;    ///< "-o" and "--output"; for an argument its name
  std::string type;                  ///< "N", "error|skip"; empty for a flag and an argument
  std::vector<std::string> choices;  ///< the allowed values, if they are a fixed set
  std::string text;                  ///< the description, with its default and its requirements
  std::string brief;                 ///< the same with only the first phrase of the description
  bool is_many = false;              ///< an argument that can be repeated
  bool is_common = false;            ///< shown by -h, too: see mark_common()

  /// "-o, --output INDEX", "SOURCE...".
  std::string label() const;
};

struct HelpGroup {
  std::string title;
  std::vector<HelpOption> options;
};

struct HelpCommands {
  std::string title;
  std::vector<std::pair<std::string, std::string>> commands;  ///< name, description
};

/// The help of a program or of one of its commands. All documents derive from it: -h and --help,
/// the manual pages, cli.md, and the completions of shells.
struct HelpPage {
  std::string name;  ///< "shardwise cache prune"
  std::string description;
  std::string usage;  ///< "shardwise cache prune --to SIZE [OPTION...] DIR"
  std::vector<HelpOption> arguments;
  std::vector<HelpCommands> commands;
  std::vector<HelpGroup> options;     ///< options without a group first, if there are any
  std::vector<std::string> notes;     ///< paragraphs
  std::vector<std::string> examples;  ///< one command each; may exceed the width of a line
};

/// The title of the options that belong to no other group.
inline constexpr const char* kUsualOptions = "Options";

/// Reads notes and examples from the footer of `app`. Indented lines are the examples. Other lines
/// are joined to paragraphs, which blank lines end; the examples need no title.
HelpPage help_page(const CLI::App& app);

/// The page of -h: common options in one phrase each, and one example. A page with few options
/// keeps them all.
HelpPage short_page(HelpPage page);

/// The page of a program or command, and those of the commands below it, in the order of its help.
struct HelpTree {
  HelpPage page;
  std::vector<HelpTree> commands;
};
HelpTree help_tree(const CLI::App& app);

/// "shardwise cache prune": a command with its parents.
std::string full_name(const CLI::App& app);

}  // namespace shardwise::tools
