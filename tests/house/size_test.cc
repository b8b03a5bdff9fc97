// Tests that files and functions are small enough to be read in one go.
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include "support/support.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kFileLines = 600;
constexpr std::size_t kFunctionLines = 100;

/// Files that may be longer, and the reason.
const std::map<std::string, std::string> kLongFiles = {};

/// Functions that may be longer, and the reason. A function is named by its file and the start of
/// its first line.
const std::map<std::string, std::string> kLongFunctions = {
    {"python/src/caches.cc: void add_caches", "a table: a line or two for each bound function"},
    {"python/src/dataset.cc: void add_datasets", "a table"},
    {"python/src/sample.cc: void add_samples", "a table"},
    {"python/src/samplers.cc: void add_samplers", "a table"},
    {"tools/shardwise/index_command.cc: void add_index_command", "a table of options"},
};

struct Function {
  std::string first_line;
  std::size_t num_lines;
};

std::size_t indentation(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// Returns the functions of a formatted source whose bodies have more than `most` lines.
std::vector<Function> long_functions(const std::string& text, std::size_t most) {
  static const std::regex kScope(
      R"re(\s*(template <.*> )?(namespace|class|struct|enum|union|extern "C"|//|#).*)re");
  static const std::regex kTable(R"re(.*= (std::to_array<.*>\()?\{)re");
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::vector<Function> found;
  std::size_t statement = 0;  // line at which the current statement begins
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0 && (lines[i - 1].empty() || lines[i - 1].ends_with(';') ||
                  lines[i - 1].ends_with('{') || lines[i - 1].ends_with('}') ||
                  lines[i - 1].ends_with(':') || lines[i - 1].starts_with("template <"))) {
      statement = i;
    }
    const std::size_t indent = indentation(lines[statement]);
    if (!lines[i].ends_with('{') || indent > 4 || std::regex_match(lines[statement], kScope) ||
        std::regex_match(lines[i], kTable)) {
      continue;
    }
    std::size_t end = i + 1;
    while (end < lines.size() && !(indentation(lines[end]) <= indent &&
                                   lines[end].compare(indentation(lines[end]), 1, "}") == 0)) {
      ++end;
    }
    if (end - i - 1 > most) found.push_back({lines[statement].substr(indent), end - i - 1});
    i = end;  // functions within this one are part of it
  }
  return found;
}

/// Calls `visit(path, text)` for each source of the library, the bindings and the tools.
template <class Visit>
void each_source(Visit&& visit) {
  const fs::path root = source_dir();
  std::size_t num_files = 0;
  for (const char* folder : {"include", "src", "python/src", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
      ++num_files;
      visit(entry.path().lexically_relative(root).string(), read_file(entry.path()));
    }
  }
  EXPECT_GT(num_files, 300U);
}

TEST(SizeTest, FilesAreShort) {
  auto exceptions = kLongFiles;
  each_source([&](const std::string& path, const std::string& text) {
    const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    if (lines <= kFileLines) return;
    EXPECT_EQ(exceptions.erase(path), 1U) << path << " has " << lines << " lines";
  });
  for (const auto& [path, reason] : exceptions) ADD_FAILURE() << path << " is short now";
}

TEST(SizeTest, FunctionsAreShort) {
  auto exceptions = kLongFunctions;
  each_source([&](const std::string& path, const std::string& text) {
    for (const Function& function : long_functions(text, kFunctionLines)) {
      const std::string name = path + ": " + function.first_line;
      const auto is_it = [&](const auto& exception) { return name.starts_with(exception.first); };
      EXPECT_GT(std::erase_if(exceptions, is_it), 0U) << name << ": " << function.num_lines;
    }
  });
  for (const auto& [name, reason] : exceptions) ADD_FAILURE() << name << "() is short now";
}

TEST(SizeTest, LongFunctionsAreFound) {
  const std::string body = "  a();\n  if (b) {\n    c();\n  }\n";
  const auto names = [&](const std::string& text) {
    std::string all;
    for (const Function& each : long_functions(text, 3)) all += each.first_line + "|";
    return all;
  };
  EXPECT_EQ(names("void f() {\n" + body + "}\n"), "void f() {|");
  EXPECT_EQ(names("void f() {\n  a();\n}\nint g(int a,\n      int b) {\n" + body + "}\n"),
            "int g(int a,|");
  EXPECT_EQ(names("C::C()\n    : a_(1),\n      b_(2) {\n" + body + "}\n"), "C::C()|");
  EXPECT_EQ(
      names("namespace n {\nstruct S {\n" + body + "};\n}\nconst int x[] = {\n" + body + "};\n"),
      "");
  EXPECT_EQ(names("auto x = std::to_array<A<B>>({\n" + body + "});\n"), "");
}

}  // namespace
}  // namespace shardwise::test
