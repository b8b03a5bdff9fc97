#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// Joins the words, with `between` between them.
std::string joined(const std::vector<std::string>& words, std::string_view between);

/// An option or an argument, as shown by help.
struct HelpOption {
  std::vector<std::string> names;    ///< "-o" and "--output"; for an argument its name
  std::string type;                  ///< "N", "error|skip"; empty for a flag and an argument
  std::vector<std::string> choices;  ///< the allowed values, if they are a fixed set
  std::string text;                  ///< the description, with its default and its requirements
  std::string brief;                 ///< like `text`, with only the first phrase of the description
  bool is_many = false;              ///< an argument that can be repeated
  bool is_common = false;            ///< shown by -h, too: see mark_common()

  /// Returns e.g. "-o, --output INDEX" or "SOURCE...".
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
  std::string name;  ///< e.g. "shardwise cache prune"
  std::string description;
  std::string usage;  ///< e.g. "shardwise cache prune --to SIZE [OPTION...] DIR"
  std::vector<HelpOption> arguments;
  std::vector<HelpCommands> commands;
  std::vector<HelpGroup> options;     ///< options without a group come first
  std::vector<std::string> notes;     ///< paragraphs
  std::vector<std::string> examples;  ///< one command each; may be longer than a line
};

/// Title of the options without a group.
inline constexpr const char* kUsualOptions = "Options";

/// Makes the page of `app`. Reads notes and examples from the footer: indented lines are examples,
/// which need no title. Other lines form paragraphs, separated by blank lines.
HelpPage help_page(const CLI::App& app);

/// The page of -h: common options in one phrase each, and one example. A page with few options
/// keeps them all.
HelpPage short_page(HelpPage page);

/// The page of a program or command, and the pages of the commands below it, in the order in which
/// help lists them.
struct HelpTree {
  HelpPage page;
  std::vector<HelpTree> commands;
};
HelpTree help_tree(const CLI::App& app);

/// Returns a command's name with those of its parents, e.g. "shardwise cache prune".
std::string full_name(const CLI::App& app);

}  // namespace shardwise::tools
