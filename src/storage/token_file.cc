#include "storage/token_file.h"

#include <algorithm>
#include <cstdint>

#include "base/ascii.h"
#include "base/lines.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kMaxTokenBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMaxBytes = std::uint64_t{16} << 20;

}  // namespace

std::optional<std::string> find_text(const std::string& path, std::string_view what,
                                     const CancelToken& cancel) {
  std::string text;
  try {
    text = read_text(path, kMaxBytes, what, cancel);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound && error.code() != ErrorCode::kIo) throw;
    return std::nullopt;
  }
  return std::string(checked_text(text, what, in_quotes(path)));
}

std::string read_token(const std::string& path, std::string_view what, const CancelToken& cancel) {
  std::string file;
  try {
    file = read_text(path, kMaxTokenBytes, "the " + std::string(what), cancel);
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& error) {
    // Do not report kNotFound, which would mean that the shard is missing.
    throw InvalidArgument(error.what());
  }
  const std::string_view text =
      checked_text(file, "the file of the " + std::string(what), in_quotes(path));
  std::string token(trimmed(text.substr(0, text.find('\n'))));
  const bool is_word = std::ranges::all_of(
      token, [](char c) { return static_cast<unsigned char>(c) - 0x21U < 94U; });
  if (token.empty() || !is_word) {
    throw InvalidArgument("the file has no " + std::string(what), in_quotes(path),
                          "write only the token, on its first line");
  }
  return token;
}

}  // namespace shardwise
