#include <memory>
#include <string>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "help.h"
#include "version.h"

namespace shardwise::tools {

void add_help_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand("help", "Show the help of a command");
  const auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("COMMAND", *words, "the command, e.g. index or cache prune")->type_name("");
  command->footer("Example:\n  shardwise help index");
  command->callback([&program, words, &out] { out.write(help_of(find_command(program, *words))); });
}

void add_version_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "version", "Show the versions of the program, its algorithms, formats and libraries");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print one JSON object");
  command->footer("Example:\n  shardwise version --json");
  command->callback([json, &out] {
    const nlohmann::ordered_json version = version_json();
    out.print("{}\n", *json ? json_text(version) : version_text("shardwise", version));
  });
}

}  // namespace shardwise::tools
