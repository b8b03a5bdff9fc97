#include "base/lines.h"

#include <algorithm>

#include "base/error_types.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

/// True for a text of ASCII in UTF-16 or UTF-32: it begins with a mark; or one of its first two
/// bytes is a NUL, and it has lines, which what NULs separate has not.
bool is_wide(std::string_view text) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return true;
  return text.size() > 1 && (text[0] == '\0') != (text[1] == '\0') &&
         text.find('\n') != std::string_view::npos;
}

}  // namespace

std::string_view checked_text(std::string_view text, std::string_view what,
                              std::string_view where) {
  if (is_wide(text)) {
    throw InvalidArgument(std::string(what) + " is UTF-16 or UTF-32, not UTF-8", std::string(where),
                          "save it as UTF-8");
  }
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t nul = text.find('\0');
  if (nul == std::string_view::npos) return text;
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n');
  throw InvalidArgument(std::string(what) + " has a NUL byte",
                        std::string(where) + ", line " + std::to_string(line),
                        "end each line with a newline: `find -print`, not `find -print0`");
}

std::vector<std::string_view> lines_of(std::string_view text, std::string_view what,
                                       std::string_view where) {
  std::vector<std::string_view> lines;
  for (text = checked_text(text, what, where); !text.empty();) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string read_text(std::istream& in, std::uint64_t max_bytes, std::string_view what,
                      std::string_view where) {
  std::string text;
  for (char piece[std::size_t{1} << 16]; in.read(piece, sizeof piece) || in.gcount() > 0;) {
    text.append(piece, static_cast<std::size_t>(in.gcount()));
    if (text.size() <= max_bytes) continue;
    throw InvalidArgument(std::string(what) + " is larger than " + human_bytes(max_bytes),
                          std::string(where), "check that it is the right file");
  }
  if (in.bad())
    throw Error(ErrorCode::kIo, "cannot read " + std::string(what), std::string(where), "");
  return text;
}

}  // namespace shardwise::detail
