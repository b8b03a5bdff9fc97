#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardwise::tools {

/// Returns the columns that UTF-8 text takes on a terminal: 2 for an East Asian character or a
/// pictograph, 0 for a combining mark, 1 for other characters. A byte that is not UTF-8 takes 1.
std::size_t display_width(std::string_view text);

/// The end of a text that is cut off if the text is too long.
enum class Cut : unsigned char { kEnd, kStart };

/// Returns `text`, shortened to `width` columns if it is longer. An ellipsis marks the cut. Never
/// splits a character.
std::string cut_to_width(std::string_view text, std::size_t width, Cut cut = Cut::kEnd);

/// Returns `text` in lines that end before column `width`, broken at blanks. Lines begin at column
/// `indent`; the caller has indented the first. Keeps line ends in the text. Does not break a word
/// that is too long.
std::string folded(std::string_view text, std::size_t width, std::size_t indent = 0);

/// Returns a command for copying. If it is wider than `width`, breaks it with backslashes at blanks
/// outside quotes. The first line keeps its indentation; the others get four more columns.
std::string folded_command(std::string_view command, std::size_t width);

}  // namespace shardwise::tools
