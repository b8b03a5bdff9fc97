#include <cstddef>
#include <map>
#include <string_view>

#include "json_names.h"
#include "manual.h"
#include "text_layout.h"

namespace shardwise::tools {
namespace {

constexpr std::size_t kWidth = 110;

/// Converts text to Markdown. Text in backticks stays code.
std::string as_markdown(std::string_view text) {
  constexpr std::string_view kSpecial = "\\*_<>[]|";
  std::string escaped;
  bool in_code = false;
  for (const char c : text) {
    if (c == '`') in_code = !in_code;
    if (!in_code && kSpecial.find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string paragraph(std::string_view text) { return folded(as_markdown(text), kWidth) + "\n"; }

/// Returns the fragment of a link to a heading.
std::string fragment_of(std::string_view heading) {
  std::string fragment;
  for (const char c : heading) {
    if (c >= 'A' && c <= 'Z') fragment += static_cast<char>(c - 'A' + 'a');
    if (c == ' ') fragment += '-';
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_') fragment += c;
  }
  return fragment;
}

std::string link_to(std::string_view heading) {
  return "[" + std::string(heading) + "](#" + fragment_of(heading) + ")";
}

std::string block_of(const std::vector<std::string>& commands) {
  std::string text = "```bash\n";
  for (const std::string& command : commands) text += folded_command(command, kWidth) + "\n";
  return text + "```\n";
}

std::string list_of(const std::vector<HelpOption>& options) {
  std::string text;
  for (const HelpOption& option : options) {
    const std::string line = "`" + option.label() + "`: " + as_markdown(option.text);
    text += "- " + folded(line, kWidth, 2) + "\n";
  }
  return text;
}

class CliPage {
 public:
  explicit CliPage(const std::vector<HelpTree>& programs) {
    for (const HelpTree& program : programs) count_groups(program);
    text_ =
        "# The command line\n\n"
        "This page is the `--help` of each command, as are the manual pages (`man "
        "shardwise-index`).\n";
    for (const HelpTree& program : programs) add_overview(program);
    add_conventions();
    for (const HelpTree& program : programs) add_pages(program);
    add_json_names();
    text_ += "\n## Options of several commands\n";
    for (const HelpGroup& group : shared_) {
      text_ += "\n### " + group.title + "\n\n" + list_of(group.options);
    }
  }

  std::string take() { return std::move(text_); }

 private:
  /// Returns a group's text: groups with equal texts are the same group.
  static std::string key_of(const HelpGroup& group) {
    return group.title + "\n" + list_of(group.options);
  }

  bool is_shared(const HelpGroup& group) const {
    return group.title != kUsualOptions && times_.at(key_of(group)) > 1;
  }

  void count_groups(const HelpTree& tree) {
    for (const HelpGroup& group : tree.page.options) {
      const int times = ++times_[key_of(group)];
      if (times == 2 && group.title != kUsualOptions) shared_.push_back(group);
    }
    for (const HelpTree& command : tree.commands) count_groups(command);
  }

  void add_overview(const HelpTree& program) {
    if (program.commands.empty()) {
      text_ += "\n" + link_to(program.page.name) +
               " is a separate program: " + as_markdown(lower_first(program.page.description)) +
               ".\n";
      return;
    }
    text_ += "\n| command | does |\n|---|---|\n";
    for (const HelpTree& command : program.commands) {
      text_ += "| " + link_to(command.page.name) + " | " +
               as_markdown(lower_first(command.page.description)) + " |\n";
    }
  }

  static std::string lower_first(std::string text) {
    if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') {
      text[0] = static_cast<char>(text[0] - 'A' + 'a');
    }
    return text;
  }

  void add_conventions() {
    text_ +=
        "\n## What all commands have in common\n\n"
        "Results go to standard output; progress, notes and errors go to standard error. On a "
        "terminal lists are aligned\ntables with a header; in a pipe their columns are separated "
        "by tabs, and `--header` adds the header. `--json`\nprints JSON, with sizes in bytes and "
        "times in seconds. An error is one line that says what failed, where, and\nwhat to do; "
        "[errors.md](errors.md) explains them.\n\n"
        "`-h` shows the common options of a command, `--help` all. Text has colours on a terminal; "
        "`--color`, and the variables\nNO_COLOR and CLICOLOR_FORCE, decide otherwise.\n\n"
        "| exit code | meaning |\n|---|---|\n";
    for (const auto& [code, meaning] : exit_codes()) {
      text_ += "| " + std::to_string(code) + " | " + as_markdown(meaning) + " |\n";
    }
  }

  void add_json_names() {
    text_ +=
        "\n## Names in JSON\n\n"
        "A name has one type and one meaning in the `--json` of all commands. Bytes that are not "
        "UTF-8 have the name\nwith `_hex` appended, and come in hexadecimal.\n\n"
        "| name | type | meaning |\n|---|---|---|\n";
    for (const JsonName& name : json_names()) {
      text_ += "| `" + name.name + "` | " + std::string(name_of(name.type)) +
               (name.may_be_null ? " or null" : "") + " | " + as_markdown(name.text) + " |\n";
    }
    text_ +=
        "\nOld names, which the next release will not print:\n\n| command | name | old name "
        "|\n|---|---|---|\n";
    for (const OldJsonName& old : old_json_names()) {
      text_ += "| " + std::string(old.command) + " | `" + std::string(old.now) + "` | `" +
               std::string(old.before) + "` |\n";
    }
  }

  void add_pages(const HelpTree& tree) {
    add_page(tree.page);
    for (const HelpTree& command : tree.commands) add_pages(command);
  }

  void add_page(const HelpPage& page) {
    text_ += "\n## " + page.name + "\n\n" + paragraph(page.description + ".");
    text_ += "\n" + block_of({page.usage});
    if (!page.arguments.empty()) text_ += "\n" + list_of(page.arguments);
    std::string shared;
    for (const HelpGroup& group : page.options) {
      if (is_shared(group)) {
        shared += (shared.empty() ? "" : ", ") + link_to(group.title);
      } else if (!group.options.empty()) {
        text_ += "\n**" + as_markdown(group.title) + "**\n\n" + list_of(group.options);
      }
    }
    if (!shared.empty())
      text_ += "\n" + folded("Options of several commands: " + shared + ".", kWidth) + "\n";
    for (const std::string& note : page.notes) text_ += "\n" + paragraph(note);
    if (!page.examples.empty()) text_ += "\n" + block_of(page.examples);
  }

  std::map<std::string, int> times_;
  std::vector<HelpGroup> shared_;
  std::string text_;
};

}  // namespace

std::string markdown(const std::vector<HelpTree>& programs) { return CliPage(programs).take(); }

const std::vector<std::pair<int, std::string>>& exit_codes() {
  static const std::vector<std::pair<int, std::string>> codes = {
      {0, "done"},
      {1, "failed; standard error has the reason"},
      {2, "invalid command line"},
      {130,
       "interrupted by Ctrl-C; other signals give 128 plus the signal's number, e.g. 143 for "
       "SIGTERM; complete files remain, and no partial ones"}};
  return codes;
}

}  // namespace shardwise::tools
