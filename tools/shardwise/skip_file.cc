#include "skip_file.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/lines.h"
#include "base/text.h"

namespace shardwise::tools {
namespace {

std::vector<std::string_view> words_of_line(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = trimmed(text); !text.empty();) {
    const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
    words.push_back(text.substr(0, end));
    text = trimmed(text.substr(end));
  }
  return words;
}

/// Parses the numbers from words[first] on. Returns nullopt if a word is not a number.
std::optional<std::vector<std::uint64_t>> numbers_in(const std::vector<std::string_view>& words,
                                                     std::size_t first) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = first; i < words.size(); ++i) {
    const std::optional<std::int64_t> number = parse_int64(words[i]);
    if (!number || *number < 0) return std::nullopt;
    numbers.push_back(static_cast<std::uint64_t>(*number));
  }
  return numbers;
}

class Parser {
 public:
  Parser(const std::string& path, const FindKey& find_key) : path_(path), find_key_(find_key) {}

  void add(std::string_view line) {
    ++number_;
    line = trimmed(line);
    if (line.empty() || line.front() == '#') return;
    std::string_view reason;
    if (const std::size_t mark = line.find(" # "); mark != std::string_view::npos) {
      reason = trimmed(line.substr(mark + 3));
      line = trimmed(line.substr(0, mark));
    }
    const std::vector<std::string_view> words = words_of_line(line);
    if (words.front() == "key" && words.size() > 1) {
      add_key(std::string(trimmed(line.substr(3))), reason);
      return;
    }
    const bool has_verb = parse_int64(words.front()) == std::nullopt;
    const auto numbers = numbers_in(words, has_verb ? 1 : 0);
    if (!numbers) throw_line(line);
    add_numbers(has_verb ? words.front() : "sample", *numbers, reason, line);
  }
  SkipList take() { return std::move(skip_); }

 private:
  void add_key(const std::string& key, std::string_view reason) {
    const std::optional<std::uint64_t> sample = find_key_ ? find_key_(key) : std::nullopt;
    if (!sample) {
      throw NotFound("no sample has the key " + in_quotes(key), where(),
                     "`shardwise ls` shows the keys");
    }
    skip_.add_sample(*sample, reason);
  }

  void add_numbers(std::string_view verb, const std::vector<std::uint64_t>& n,
                   std::string_view reason, std::string_view line) {
    if (verb == "sample" && n.size() == 1) {
      skip_.add_sample(n[0], reason);
    } else if (verb == "positions" && n.size() == 3 && n[1] <= n[2]) {
      skip_.add_positions(n[0], n[1], n[2]);
    } else if (verb == "steps" && n.size() == 5 && n[1] <= n[2] && n[3] > 0 && n[4] > 0) {
      skip_.add_steps(n[0], n[1], n[2], n[3], n[4]);
    } else {
      throw_line(line);
    }
  }

  std::string where() const { return in_quotes(path_) + ", line " + std::to_string(number_); }

  [[noreturn]] void throw_line(std::string_view line) const {
    throw InvalidArgument(
        "the line is not an entry of a skip file: " + in_quotes(line), where(),
        "write a sample number, 'key KEY', 'positions EPOCH BEGIN END' or 'steps EPOCH FIRST END "
        "WORLD BATCH', with END at least BEGIN or FIRST, and WORLD and BATCH at least 1");
  }

  const std::string& path_;
  const FindKey& find_key_;
  std::uint64_t number_ = 0;
  SkipList skip_;
};

}  // namespace

SkipList read_skip_file(const std::string& path, const FindKey& find_key,
                        const std::string& fingerprint) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;
  constexpr std::string_view kWhat = "the skip file";
  const std::string text = read_text(path, kMaxBytes, kWhat);
  if (!fingerprint.empty() && text.starts_with(kBadListBegin) &&
      !std::string_view(text).substr(kBadListBegin.size()).starts_with(fingerprint)) {
    throw Mismatch(
        "the list belongs to another data set", in_quotes(path),
        "use the INDEX, --where and --mix that it was made with, or write its lines as 'key KEY'");
  }
  Parser parser(path, find_key);
  for (const std::string_view line : lines_of(text, kWhat, name_of_text(path))) {
    parser.add(line);
  }
  return parser.take();
}

}  // namespace shardwise::tools
