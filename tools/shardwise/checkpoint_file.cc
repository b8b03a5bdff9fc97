#include "checkpoint_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/text.h"
#include "shardwise/base/hash.h"

namespace shardwise::tools {
namespace {

constexpr std::string_view kFirstWords = "shardwise checkpoint ";
constexpr std::string_view kVersion = "1";
/// More than any token: one with a million samples that are left out.
constexpr std::uint64_t kMostBeforePayload = 64 << 20;

struct Header {
  ResumeToken token;
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_hash = 0;
  std::size_t size = 0;  ///< of the header
};

[[noreturn]] void throw_damaged(std::string_view why, const std::string& name) {
  throw InvalidArgument(
      "the file is not a checkpoint of shardwise-train (" + std::string(why) + ")", in_quotes(name),
      "name a file that --checkpoint wrote");
}

/// Takes a line from the front of `rest`.
std::string_view take_line(std::string_view& rest, const std::string& name) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) throw_damaged("it is cut", name);
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return line;
}

/// Takes a number from the front of `line`, and the space behind it.
std::uint64_t take_number(std::string_view& line, int base, const std::string& name) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value, base);
  if (error != std::errc()) throw_damaged("its third line is wrong", name);
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (!line.empty()) line.remove_prefix(1);
  return value;
}

Header parse_header(std::string_view bytes, const std::string& name) {
  std::string_view rest = bytes;
  if (!bytes.starts_with(kFirstWords)) throw_damaged("its first line is wrong", name);
  const std::string_view version = take_line(rest, name).substr(kFirstWords.size());
  if (version != kVersion) {
    throw VersionMismatch("a checkpoint of version " + in_quotes(version), in_quotes(name),
                          "use the program that wrote it");
  }
  const std::string_view token = take_line(rest, name);
  std::string_view numbers = take_line(rest, name);
  Header header;
  header.payload_bytes = take_number(numbers, 10, name);
  if (take_number(numbers, 16, name) != hash64(token)) {
    throw_damaged("its token is damaged", name);
  }
  header.payload_hash = take_number(numbers, 16, name);
  header.token = ResumeToken::from_text(token);
  header.size = bytes.size() - rest.size();
  return header;
}

/// Errors: InvalidArgument if the payload is cut, or something follows it.
void require_length(const Header& header, std::uint64_t size, const std::string& name) {
  if (size - header.size == header.payload_bytes) return;
  throw_damaged(
      fmt::format("it has {} bytes, and should have {}", size, header.size + header.payload_bytes),
      name);
}

std::string read_front(const std::string& path) {
  const File file = File::open_read(path);
  std::string bytes;
  bytes.resize(std::min(kMostBeforePayload, file_identity(file.fd(), path).size_bytes));
  bytes.resize(file.read_at(0, bytes.data(), bytes.size()));
  return bytes;
}

/// The token of a checkpoint of which `front` is the beginning. Of the payload only the length is
/// checked.
ResumeToken token_of_front(std::string_view front, const std::string& path) {
  const Header header = parse_header(front, path);
  require_length(header, file_identity(File::open_read(path).fd(), path).size_bytes, path);
  return header.token;
}

}  // namespace

std::string to_bytes(const CheckpointFile& checkpoint) {
  const std::string token = checkpoint.token.to_text();
  return fmt::format("{}{}\n{}\n{} {:016x} {:016x}\n", kFirstWords, kVersion, token,
                     checkpoint.payload.size(), hash64(token), hash64(checkpoint.payload)) +
         checkpoint.payload;
}

CheckpointFile checkpoint_from(std::string_view bytes, const std::string& name) {
  const Header header = parse_header(bytes, name);
  const std::string_view payload = bytes.substr(header.size);
  require_length(header, bytes.size(), name);
  if (hash64(payload) != header.payload_hash) throw_damaged("its checksum is wrong", name);
  return {header.token, std::string(payload)};
}

ResumeToken read_checkpoint_token(const std::string& path) {
  return token_of_front(read_front(path), path);
}

ResumeToken read_token(const std::string& file_or_text) {
  std::error_code no_error;
  if (!std::filesystem::exists(file_or_text, no_error)) {
    if (file_or_text.starts_with("sw")) return ResumeToken::from_text(file_or_text);
    throw NotFound("the text is neither a file nor a resume token", in_quotes(file_or_text),
                   "tokens begin with \"sw2.\"");
  }
  const std::string bytes = read_front(file_or_text);
  if (bytes.starts_with(kFirstWords)) return token_of_front(bytes, file_or_text);
  return ResumeToken::from_text(bytes);
}

}  // namespace shardwise::tools
