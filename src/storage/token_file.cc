#include "storage/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/ascii.h"
#include "base/lines.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

constexpr std::size_t kMostTokenBytes = std::size_t{64} << 10;

}  // namespace

std::string read_token(const std::string& path, std::string_view what) {
  errno = 0;
  std::ifstream file(path);
  const int opening = errno;
  std::string line(kMostTokenBytes, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  if (!file.is_open() || file.bad()) {
    const std::string reason = opening == 0 ? "it cannot be read" : std::strerror(opening);
    throw InvalidArgument("cannot read the " + std::string(what),
                          in_quotes(path) + " (" + reason + ")", "check the file's path");
  }
  line.resize(static_cast<std::size_t>(file.gcount()));
  const std::string_view text =
      checked_text(line, "the file of the " + std::string(what), in_quotes(path));
  std::string token(trimmed(text.substr(0, text.find('\n'))));
  const bool is_word = std::ranges::all_of(
      token, [](char c) { return static_cast<unsigned char>(c) - 0x21U < 94U; });
  if (token.empty() || !is_word || line.size() == kMostTokenBytes) {
    throw InvalidArgument("the file holds no " + std::string(what), in_quotes(path),
                          "write the token alone into its first line");
  }
  return token;
}

}  // namespace shardwise
