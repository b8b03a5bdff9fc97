#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace shardwise::tools {

/// Lays help out, folded to a width: what a command does, how it is called, its arguments, its
/// options by group (those without a group first, since they are the common ones), its
/// sub-commands by group, and the footer. In a footer a line that is indented is an example, and is
/// broken only as a shell allows. Where an option takes a size, the help says how sizes are
/// written.
class HelpFormatter : public CLI::FormatterBase {
 public:
  explicit HelpFormatter(std::size_t width) : width_(width) {}

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;

 private:
  std::size_t width_;
};

/// The help of a program or of one of its sub-commands, for standard output.
std::string help_of(const CLI::App& app);

/// "shardwise cache prune": a sub-command with those that it belongs to.
std::string full_name(const CLI::App& app);

}  // namespace shardwise::tools
