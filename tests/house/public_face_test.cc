// Checks that shardwise.h and advanced.h include all public headers (for videos video.h, for
// LibTorch libtorch.h and libtorch/advanced.h), and that these define only the types in
// public_types.txt. To make a type public, add it to that list. All other types are in src.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "support/support.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

const std::vector<std::string> kPages = {"shardwise.h", "advanced.h", "loader.h",
                                         "video.h",     "libtorch.h", "libtorch/advanced.h"};

std::string public_header(const std::string& name) {
  return read_file(source_dir() + "/include/shardwise/" + name);
}

/// Returns the public headers, except the umbrella headers and export.h, which defines no name for
/// users.
std::set<std::string> public_headers() {
  const fs::path root = source_dir() + "/include/shardwise";
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) names.insert(fs::relative(entry.path(), root));
  }
  for (const std::string& page : kPages) names.erase(page);
  names.erase("base/export.h");
  return names;
}

/// Returns the headers that a text includes, without "shardwise/".
std::vector<std::string> includes_of(const std::string& text) {
  static const std::regex kInclude(R"re((?:^|\n)#include "shardwise/([^"]+)")re");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), kInclude), end; it != end; ++it) {
    names.push_back((*it)[1]);
  }
  return names;
}

/// Returns the classes, structs and enums that a header defines in shardwise or
/// shardwise::libtorch, without those in the library's private namespaces.
std::set<std::string> types_of(const std::string& text) {
  static const std::regex kNamespace(R"(^namespace ([\w:]+) \{)");
  static const std::regex kType(
      R"(^(?:template ?<.*> ?)?(?:class|struct|enum class) (?:SHARDWISE_EXPORT )?(\w+)(?: final)?(?: :.*| \{.*|)$)");
  std::set<std::string> names;
  std::string in_detail;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kNamespace) && match.str(1).ends_with("detail")) {
      in_detail = match[1];
    } else if (!in_detail.empty() && line == "}  // namespace " + in_detail) {
      in_detail.clear();
    } else if (in_detail.empty() && std::regex_search(line, match, kType)) {
      names.insert(match[1]);
    }
  }
  return names;
}

TEST(PublicFaceTest, EachHeaderIsOnOnePage) {
  std::map<std::string, std::vector<std::string>> pages_of;
  for (const std::string& page : kPages) {
    for (const std::string& header : includes_of(public_header(page))) {
      pages_of[header].push_back(page);
    }
  }
  for (const std::string& page : kPages) pages_of.erase(page);  // a page may include another page
  for (const std::string& header : public_headers()) {
    EXPECT_THAT(pages_of[header], testing::SizeIs(1))
        << header << ": put it on a page, or into src if no user needs it";
    pages_of.erase(header);
  }
  EXPECT_THAT(pages_of, testing::IsEmpty());
}

TEST(PublicFaceTest, EachPageHasAnExample) {
  for (const std::string& page : kPages) {
    EXPECT_THAT(public_header(page), testing::HasSubstr("\n///     ")) << page;
  }
}

TEST(PublicFaceTest, ItsTypesAreThoseOfTheList) {
  std::set<std::string> types;
  for (const std::string& header : public_headers()) {
    types.merge(types_of(public_header(header)));
  }
  std::set<std::string> listed;
  std::istringstream lines(read_file(source_dir() + "/tests/house/public_types.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && !line.starts_with('#')) listed.insert(line);
  }
  EXPECT_EQ(types, listed);
  EXPECT_LE(types.size(), 78U) << "nest it in the class that it belongs to, or put it into src";
}

TEST(PublicFaceTest, TypesAreFound) {
  EXPECT_THAT(
      types_of("struct A {\nclass SHARDWISE_EXPORT B : public C {\nenum class D : int { k };\n"
               "class E;\n  struct F {\nnamespace detail {\nstruct G {\n}  // namespace detail\n"
               "template <class T>\nclass H final\n    : public I {\n"),
      testing::ElementsAre("A", "B", "D", "H"));
}

}  // namespace
}  // namespace shardwise::test
