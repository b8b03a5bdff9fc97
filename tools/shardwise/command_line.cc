#include "command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/error_types.h"
#include "base/normal_path.h"
#include "base/text.h"
#include "console.h"
#include "help.h"
#include "help_page.h"

namespace shardwise::tools {
namespace {

constexpr const char* kColourOption = "--color";

/// A word that does not name a command of `app`.
class WrongCommand : public CLI::ParseError {
 public:
  WrongCommand(const CLI::App& app, std::string text)
      : CLI::ParseError("WrongCommand", std::move(text), CLI::ExitCodes::ExtrasError), app_(&app) {}
  const CLI::App& app() const noexcept { return *app_; }

 private:
  const CLI::App* app_;
};

/// Returns the Damerau-Levenshtein distance, in which swapped neighbours are one mistake.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

bool looks_like_option(std::string_view argument) {
  return argument.size() > 1 && argument.front() == '-' && !parse_int64(argument);
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  for (const CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!part->get_name().empty()) continue;
    for (std::string& name : option_names(*part)) names.push_back(std::move(name));
  }
  return names;
}

/// Returns the program and the sub-commands selected by the arguments, outermost first.
std::vector<const CLI::App*> reached(const CLI::App& program) {
  std::vector<const CLI::App*> apps = {&program};
  for (;;) {
    const auto parsed = apps.back()->get_subcommands();
    const auto next = std::find_if(parsed.begin(), parsed.end(),
                                   [](const CLI::App* sub) { return !sub->get_name().empty(); });
    if (next == parsed.end()) return apps;
    apps.push_back(*next);
  }
}

void choose_colours(std::string_view when) {
  set_colours(when == "always"  ? Colours::kAlways
              : when == "never" ? Colours::kNever
                                : Colours::kAuto);
}

/// Returns what is wrong with the name of a command. `report` is only in the Python package.
std::string no_command(const CLI::App& above, const std::string& word) {
  const bool is_python = above.get_parent() == nullptr && word == "report";
  return fmt::format("no command {}{}", in_quotes(word),
                     is_python ? "; in Python, it is `python -m shardwise report`;"
                               : suggestion(word, command_names(above)));
}

/// Checks the words that name a command. CLI11 would not say which word is wrong, but only that a
/// command is required.
void require_commands(const CLI::App& program, int argc, const char* const* argv) {
  const CLI::App* at = &program;
  for (int i = 1;; ++i) {
    const std::vector<std::string> names = command_names(*at);
    if (names.empty() || at->get_require_subcommand_min() == 0 || i >= argc) return;
    const std::string word = argv[i];
    if (word.starts_with(kColourOption)) {
      const std::size_t value = word.find('=');
      if (value == std::string::npos && ++i >= argc) return;
      choose_colours(value == std::string::npos ? argv[i] : word.substr(value + 1));
      continue;
    }
    if (looks_like_option(word)) return;  // CLI11 reports unknown options
    const auto commands =
        at->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    if (commands.empty()) {
      throw WrongCommand(*at, no_command(*at, word));
    }
    at = commands.front();
  }
}

/// Returns the text about an option that is unknown here. If another command has the option, names
/// that command.
std::string unknown_option(const CLI::App& app, const std::string& argument,
                           const CLI::App& innermost) {
  const std::string name = argument.substr(0, argument.find('='));
  const std::vector<std::string> inner = option_names(innermost);
  if (&app != &innermost && std::find(inner.begin(), inner.end(), name) != inner.end()) {
    return fmt::format("{} must come after {};", name, full_name(innermost));
  }
  return fmt::format("no option {}{}", escaped(name), suggestion(name, option_names(app)));
}

/// Returns the first unexpected argument, or nullopt. Unexpected options take precedence, because a
/// word after a mistyped option may be its value.
std::optional<std::string> unexpected(const std::vector<const CLI::App*>& apps, bool only_options) {
  for (const CLI::App* app : apps) {
    for (const std::string& argument : app->remaining(false)) {
      if (argument == "--") continue;
      if (looks_like_option(argument)) return unknown_option(*app, argument, *apps.back());
    }
  }
  for (const CLI::App* app : apps) {
    for (const std::string& argument : app->remaining(false)) {
      if (only_options || argument == "--") continue;
      std::error_code failed;
      const bool is_file = std::filesystem::exists(argument, failed);
      return fmt::format(
          "unexpected argument {};{}", in_quotes(argument),
          is_file ? " if the shell expanded a pattern, quote the pattern: 'd/*.tar';" : "");
    }
  }
  return std::nullopt;
}

/// Rewords texts of CLI11's validators: that of IsMember, "--on-bad: x not in {a,b}", and that of
/// Range, "--batch: Value 0 not in range 1 to 9" (in newer versions "[1 - 9]").
std::string plain_validation(const std::string& text) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) return text;
  const std::string name = text.substr(0, colon + 2);
  std::string rest = text.substr(colon + 2);
  const std::size_t set = rest.rfind(" not in {");
  if (set != std::string::npos && rest.ends_with('}')) {
    std::string choices = rest.substr(set + 9, rest.size() - set - 10);
    for (std::size_t at = 0; (at = choices.find(',', at)) != std::string::npos; at += 2) {
      choices.replace(at, 1, ", ");
    }
    const std::size_t last = choices.rfind(", ");
    if (last != std::string::npos) choices.replace(last, 2, " or ");
    return name + in_quotes(rest.substr(0, set)) + " is not a choice; choose " + choices;
  }
  const std::size_t range = rest.rfind(" not in range ");
  if (rest.starts_with("Value ") && range != std::string::npos) {
    std::string bounds = rest.substr(range + 14);
    if (const std::size_t dash = bounds.find(" - ");
        dash != std::string::npos && bounds.starts_with('[') && bounds.ends_with(']')) {
      bounds = bounds.substr(1, dash - 1) + " to " + bounds.substr(dash + 3);
      bounds.pop_back();
    }
    return name + in_quotes(rest.substr(6, range - 6)) + " is not a number from " + bounds;
  }
  return text;
}

