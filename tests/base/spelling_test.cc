// Tests that error texts use the names of the interface in use.

#include "base/spelling.h"

#include <filesystem>
#include <regex>
#include <set>
#include <vector>

#include "base/fields.h"
#include "support/support.h"

namespace shardwise::test {
namespace {

using detail::Face;

/// While an object of this class lives, errors of this process use the names of `face`.
struct Spelt {
  explicit Spelt(Face face, std::string_view (*rename)(std::string_view) = nullptr) {
    detail::spell_for(face, rename);
  }
  ~Spelt() { detail::spell_for(Face::kLibrary); }
};

TEST(SpellingTest, EachFaceHasItsOwn) {
  EXPECT_EQ(spelled("Dataset::Options::root"), "Dataset::Options::root");
  EXPECT_EQ(spelled_with("threads", 4), "threads = 4");
  EXPECT_EQ(if_there(", or ", "Fetchers::add", "!"), ", or Fetchers::add!");
  {
    const Spelt here(Face::kCommand);
    EXPECT_EQ(spelled("Dataset::Options::root"), "--root DIR");
    EXPECT_EQ(spelled("`shardwise index` again"), "`shardwise index` again");
    EXPECT_EQ(spelled_with("threads", 4), "--threads 4");
    EXPECT_EQ(if_there(", or ", "Fetchers::add", "!"), "");
    EXPECT_EQ(spelled("Fetchers::add"), "Fetchers::add") << "better than no name";
  }
  {
    const Spelt here(Face::kCommand, [](std::string_view option) {
      return option == "--batch" ? "--batch-size" : std::string_view();
    });
    EXPECT_EQ(spelled("batch_size"), "--batch-size");
    EXPECT_EQ(if_there("", "threads"), "");
  }
  const Spelt here(Face::kPython);
  EXPECT_EQ(spelled("Dataset::Options::root"), "root=");
  EXPECT_EQ(spelled("`shardwise index` again"), "shardwise.update()");
  EXPECT_EQ(spelled_with("threads", 4), "threads = 4");
}

struct Numbers {
  std::uint64_t large = 5;
  unsigned small = 5;
  bool is_there = true;
};

constexpr auto fields(std::type_identity<Numbers> /*of*/) {
  return std::tuple{
      detail::field(
          "large", &Numbers::large,
          {.option = "--most-large", .unit = "samples", .least = 2, .advice = "5 is usual"}),
      detail::field("small", &Numbers::small, {.most = 7}),
      detail::field("is_there", &Numbers::is_there, {.option = "--no-such"})};
}

std::string refusal(const Numbers& numbers) {
  try {
    detail::check_numbers(numbers);
    return {};
  } catch (const InvalidOption& e) {
    return e.what();
  }
}

TEST(SpellingTest, AFieldHasTheNameOfItsOption) {
  constexpr detail::Spelling kLarge = detail::spelling_of<Numbers>("large");
  constexpr detail::Spelling kSmall = detail::spelling_of<Numbers>("small");
  const Spelt here(Face::kCommand);
  EXPECT_EQ(spelled(kLarge), "--most-large");
  EXPECT_EQ(spelled(kSmall), "small") << "it has no option";
  EXPECT_EQ(spelled(detail::spelling_of<Numbers>("is_there")), "is_there") << "not its opposite";
  EXPECT_THAT(refusal({.large = 1}),
              testing::AllOf(testing::StartsWith("--most-large is 1 samples"),
                             testing::HasSubstr("at least 2"), testing::HasSubstr("5 is usual")));
}

TEST(SpellingTest, ANumberHasItsLeastAndItsMost) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.large = 2, .small = 7}), "");
  EXPECT_EQ(refusal({.large = ~std::uint64_t{0}, .small = 0}), "");
  EXPECT_THAT(refusal({.large = 1}),
              testing::AllOf(testing::StartsWith("large is 1 samples"),
                             testing::HasSubstr("at least 2"), testing::HasSubstr("5 is usual")));
  EXPECT_THAT(refusal({.small = 8}),
              testing::AllOf(testing::StartsWith("small is 8"), testing::HasSubstr("at most 7")));
}

/// Returns the string literals of the sources, each with the code before it. Adjacent literals are
/// joined.
std::vector<std::pair<std::string, std::string>> literals() {
  std::vector<std::pair<std::string, std::string>> found;
  const std::regex comment(R"re((^|\n)\s*(//|#)[^\n]*)re");
  const std::regex literal(R"re("((?:[^"\\\n]|\\.)*)"(?:\s*"((?:[^"\\\n]|\\.)*)")*)re");
  for (const auto& file : std::filesystem::recursive_directory_iterator(source_dir() + "/src")) {
    const std::string path = file.path().string();
    if ((!path.ends_with(".cc") && !path.ends_with(".h")) || path.ends_with("base/spelling.h") ||
        path.ends_with("base/fields.h")) {
      continue;
    }
    if (path.find("/libtorch/") != std::string::npos) continue;  // only C++ programs see them
    const std::string code = std::regex_replace(read_file(path), comment, "$1");
    for (std::sregex_iterator at(code.begin(), code.end(), literal), end; at != end; ++at) {
      const auto begin = static_cast<std::size_t>(at->position());
      const std::size_t from = begin - std::min<std::size_t>(begin, 90);
      found.emplace_back(std::regex_replace(at->str(), std::regex(R"re("\s+")re"), ""),
                         code.substr(from, begin - from));
    }
  }
  return found;
}

// Error texts that only C++ programs see.
const std::set<std::string> kCppAlone = {
    "\"give root and accept_times to Index::open (Index::Lookup), not to the dataset\"",
    "\"give BuildOptions::remote\"",
    "\"give VerifyOptions::remote\"",
    "\"Fetchers::S3Options\"",
    "\"leave Loader::Options::memory empty\"",
};

TEST(SpellingTest, NoTextNamesAnOptionByItself) {
  const std::regex taken(
      R"re((spelled|spelled_with|if_there|refuse_option)\(\s*("[^"]*",\s*)?$)re");
  const std::regex name(
      R"re((^|[^d])::[A-Za-z]|[^t]d::[A-Za-z]|`shardwise|(^"|[ (`])--[a-z]+(?!.*(sort|dereference)))re");
  const std::regex of_tar(R"re(`(tar|gcloud|aws|az|huggingface-cli|openssl)[^`]*`)re");
  std::set<std::string> by_itself;
  std::size_t num_taken = 0;
  for (const auto& [text, before] : literals()) {
    if (std::regex_search(before, taken)) {
      ++num_taken;
    } else if (before.find(".option = ") == std::string::npos &&
               std::regex_search(std::regex_replace(text, of_tar, ""), name)) {
      if (!kCppAlone.contains(text)) by_itself.insert(text);
    }
  }
  EXPECT_GT(num_taken, 40U);
  EXPECT_EQ(by_itself, std::set<std::string>{}) << "write spelled(\"...\"), see base/spelling.h";
}

TEST(SpellingTest, EachIsUsedAndListedOnce) {
  std::string code;
  for (const auto& [text, before] : literals()) code += text + "\n";
  std::set<std::string_view> seen;
  for (const detail::Spelling& one : detail::kSpellings) {
    EXPECT_TRUE(seen.insert(one.library).second) << one.library;
    EXPECT_NE(code.find("\"" + std::string(one.library) + "\"\n"), std::string::npos)
        << one.library << " is in no text";
  }
}

}  // namespace
}  // namespace shardwise::test
