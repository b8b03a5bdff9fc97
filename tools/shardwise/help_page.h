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
  std::vector<std::string> names;    ///< "-o" and "--output"; of an argument its name alone
  std::string type;                  ///< "N", "error|skip"; empty for a flag and an argument
  std::vector<std::string> choices;  ///< the values that it may have, if they are a fixed set
  std::string text;                  ///< what it is, with its default and what it needs
  bool is_many = false;              ///< an argument that may be given several times

  /// "-o, --output INDEX", "SOURCE...".
  std::string label() const;
};

struct HelpGroup {
  std::string title;
  std::vector<HelpOption> options;
};

struct HelpCommands {
  std::string title;
  std::vector<std::pair<std::string, std::string>> commands;  ///< name, and what it does
};

/// What help says of a program or of one of its commands. All documents are made of it: --help, the
/// manual pages, cli.md, and the completions of shells.
struct HelpPage {
  std::string name;  ///< "shardwise cache prune"
  std::string description;
  std::string usage;  ///< "shardwise cache prune --to SIZE [OPTION...] DIR"
  std::vector<HelpOption> arguments;
  std::vector<HelpCommands> commands;
  std::vector<HelpGroup> options;     ///< first the usual ones, if there are any without a group
  std::vector<std::string> notes;     ///< paragraphs
  std::vector<std::string> examples;  ///< one command each, which may be wider than a line
};

/// The title of the options that belong to no other group.
inline constexpr const char* kUsualOptions = "Options";

/// In the footer of `app` the indented lines are the examples. The others are joined to paragraphs,
/// which blank lines end; a title of the examples is not needed.
HelpPage help_page(const CLI::App& app);

/// The page of a program or command, and those of the commands below it, in the order of its help.
struct HelpTree {
  HelpPage page;
  std::vector<HelpTree> commands;
};
HelpTree help_tree(const CLI::App& app);

/// "shardwise cache prune": a command with those that it belongs to.
std::string full_name(const CLI::App& app);

}  // namespace shardwise::tools