/// Refuses empty values of options, which come from unset shell variables: --token "$TOKEN" would
/// otherwise act as if it were not given. Empty values are valid for --prefix and --key.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_items_expected_max() == 0 || option->get_positional()) continue;
    if (option->check_lname("prefix") || option->check_lname("key")) continue;
    option->check([](const std::string& text) {
      return text.empty() ? std::string("its value is empty") : std::string();
    });
  }
  for (CLI::App* const part : app.get_subcommands([](CLI::App*) { return true; })) {
    refuse_empty_values(*part);
  }
}

/// Replaces "~" by the home folder in options' values that are files, e.g. --cache=~/c, which
/// shells do not expand. The library expands it in sources and indexes.
void put_at_home(CLI::App& app) {
  constexpr std::string_view kFiles[] = {"DIR", "FILE", "INDEX", "OUT", "PREFIX", "FILE|TEXT"};
  for (CLI::Option* const option : app.get_options()) {
    const bool is_file = std::ranges::find(kFiles, option->get_type_name()) != std::end(kFiles) ||
                         (option->get_positional() &&
                          (option->get_name() == "DIR" || option->get_name() == "TOKEN"));
    if (is_file) option->transform([](const std::string& text) { return at_home(text); });
  }
  for (CLI::App* const part : app.get_subcommands([](CLI::App*) { return true; })) {
    put_at_home(*part);
  }
}

/// Rewords texts of CLI11, e.g. "A excludes B".
std::string plain_text(const CLI::ParseError& error) {
  std::string text = error.what();
  const auto split = [&](std::string_view between, std::string_view words) {
    const std::size_t at = text.find(between);
    if (at == std::string::npos) return;
    text = text.substr(0, at) + std::string(words) + text.substr(at + between.size());
  };
  const std::string& kind = error.get_name();
  if (kind == "ExcludesError") split(" excludes ", " cannot be given together with ");
  if (kind == "ValidationError") text = plain_validation(text);
  if (kind == "ConversionError" && text.starts_with("Could not convert: ")) {
    text.erase(0, 19);
    split(" = ", ": this cannot be its value: ");
  }
  if (kind == "RequiredError" && text.starts_with("Exactly 1 option from [")) {
    // CLI11: "Exactly 1 option from [--a,--b] is required and 2 were given"
    const std::size_t end = text.find(']');
    std::string names = text.substr(23, end - 23);
    for (std::size_t at = 0; (at = names.find(',', at)) != std::string::npos;) {
      names.replace(at, 1, " or ");
    }
    text = text.ends_with("given") ? "give " + names + ", not both" : names + " is required";
  }
  if (kind == "ArgumentMismatch") {
    // CLI11: "--limit: 1 required N missing" or "--limit: At Most 1 required but received 2"
    const std::size_t colon = text.find(": ");
    if (colon != std::string::npos && text.ends_with(" missing")) {
      text = text.substr(0, colon) + " needs a value";
    } else if (colon != std::string::npos && text.find("At Most 1 ", colon) != std::string::npos) {
      text = text.substr(0, colon) + " is given more than once";
    }
  }
  return text;
}

