#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardwise::tools {

/// Columns of UTF-8 text on a terminal: 2 for an East Asian character or a pictograph, 0 for a
/// combining mark, 1 for other characters. A byte that is not UTF-8 takes 1.
std::size_t display_width(std::string_view text);

/// The end at which text that is too long is cut.
enum class Cut : unsigned char { kEnd, kStart };

/// `text`, or as much of it as fits into `width` columns, with an ellipsis at the cut. Characters
/// stay whole.
std::string cut_to_width(std::string_view text, std::size_t width, Cut cut = Cut::kEnd);

/// `text` in lines that end before column `width`, broken at blanks. Lines begin in column
/// `indent`; the first is expected to start there. Line ends in the text stay; a word that is too
/// wide stays whole.
std::string folded(std::string_view text, std::size_t width, std::size_t indent = 0);

/// A command to copy. If it is wider than `width`, it is broken with backslashes at blanks outside
/// of quotes. The first line keeps its indentation; others get four more columns.
std::string folded_command(std::string_view command, std::size_t width);

}  // namespace shardwise::tools
