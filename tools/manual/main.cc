// Writes the programs' documents from their options:
//
//     shardwise_manual DIR    cli.md, man1/*.1, bash/*, zsh/_*, fish/*.fish
//
// This program is not installed.

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/errno_error.h"
#include "manual.h"
#include "program.h"
#include "shardwise/base/error.h"
#include "train_options.h"

namespace {

using namespace shardwise;         // NOLINT(google-build-using-namespace): a program
using namespace shardwise::tools;  // NOLINT(google-build-using-namespace)

void write_file(const std::filesystem::path& path, std::string_view text) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  std::FILE* const file = std::fopen(path.c_str(), "w");
  const bool is_written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file == nullptr || std::fclose(file) != 0 || !is_written) {
    throw_errno(errno, "cannot write the page", path.string());
  }
}

void write_pages(const std::vector<HelpTree>& programs, const std::filesystem::path& folder) {
  write_file(folder / "cli.md", markdown(programs));
  for (const auto& [name, text] : man_pages(programs, SHARDWISE_VERSION)) {
    write_file(folder / "man1" / name, text);
  }
  for (const HelpTree& program : programs) {
    write_file(folder / "bash" / program.page.name, bash_completion(program));
    write_file(folder / "zsh" / ("_" + program.page.name), zsh_completion(program));
    write_file(folder / "fish" / (program.page.name + ".fish"), fish_completion(program));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) {
      std::fputs("usage: shardwise_manual DIR\n", stderr);
      return 2;
    }
    Output out;
    train::Options options;
    write_pages({help_tree(*make_program(out)),
                 help_tree(*train::make_program(options, [] { return std::string(); }))},
                argv[1]);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "shardwise_manual: error: %s\n", e.what());
    return 1;
  }
}
