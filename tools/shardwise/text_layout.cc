#include "text_layout.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace shardwise::tools {
namespace {

constexpr std::string_view kEllipsis = "\xe2\x80\xa6";

struct Character {
  std::size_t bytes = 1;
  std::size_t width = 1;
};

constexpr std::array<std::pair<char32_t, char32_t>, 14> kWide = {{{0x1100, 0x115F},
                                                                  {0x2E80, 0x303E},
                                                                  {0x3041, 0x33FF},
                                                                  {0x3400, 0x4DBF},
                                                                  {0x4E00, 0x9FFF},
                                                                  {0xA000, 0xA4CF},
                                                                  {0xAC00, 0xD7A3},
                                                                  {0xF900, 0xFAFF},
                                                                  {0xFE30, 0xFE6F},
                                                                  {0xFF00, 0xFF60},
                                                                  {0xFFE0, 0xFFE6},
                                                                  {0x1F300, 0x1F64F},
                                                                  {0x1F900, 0x1F9FF},
                                                                  {0x20000, 0x3FFFD}}};
constexpr std::array<std::pair<char32_t, char32_t>, 4> kNoWidth = {
    {{0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}}};

template <std::size_t N>
bool is_in(const std::array<std::pair<char32_t, char32_t>, N>& ranges, char32_t point) {
  return std::any_of(ranges.begin(), ranges.end(), [point](const auto& range) {
    return point >= range.first && point <= range.second;
  });
}

/// Returns the first character of `text`. REQUIRES: `text` is not empty.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  std::size_t bytes = 1;
  char32_t point = lead;
  if (lead >= 0xF0 && lead < 0xF8) {
    bytes = 4;
    point = lead & 0x07;
  } else if (lead >= 0xE0) {
    bytes = 3;
    point = lead & 0x0F;
  } else if (lead >= 0xC0) {
    bytes = 2;
    point = lead & 0x1F;
  }
  if (bytes > text.size()) return {};
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {};
    point = (point << 6) | (next & 0x3F);
  }
  if (is_in(kNoWidth, point)) return {bytes, 0};
  return {bytes, is_in(kWide, point) ? std::size_t{2} : std::size_t{1}};
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
  return words;
}

/// Splits a command into words as a shell does: quoted parts stay together.
std::vector<std::string_view> shell_words(std::string_view command) {
  std::vector<std::string_view> words;
  char quote = 0;
  std::size_t begin = std::string_view::npos;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == ' ' && quote == 0) {
      if (begin != std::string_view::npos) words.push_back(command.substr(begin, i - begin));
      begin = std::string_view::npos;
      continue;
    }
    if (begin == std::string_view::npos) begin = i;
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    }
  }
  if (begin != std::string_view::npos) words.push_back(command.substr(begin));
  return words;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const Character next = first_character(text);
    width += next.width;
    text.remove_prefix(next.bytes);
  }
  return width;
}

std::string cut_to_width(std::string_view text, std::size_t width, Cut cut) {
  std::size_t whole = display_width(text);
  if (whole <= width) return std::string(text);
  if (width == 0) return {};
  if (cut == Cut::kStart) {
    while (whole > width - 1) {
      const Character first = first_character(text);
      whole -= first.width;
      text.remove_prefix(first.bytes);
    }
    return std::string(kEllipsis) + std::string(text);
  }
  std::size_t bytes = 0;
  std::size_t taken = 0;
  for (;;) {
    const Character next = first_character(text.substr(bytes));
    if (taken + next.width > width - 1) break;
    taken += next.width;
    bytes += next.bytes;
  }
  return std::string(text.substr(0, bytes)) + std::string(kEllipsis);
}

namespace {
/// Lines of words, separated by blanks.
struct FoldedLines {
  /// Adds a word. Begins a new line if the word and `line_end` would exceed `width`.
  void add(std::string_view word, std::size_t width, std::string_view line_end,
           std::size_t indent) {
    const std::size_t taken = display_width(word);
    if (!is_first_word && column + taken + line_end.size() > width) {
      text += line_end;
      text.append(indent, ' ');
      column = indent;
    } else if (!is_first_word) {
      text += ' ';
      ++column;
    }
    text += word;
    column += taken;
    is_first_word = false;
  }

  std::string text;
  std::size_t column = 0;
  bool is_first_word = true;
};
}  // namespace

std::string folded(std::string_view text, std::size_t width, std::size_t indent) {
  FoldedLines lines{.text = {}, .column = indent};
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    for (const std::string_view word : words_of(text.substr(0, end))) {
      lines.add(word, width, "\n", indent);
    }
    if (end == text.size()) return std::move(lines.text);
    text.remove_prefix(end + 1);
    lines.text += '\n';
    if (!text.empty() && text.front() != '\n') lines.text.append(indent, ' ');
    lines.column = indent;
    lines.is_first_word = true;
  }
}

std::string folded_command(std::string_view command, std::size_t width) {
  if (display_width(command) <= width) return std::string(command);
  const std::size_t indent = std::min(command.find_first_not_of(' '), command.size());
  FoldedLines lines{.text = std::string(indent, ' '), .column = indent};
  for (const std::string_view word : shell_words(command)) {
    lines.add(word, width, " \\\n", indent + 4);
  }
  return std::move(lines.text);
}

}  // namespace shardwise::tools
