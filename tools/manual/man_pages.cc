#include <algorithm>
#include <cstddef>
#include <string_view>

#include "manual.h"
#include "text_layout.h"

namespace shardwise::tools {
namespace {

constexpr std::size_t kWidth = 76;

/// Converts text to roff: keeps hyphens, and makes text in backticks bold.
std::string escaped_roff(std::string_view text) {
  std::string roff;
  bool in_code = false;
  for (const char c : text) {
    switch (c) {
      case '\\':
        roff += "\\e";
        break;
      case '-':
        roff += "\\-";
        break;
      case '\'':
        roff += "\\(aq";
        break;
      case '`':
        in_code = !in_code;
        roff += in_code ? "\\fB" : "\\fR";
        break;
      default:
        roff += c;
    }
  }
  return roff;
}

/// Converts lines of text. Escapes a leading dot, which roff would interpret as a request.
std::string lines_of(std::string_view text) {
  std::string roff;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (text.front() == '.') roff += "\\&";
    roff += escaped_roff(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return roff;
}

std::string paragraph(std::string_view text) { return lines_of(folded(text, kWidth)); }

std::string bold(std::string_view text) { return "\\fB" + escaped_roff(text) + "\\fR"; }

std::string italic(std::string_view text) { return "\\fI" + escaped_roff(text) + "\\fR"; }

std::string label_of(const HelpOption& option, bool is_argument) {
  if (is_argument) return italic(option.label());
  std::string label;
  for (const std::string& name : option.names) label += (label.empty() ? "" : ", ") + bold(name);
  return option.type.empty() ? label : label + " " + italic(option.type);
}

std::string list_of(const std::vector<HelpOption>& options, bool are_arguments) {
  std::string roff;
  for (const HelpOption& option : options) {
    roff += ".TP\n" + label_of(option, are_arguments) + "\n" + paragraph(option.text);
  }
  return roff;
}

/// Shows commands literally, one per line.
std::string commands(const std::vector<std::string>& lines) {
  std::string roff = ".nf\n";
  for (const std::string& line : lines) roff += lines_of(folded_command(line, kWidth));
  return roff + ".fi\n";
}

/// Returns a page's name, e.g. "shardwise-cache-ls".
std::string page_name(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

std::string lower_first(std::string text) {
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') {
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  }
  return text;
}

std::string reference(const std::string& name) { return bold(page_name(name)) + "(1)"; }

/// Lists a program's commands and their pages.
std::string list_of_commands(const HelpPage& page) {
  std::string roff = ".SH COMMANDS\n";
  for (const HelpCommands& group : page.commands) {
    roff += ".SS " + escaped_roff(group.title) + "\n";
    for (const auto& [name, text] : group.commands) {
      roff += ".TP\n" + reference(page.name + " " + name) + "\n" + paragraph(text + ".");
    }
  }
  return roff;
}

/// Returns the section about a command without a separate page.
std::string section_of(const HelpPage& page) {
  std::string roff = ".SS " + escaped_roff(page.name) + "\n" + paragraph(page.description + ".");
  roff += ".PP\n" + commands({page.usage}) + list_of(page.arguments, true);
  for (const HelpGroup& group : page.options) roff += list_of(group.options, false);
  return roff;
}

std::string options_of(const HelpPage& page) {
  std::string roff;
  if (!page.arguments.empty()) roff += ".SH ARGUMENTS\n" + list_of(page.arguments, true);
  roff += ".SH OPTIONS\n";
  for (const HelpGroup& group : page.options) {
    if (group.title != kUsualOptions) roff += ".SS " + escaped_roff(group.title) + "\n";
    roff += list_of(group.options, false);
  }
  return roff;
}

std::string man_page(const HelpTree& tree, const std::string& version,
                     const std::vector<std::string>& see_also) {
  const HelpPage& page = tree.page;
  const std::string name = page_name(page.name);
  std::string roff = ".\\\" Written by shardwise_manual from the options of the program.\n";
  roff += ".TH " + escaped_roff(upper(name)) + " 1 \"\" \"Shardwise " + version +
          "\" \"Shardwise\"\n.SH NAME\n";
  roff += escaped_roff(name) + " \\- " + escaped_roff(lower_first(page.description)) + "\n";
  roff += ".SH SYNOPSIS\n" + commands({page.usage});
  roff += ".SH DESCRIPTION\n" + paragraph(page.description + ".");
  for (const std::string& note : page.notes) roff += ".PP\n" + paragraph(note);
  const bool has_sections = page.name.find(' ') != std::string::npos;
  if (has_sections && !tree.commands.empty()) {
    roff += ".SH COMMANDS\n";
    for (const HelpTree& command : tree.commands) roff += section_of(command.page);
  } else if (!tree.commands.empty()) {
    roff += list_of_commands(page);
  }
  roff += options_of(page) + ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : exit_codes()) {
    roff += ".TP\n" + bold(std::to_string(code)) + "\n" + paragraph(meaning + ".");
  }
  if (!page.examples.empty()) roff += ".SH EXAMPLES\n" + commands(page.examples);
  if (!see_also.empty()) {
    roff += ".SH SEE ALSO\n";
    for (std::size_t i = 0; i < see_also.size(); ++i) {
      roff += reference(see_also[i]) + (i + 1 < see_also.size() ? ",\n" : "\n");
    }
  }
  return roff;
}

}  // namespace

std::map<std::string, std::string> man_pages(const std::vector<HelpTree>& programs,
                                             const std::string& version) {
  std::map<std::string, std::string> pages;
  for (const HelpTree& program : programs) {
    std::vector<std::string> others;
    for (const HelpTree& other : programs) {
      if (other.page.name != program.page.name) others.push_back(other.page.name);
    }
    pages[page_name(program.page.name) + ".1"] = man_page(program, version, others);
    for (const HelpTree& command : program.commands) {
      pages[page_name(command.page.name) + ".1"] = man_page(command, version, {program.page.name});
    }
  }
  return pages;
}

}  // namespace shardwise::tools
