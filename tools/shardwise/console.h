#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardwise::tools {

// Standard error for people: whole lines, and at most one progress bar, which is erased before
// other text is written. Threads: any.

bool is_terminal(int fd);

/// Returns the number of columns to use on `fd`: the variable COLUMNS if it is a positive number,
/// else the terminal's width, else 80.
std::size_t terminal_width(int fd);

/// Sets the name with which messages begin, "shardwise" by default. Errors then use that program's
/// option names. Call it once, at the start; `name` must live as long as the process.
void set_program_name(const char* name);
const char* program_name();

/// Writes a line and a line end to standard error.
void print_message(std::string_view line);
/// Draws `bar` in the last line of the terminal, in place of an earlier bar.
void draw_bar(std::string_view bar);
/// Erases the bar, if there is one.
void clear_bar();

/// Writes "<program>: <kind>: <text>" and a line end to standard error.
void say(std::string_view kind, std::string_view text);

}  // namespace shardwise::tools
