#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardwise::tools {

// Standard error for people: whole lines, and at most one progress bar, which is erased before
// other text is written. Threads: any.

bool is_terminal(int fd);
/// True if TERM is "dumb": the terminal cannot wipe a line, and has no colours.
bool is_dumb_terminal();

/// Returns the number of columns to use on `fd`: the variable COLUMNS if it is a positive number,
/// else the terminal's width, else 80.
std::size_t terminal_width(int fd);

/// When text for people has colours.
enum class Colours : std::uint8_t { kAuto, kAlways, kNever };

/// Sets the rule for all streams; kAuto by default. Call it before other threads run.
void set_colours(Colours colours);

/// True if text on `fd` has colours. With kAuto, text has no colours if NO_COLOR is set
/// (https://no-color.org), and has colours if CLICOLOR_FORCE is set. Otherwise it has colours on a
/// terminal that is not "dumb".
bool has_colours(int fd);

/// The purpose of a part of a text, which decides the part's colour.
enum class Style : std::uint8_t { kError, kWarning, kNote, kHead };

/// `text`, in the colour of `style` if `fd` has colours.
std::string styled(std::string_view text, Style style, int fd);

/// Sets the name with which messages begin, "shardwise" by default. Errors then use that program's
/// option names. Call it once, at the start; `name` must live as long as the process.
void set_program_name(const char* name);
const char* program_name();

/// Writes a line and a line end to standard error.
void print_message(std::string_view line);
/// Draws `bar` in the last line of the terminal, in place of an earlier bar. Does nothing if the
/// last line has the beginning of a line of results.
void draw_bar(std::string_view bar);
/// True if draw_bar() would neither wait for a terminal that was stopped, nor disturb a shell that
/// runs this program in the background.
bool can_draw_now();
/// Erases the bar, if there is one.
void clear_bar();
/// Erases the bar, and writes results to the terminal `fd`. Returns what ::write() returns.
ssize_t write_results(int fd, std::string_view bytes);

/// Writes "<program>: <kind>: <text>" and a line end to standard error. The kind, e.g. "error", has
/// its colour.
void say(std::string_view kind, std::string_view text);

}  // namespace shardwise::tools
