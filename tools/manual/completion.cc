#include <algorithm>
#include <string_view>

#include "manual.h"
#include "value_kind.h"

namespace shardwise::tools {
namespace {

/// Quotes any text as one shell word.
std::string quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

/// Returns the name of a command's completion function, e.g. "_shardwise_cache_ls".
std::string function_of(const HelpPage& page) {
  std::string name = "_" + page.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::vector<HelpOption> options_of(const HelpPage& page) {
  std::vector<HelpOption> options;
  for (const HelpGroup& group : page.options) {
    options.insert(options.end(), group.options.begin(), group.options.end());
  }
  return options;
}

/// Returns the last word of a command's name.
std::string word_of(const HelpTree& command) {
  const std::string& name = command.page.name;
  return name.substr(name.rfind(' ') + 1);
}

std::vector<std::string> names_of(const std::vector<HelpTree>& commands) {
  std::vector<std::string> names;
  for (const HelpTree& command : commands) names.push_back(word_of(command));
  return names;
}

/// Appends the full names of all commands of the program.
void add_command_names(const HelpTree& tree, std::vector<std::string>& names) {
  for (const HelpTree& command : tree.commands) {
    names.push_back(quoted(command.page.name));
    add_command_names(command, names);
  }
}

// ------------------------------------------------------------------------------------------- bash

/// Returns a bash assignment that completes a value of this kind.
std::string bash_assignment(const HelpOption& option, ValueKind kind) {
  switch (kind) {
    case ValueKind::kChoice:
      return "words=" + quoted(joined(option.choices, " "));
    case ValueKind::kFile:
      return "paths=default";
    case ValueKind::kDirectory:
      return "paths=dirnames";
    case ValueKind::kNone:
    case ValueKind::kOther:
      break;
  }
  return "return";
}

/// Appends a command's branch to the case statement.
void add_bash_branch(const HelpTree& tree, const std::vector<std::string>& helped,
                     std::string& script) {
  std::vector<std::string> names;
  std::string values;
  for (const HelpOption& option : options_of(tree.page)) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    const ValueKind kind = value_kind(option);
    if (kind == ValueKind::kNone) continue;
    values +=
        "        " + joined(option.names, " | ") + ") " + bash_assignment(option, kind) + " ;;\n";
  }
  script += "    " + quoted(tree.page.name) + ")\n";
  script += "      options=" + quoted(joined(names, " ")) + "\n";
  if (!tree.commands.empty()) {
    script += "      words=" + quoted(joined(names_of(tree.commands), " ")) + "\n";
  } else if (tree.page.name.ends_with(" help")) {
    script += "      words=" + quoted(joined(helped, " ")) + "\n";
  } else if (!tree.page.arguments.empty()) {
    // The number of an argument depends on the words before it. Complete paths, because most
    // arguments are paths.
    const auto& arguments = tree.page.arguments;
    const bool has_files = std::any_of(arguments.begin(), arguments.end(), [](const auto& a) {
      return argument_kind(a) == ValueKind::kFile;
    });
    script += has_files ? "      paths=default\n" : "      paths=dirnames\n";
  }
  if (!values.empty()) script += "      case $before in\n" + values + "      esac\n";
  script += "      ;;\n";
  for (const HelpTree& command : tree.commands) add_bash_branch(command, helped, script);
}

// -------------------------------------------------------------------------------------------- zsh

/// Escapes text for an option's brackets, or after a colon.
std::string zsh_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

/// Returns a value's name and how to complete it, e.g. ":INDEX:_files".
std::string zsh_value(const std::string& name, const HelpOption& option, ValueKind kind) {
  const std::string start = ":" + zsh_text(name) + ":";
  switch (kind) {
    case ValueKind::kChoice:
      return start + "(" + joined(option.choices, " ") + ")";
    case ValueKind::kFile:
      return start + "_files";
    case ValueKind::kDirectory:
      return start + "_files -/";
    case ValueKind::kNone:
      return {};
    case ValueKind::kOther:
      break;
  }
  return start + " ";
}

/// Returns the arguments of zsh's _arguments for a command's options and arguments.
std::vector<std::string> zsh_specs(const HelpTree& tree, const std::vector<std::string>& helped) {
  std::vector<std::string> specs;
  for (const HelpOption& option : options_of(tree.page)) {
    const ValueKind kind = value_kind(option);
    const std::string rest =
        "[" + zsh_text(option.text) + "]" + zsh_value(option.type, option, kind);
    const std::string others = "(" + joined(option.names, " ") + ")";
    for (const std::string& name : option.names) {
      const bool is_long = name.starts_with("--");
      const std::string takes = kind == ValueKind::kNone ? "" : is_long ? "=" : "+";
      specs.push_back(quoted(others + name + takes + rest));
    }
  }
  if (!tree.commands.empty()) {
    specs.push_back("'1:command:->command'");
    specs.push_back("'*::argument:->argument'");
  } else if (tree.page.name.ends_with(" help")) {
    specs.push_back("'*:command:(" + joined(helped, " ") + ")'");
  } else {
    for (const HelpOption& argument : tree.page.arguments) {
      specs.push_back(quoted((argument.is_many ? "*" : "") +
                             zsh_value(argument.names.front(), argument, argument_kind(argument))));
    }
  }
  return specs;
}

/// Appends a command's function, after the functions that it calls.
void add_zsh_function(const HelpTree& tree, const std::vector<std::string>& helped,
                      std::string& script) {
  for (const HelpTree& command : tree.commands) add_zsh_function(command, helped, script);
  const bool has_commands = !tree.commands.empty();
  script += "\n" + function_of(tree.page) + "() {\n";
  if (has_commands) {
    script += "  local curcontext=$curcontext state line ret=1\n  typeset -A opt_args\n";
  }
  script += has_commands ? "  _arguments -C -s -S" : "  _arguments -s -S";
  for (const std::string& spec : zsh_specs(tree, helped)) script += " \\\n    " + spec;
  if (!has_commands) {
    script += "\n}\n";
    return;
  }
  script += " && ret=0\n  case $state in\n    command)\n      local -a commands=(\n";
  for (const HelpTree& command : tree.commands) {
    script +=
        "        " + quoted(word_of(command) + ":" + zsh_text(command.page.description)) + "\n";
  }
  script += "      )\n      _describe -t commands command commands && ret=0\n      ;;\n";
  script += "    argument)\n      case $line[1] in\n";
  for (const HelpTree& command : tree.commands) {
    script += "        " + word_of(command) + ") " + function_of(command.page) + " && ret=0 ;;\n";
  }
  script += "      esac\n      ;;\n  esac\n  return ret\n}\n";
}

// ------------------------------------------------------------------------------------------- fish

/// Quotes any text as one word of fish.
std::string fish_quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') word += '\\';
    word += c;
  }
  return word + "'";
}

