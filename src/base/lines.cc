#include "base/lines.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/cancel_scope.h"
#include "base/errno_error.h"
#include "base/normal_path.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

/// True for ASCII text in UTF-16 or UTF-32. Such a text begins with a byte order mark, or exactly
/// one of its first two bytes is NUL. A text without a newline is not counted, because it may be a
/// list separated by NULs.
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
                        "give a text file in which each line ends with a newline (`find -print`, "
                        "not `find -print0`)");
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

std::string name_of_text(const std::string& path) {
  return path.empty() ? "standard input" : in_quotes(path);
}

std::string read_text(const std::string& path, std::uint64_t max_bytes, std::string_view what,
                      const CancelToken& cancel) {
  constexpr int kSliceMs = 100;
  const std::string cannot_read = "cannot read " + std::string(what);
  // With O_NONBLOCK, open() does not wait for the writer of a pipe. The pipe is polled below.
  const int opened = path.empty() ? -1 : ::open(c_path(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (!path.empty() && opened < 0) throw_errno(errno, cannot_read, path);
  struct Closing {
    const int fd;
    ~Closing() {
      if (fd >= 0) ::close(fd);
    }
  } const closing{opened};
  const int fd = path.empty() ? STDIN_FILENO : opened;
  const std::string name = path.empty() ? name_of_text(path) : path;
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  for (;;) {
    CancelScope::joined(cancel).throw_if_cancelled();
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int num_ready = ::poll(&ready, 1, kSliceMs);
    if (num_ready < 0 && errno != EINTR) throw_errno(errno, cannot_read, name);
    if (num_ready <= 0) continue;
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n == 0) return text;
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0 && errno == EISDIR) {
      throw InvalidArgument(std::string(what) + " is a directory", in_quotes(path), "give a file");
    }
    if (n < 0) throw_errno(errno, cannot_read, name);
    text.append(piece.data(), static_cast<std::size_t>(n));
    if (text.size() <= max_bytes) continue;
    throw InvalidArgument(std::string(what) + " is larger than " + human_bytes(max_bytes),
                          name_of_text(path), "check that the path names the right file");
  }
}

}  // namespace shardwise::detail