/// True if the line ends where the name of a command is missing.
bool lacks_command(const CLI::App& program, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> apps = reached(program);
  return dynamic_cast<const CLI::RequiredError*>(&error) != nullptr &&
         apps.back()->get_require_subcommand_min() > 0 && !command_names(*apps.back()).empty() &&
         !unexpected(apps, /*only_options=*/false);
}

std::string text_of_wrong_usage(const CLI::App& program, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> apps = reached(program);
  const CLI::App* app = apps.back();
  std::string text;
  if (const auto* const wrong = dynamic_cast<const WrongCommand*>(&error)) {
    app = &wrong->app();
    text = wrong->what();
  } else {
    // Report a mistyped option first: it may have caused the other errors.
    const bool only_options = dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr;
    text = unexpected(apps, only_options).value_or(plain_text(error));
  }
  if (!text.ends_with(';') && !text.ends_with('?')) text += ';';
  return fmt::format("{} see {} --help", text, full_name(*app));
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& names) {
  const std::size_t dashes = std::min(name.find_first_not_of('-'), name.size());
  const std::size_t letters = name.size() - dashes;
  if (letters < 2) return std::nullopt;
  std::size_t best = letters / 3 + (letters < 3 ? 1 : 0);
  std::optional<std::string> nearest;
  std::vector<std::string> begun;
  for (const std::string& candidate : names) {
    if (candidate.size() <= dashes + 1) continue;  // a single letter is similar to any name
    if (letters >= 3 && candidate.starts_with(name)) begun.push_back(candidate);
    const std::size_t d = distance(name, candidate);
    if (d < best || (d == best && !nearest)) {
      best = d;
      nearest = candidate;
    }
  }
  if (!nearest && begun.size() == 1) return begun.front();
  return nearest;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& names) {
  const std::optional<std::string> nearest = nearest_name(name, names);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : ";";
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  return names;
}

CLI::App& find_command(CLI::App& program, const std::vector<std::string>& words) {
  CLI::App* at = &program;
  for (const std::string& word : words) {
    const auto commands = at->get_subcommands(
        [&](const CLI::App* sub) { return !word.empty() && sub->get_name() == word; });
    if (commands.empty()) {
      throw WrongCommand(*at, no_command(*at, word));
    }
    at = commands.front();
  }
  return *at;
}

void add_usual_options(CLI::App& app) {
  app.add_option_function<std::string>(
         kColourOption, [](const std::string& when) { choose_colours(when); },
         "when to colour text; auto: on a terminal, unless NO_COLOR is set")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->trigger_on_parse()  // so that it applies to errors in later arguments
      ->default_str("auto");
  app.set_help_flag("-h", "show the common options, and exit");
  app.set_help_all_flag("--help", "show all options, and exit");
  for (CLI::App* const command : app.get_subcommands([](CLI::App*) { return true; })) {
    if (!command->get_name().empty()) add_usual_options(*command);
  }
}

std::optional<int> parse_command_line(CLI::App& program, int argc, const char* const* argv,
                                      Output& out) {
  static const std::string name = program.get_name();  // static: messages use it until the process
                                                       // ends
  set_program_name(name.c_str());
  try {
    require_commands(program, argc, argv);
    put_at_home(program);
    refuse_empty_values(program);
    program.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    out.write(help_of(*reached(program).back(), HelpLength::kShort, out.fd()));
  } catch (const CLI::CallForAllHelp&) {
    out.write(help_of(*reached(program).back(), HelpLength::kWhole, out.fd()));
  } catch (const CLI::CallForVersion& version) {
    out.print("{}\n", version.what());
  } catch (const CLI::ParseError& error) {
    if (lacks_command(program, error)) {
      std::string help = help_of(*reached(program).back(), HelpLength::kShort, STDERR_FILENO);
      help.pop_back();  // the line end, which the next call adds
      print_message(help);
      return kExitWrongUsage;
    }
    if (error.get_exit_code() != 0) {
      say("error", text_of_wrong_usage(program, error));
      return kExitWrongUsage;
    }
  } catch (const InvalidOption& error) {  // an invalid value that only the library detects
    const CLI::ValidationError late(error.what(), CLI::ExitCodes::ValidationError);
    say("error", text_of_wrong_usage(program, late));
    return kExitWrongUsage;
  }
  out.flush();
  return kExitDone;
}

}  // namespace shardwise::tools