/// Returns the arguments of fish's `complete` for a value of this kind.
std::string fish_value(const HelpOption& option, ValueKind kind) {
  switch (kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kChoice:
      return " -x -a " + fish_quoted(joined(option.choices, " "));
    case ValueKind::kFile:
      return " -r -F";
    case ValueKind::kDirectory:
      return " -x -a '(__fish_complete_directories)'";
    case ValueKind::kOther:
      break;
  }
  return " -x";
}

/// Appends the completions of a command and of its sub-commands.
/// @param start  the beginning of each line, up to a condition; the command's name and a quote
/// complete the condition.
void add_fish_lines(const HelpTree& tree, const std::string& start,
                    const std::vector<std::string>& helped, std::string& script) {
  const std::string here = start + " " + tree.page.name + "'";
  for (const HelpOption& option : options_of(tree.page)) {
    script += here;
    for (const std::string& name : option.names) {
      const bool is_long = name.starts_with("--");
      script += (is_long ? " -l " : " -s ") + name.substr(is_long ? 2 : 1);
    }
    script += fish_value(option, value_kind(option)) + " -d " + fish_quoted(option.brief) + "\n";
  }
  for (const HelpTree& command : tree.commands) {
    script +=
        here + " -a " + word_of(command) + " -d " + fish_quoted(command.page.description) + "\n";
  }
  if (tree.page.name.ends_with(" help")) {
    script += here + " -a " + fish_quoted(joined(helped, " ")) + "\n";
  } else if (!tree.page.arguments.empty()) {
    const bool has_files =
        std::ranges::count(tree.page.arguments, ValueKind::kFile, argument_kind) > 0;
    script += here + (has_files ? " -F\n" : " -a '(__fish_complete_directories)'\n");
  }
  for (const HelpTree& command : tree.commands) add_fish_lines(command, start, helped, script);
}

}  // namespace

