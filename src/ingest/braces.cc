#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/url.h"
#include "ingest/source_names.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

/// The alternatives of a brace: texts, or the numbers of a range, which are made one at a time.
struct Choices {
  std::vector<std::string> texts;
  std::uint64_t first = 0;
  std::uint64_t num_numbers = 0;  // 0 means: the alternatives are `texts`
  std::size_t width = 0;          // numbers are padded with zeros to this width

  std::uint64_t size() const { return num_numbers > 0 ? num_numbers : texts.size(); }
  std::string operator[](std::uint64_t i) const {
    if (num_numbers == 0) return texts[i];
    std::string number = std::to_string(first + i);
    if (number.size() < width) number.insert(0, width - number.size(), '0');
    return number;
  }
  std::size_t longest() const {
    if (num_numbers > 0) return (*this)[num_numbers - 1].size();
    std::size_t longest = 0;
    for (const std::string& text : texts) longest = std::max(longest, text.size());
    return longest;
  }
};

/// A brace in a text, with the alternatives of its body.
struct Brace {
  std::size_t outer;  // offset of the first brace around it, or of itself
  std::size_t begin;
  std::size_t end;
  Choices choices;
};

/// Expands one pattern. First it counts the names, so that a pattern with too many of them costs
/// neither time nor memory.
///
/// A brace within a brace is expanded first. Each of its alternatives then takes its place, which
/// gives several outer braces: {a,{b,c}} is {a,b} and then {a,c}.
class Expansion {
 public:
  explicit Expansion(const std::string& pattern)
      : pattern_(pattern), is_command_(is_command_url(pattern)) {
    std::size_t at = 0;
    while (auto brace = next_brace(pattern_, at)) {
      std::size_t end = brace->end;
      last_.append(pattern_, at, brace->outer - at);
      if (brace->outer == brace->begin) {
        add(std::move(brace->choices));
      } else {
        end = end_of_outermost(brace->outer);
        Choices names;
        add_nested(pattern_.substr(brace->outer, end - brace->outer), names.texts);
        add(std::move(names));
      }
      at = end;
    }
    last_.append(pattern_, at);
    std::size_t longest = last_.size();
    for (const Part& part : parts_) longest += part.before.size() + part.choices.longest();
    if (longest > kMaxNameBytes / num_names_)
      refuse("the names of the shards need more than 4 GiB");
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    names.reserve(num_names_);
    for (std::uint64_t i = 0; i < num_names_; ++i) {
      std::string& name = names.emplace_back();
      std::uint64_t place = num_names_;  // the last brace varies fastest
      for (const Part& part : parts_) {
        place /= part.choices.size();
        name += part.before;
        name += part.choices[i / place % part.choices.size()];
      }
      name += last_;
    }
    return names;
  }

 private:
  struct Part {
    std::string before;  // the text before the brace
    Choices choices;     // at least two, so there are at most 23 parts
  };

  [[noreturn]] void refuse(std::string_view what,
                           std::string_view remedy = "choose a smaller range") const {
    throw InvalidArgument(std::string(what), in_quotes(without_urls(pattern_)),
                          std::string(remedy));
  }

  void add(Choices choices) {
    if (choices.size() == 1) {
      last_ += choices[0];
      return;
    }
    if (choices.size() > kMaxShards / num_names_) refuse("there are more than 10 million shards");
    num_names_ *= choices.size();
    parts_.push_back({std::exchange(last_, {}), std::move(choices)});
  }

  /// Adds the names of a text in which braces are within braces.
  void add_nested(const std::string& text, std::vector<std::string>& names) {
    constexpr std::uint64_t kMaxNestedBytes = std::uint64_t{16} << 20;
    nested_bytes_ += text.size() + sizeof text;
    if (nested_bytes_ > kMaxNestedBytes) {
      refuse("braces within braces have too many alternatives", "write several patterns");
    }
    const auto brace = next_brace(text, 0);
    if (!brace) {
      names.push_back(text);
      return;
    }
    for (std::uint64_t i = 0; i < brace->choices.size(); ++i) {
      add_nested(text.substr(0, brace->begin) + brace->choices[i] + text.substr(brace->end), names);
    }
  }

  /// Returns the offset after the brace that closes the one at `open`, or the pattern's end.
  std::size_t end_of_outermost(std::size_t open) const {
    std::size_t depth = 0;
    for (std::size_t i = open; i < pattern_.size(); ++i) {
      if (pattern_[i] == '{') ++depth;
      if (pattern_[i] == '}' && --depth == 0) return i + 1;
    }
    return pattern_.size();
  }

  /// Returns the first brace at or after `at` that is not literal text, and that has no brace in
  /// its body.
  std::optional<Brace> next_brace(const std::string& text, std::size_t at) const {
    std::size_t open = text.find('{', at);
    while (open != std::string::npos) {
      const std::size_t close = text.find('}', open);
      if (close == std::string::npos) {
        if (is_command_) break;
        refuse("a brace is not closed", "write {000000..000146}");
      }
      const std::size_t begin = text.rfind('{', close);
      if (auto choices = choices_of(text.substr(begin + 1, close - begin - 1))) {
        return Brace{open, begin, close + 1, *std::move(choices)};
      }
      open = text.find('{', close);
    }
    return std::nullopt;
  }

  /// Returns the alternatives of a brace with this body; nullopt if the brace is literal text.
  std::optional<Choices> choices_of(const std::string& body) const {
    if (const std::size_t dots = body.find(".."); dots != std::string::npos) {
      return numbers_of(body.substr(0, dots), body.substr(dots + 2));
    }
    const auto num_commas = static_cast<std::uint64_t>(std::ranges::count(body, ','));
    if (num_commas == 0) return std::nullopt;
    // In a command, braces may be part of a program's text, e.g. awk '{print $1, $2}'.
    if (is_command_ && body.find_first_of(" $'\"") != std::string::npos) return std::nullopt;
    if (num_commas >= kMaxShards) refuse("there are more than 10 million shards");
    Choices choices;
    std::size_t begin = 0;
    for (;;) {
      const std::size_t comma = body.find(',', begin);
      choices.texts.push_back(
          body.substr(begin, comma == std::string::npos ? comma : comma - begin));
      if (comma == std::string::npos) return choices;
      begin = comma + 1;
    }
  }

  std::optional<Choices> numbers_of(const std::string& first, const std::string& last) const {
    const auto is_number = [](const std::string& s) {
      return !s.empty() && s.size() <= 18 && s.find_first_not_of("0123456789") == std::string::npos;
    };
    if (!is_number(first) || !is_number(last)) {
      if (is_command_) return std::nullopt;
      refuse("the range is malformed", "write {000000..000146}");
    }
    const auto from = static_cast<std::uint64_t>(*parse_int64(first));
    const auto to = static_cast<std::uint64_t>(*parse_int64(last));
    if (from > to || to - from >= kMaxShards) {
      refuse("the range is empty, or has more than 10 million numbers",
             "write {000000..000146}, smaller number first");
    }
    const auto is_padded = [](const std::string& s) { return s.size() > 1 && s[0] == '0'; };
    const bool pads = is_padded(first) || is_padded(last);
    return Choices{.texts = {},
                   .first = from,
                   .num_numbers = to - from + 1,
                   .width = pads ? std::max(first.size(), last.size()) : 0};
  }

  const std::string& pattern_;
  const bool is_command_;
  std::vector<Part> parts_;
  std::string last_;  // the text after the last part
  std::uint64_t num_names_ = 1;
  std::uint64_t nested_bytes_ = 0;
};

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern) {
  return Expansion(pattern).names();
}

}  // namespace shardwise
