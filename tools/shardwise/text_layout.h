#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardwise::tools {

/// Columns that a terminal takes for UTF-8 text: 2 for a character of the East Asian scripts or a
/// pictograph, 0 for a combining mark, 1 for all others and for each byte that is not UTF-8.
std::size_t display_width(std::string_view text);

/// Where text that is too long loses characters.
enum class Cut : unsigned char { kEnd, kStart };

/// `text`, or as much of it as fits into `width` columns with an ellipsis where it was cut. No
/// character is cut in two.
std::string cut_to_width(std::string_view text, std::size_t width, Cut cut = Cut::kEnd);

/// `text` in lines that end before column `width`, broken at blanks. Each begins in column
/// `indent`: the first has its blanks already. Line ends in it stay; a word that is too wide stays
/// whole.
std::string folded(std::string_view text, std::size_t width, std::size_t indent = 0);

/// A command to copy, broken with backslashes at blanks outside of quotes, where it is wider than
/// `width`. Its own indentation is kept; what follows is indented by four more.
std::string folded_command(std::string_view command, std::size_t width);

}  // namespace shardwise::tools