std::string bash_completion(const HelpTree& program) {
  const std::string function = function_of(program.page);
  std::vector<std::string> commands;
  add_command_names(program, commands);
  std::string script = "# bash completion of " + program.page.name +
                       ", written by shardwise_manual from the program's options.\n\n" + function +
                       "() {\n";
  script +=
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} i\n"
      "  local options= words= paths= command=" +
      program.page.name +
      "\n"
      "  # `--option=value` comes as three words.\n"
      "  if [[ $word == = ]]; then\n"
      "    word=\n"
      "  elif [[ $before == = ]]; then\n"
      "    before=${COMP_WORDS[COMP_CWORD - 2]}\n"
      "  fi\n";
  if (!commands.empty()) {
    script +=
        "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
        "    case \"$command ${COMP_WORDS[i]}\" in\n      " +
        joined(commands, " | \\\n        ") +
        ")\n        command+=\" ${COMP_WORDS[i]}\"\n        ;;\n    esac\n  done\n";
  }
  script += "  case $command in\n";
  add_bash_branch(program, names_of(program.commands), script);
  script +=
      "  esac\n"
      "  COMPREPLY=()\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
      "  elif [[ -n $words ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  elif [[ -n $paths ]]; then\n"
      "    compopt -o \"$paths\"\n"
      "  fi\n"
      "}\n\n"
      "complete -F " +
      function + " " + program.page.name + "\n";
  return script;
}

std::string fish_completion(const HelpTree& program) {
  std::string condition = "_" + function_of(program.page) + "_at";
  std::replace(condition.begin(), condition.end(), '-', '_');
  std::vector<std::string> commands;
  add_command_names(program, commands);
  std::string script = "# fish completion of " + program.page.name +
                       ", written by shardwise_manual from the program's options.\n\n"
                       "# True in the command line of the command $argv.\n"
                       "function " +
                       condition + "\n  set -l words (commandline -opc)\n  set -l at " +
                       program.page.name + "\n";
  if (!commands.empty()) {
    script +=
        "  set -e words[1]\n"
        "  for word in $words\n"
        "    if contains -- \"$at $word\" \\\n        " +
        joined(commands, " \\\n        ") + "\n      set at \"$at $word\"\n    end\n  end\n";
  }
  script += "  test \"$at\" = \"$argv\"\nend\n\ncomplete -c " + program.page.name + " -f\n";
  const std::string start = "complete -c " + program.page.name + " -n '" + condition;
  add_fish_lines(program, start, names_of(program.commands), script);
  return script;
}

std::string zsh_completion(const HelpTree& program) {
  std::string script = "#compdef " + program.page.name +
                       "\n# Completion for zsh, written by shardwise_manual from the program's "
                       "options.\n";
  add_zsh_function(program, names_of(program.commands), script);
  return script + "\n" + function_of(program.page) + " \"$@\"\n";
}

}  // namespace shardwise::tools
