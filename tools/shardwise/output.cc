#include "output.h"

#include <fcntl.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/errno_error.h"
#include "base/text.h"
#include "base/url.h"
#include "console.h"
#include "interrupt.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {

void hold_standard_descriptors() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

void Output::write(std::string_view bytes) {
  if (bytes.size() >= kFlushBytes) {
    flush();
    write_through(bytes);
    return;
  }
  buffer_ += bytes;
  if (buffer_.size() >= kFlushBytes) flush();
}

void Output::flush() {
  write_through(buffer_);
  buffer_.clear();
}

bool Output::is_terminal() const { return tools::is_terminal(fd_); }

std::size_t Output::width() const { return terminal_width(fd_); }

void Output::write_through(std::string_view bytes) {
  const bool terminal = is_terminal();
  while (!bytes.empty()) {
    const ssize_t n =
        terminal ? write_results(fd_, bytes) : ::write(fd_, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EINTR) {
      throw_if_interrupted();
    } else if (errno == EPIPE) {
      throw ReaderGone();
    } else {
      throw_errno(errno, "cannot write the results", "standard output");
    }
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_json_name(std::string& out, std::string_view name, std::string_view bytes) {
  out += '"';
  out += name;
  if (is_utf8(bytes)) {
    out += "\":";
    append_json_string(out, bytes);
  } else {
    out += "_hex\":\"";
    out += hex(bytes);
    out += '"';
  }
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace shardwise::tools
