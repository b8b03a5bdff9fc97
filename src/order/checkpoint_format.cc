#include "order/checkpoint_format.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <set>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/text.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {
namespace {

/// Limit on the text before the values. The largest realistic text has a token that leaves out a
/// million samples.
constexpr std::uint64_t kMaxBeforeValues = 64 << 20;
constexpr std::size_t kMaxNameBytes = 1000;

struct Front {
  CheckpointContent content;         // without the bytes of its parts
  std::vector<std::uint64_t> sizes;  // size of each part in bytes
  std::vector<std::string> hashes;   // hash of each part
  std::size_t front_bytes = 0;
  std::uint64_t file_bytes = 0;  // required size of the file
};

std::string hash_text(std::string_view bytes) { return to_string(hash128(bytes)); }

[[noreturn]] void throw_damaged(std::string_view why, const std::string& path) {
  throw InvalidArgument("the file is not a complete checkpoint (" + std::string(why) + ")",
                        in_quotes(path), "name a complete checkpoint");
}

/// Removes the first line of `rest`, and returns it.
std::string_view take_line(std::string_view& rest, const std::string& path) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) throw_damaged("the file is truncated", path);
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return line;
}

/// Removes the first word of `line` and the space after it. Returns the word.
std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), word.size() + 1));
  return word;
}

template <class Number>
Number number_of(std::string_view word, const std::string& path) {
  Number value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0) {
    throw_damaged("a number is not valid", path);
  }
  return value;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t side : shape) text += (text.empty() ? "" : ",") + std::to_string(side);
  return text.empty() ? "-" : text;
}

std::vector<std::int64_t> shape_of(std::string_view text, const std::string& path) {
  std::vector<std::int64_t> shape;
  while (text != "-" && !text.empty()) {
    const std::string_view side = text.substr(0, text.find(','));
    shape.push_back(number_of<std::int64_t>(side, path));
    text.remove_prefix(std::min(text.size(), side.size() + 1));
  }
  return shape;
}

void take_part(std::string_view line, Front& front, const std::string& path) {
  CheckpointPart part;
  part.name = take_word(line);
  part.type = take_word(line);
  part.shape = shape_of(take_word(line), path);
  const auto size = number_of<std::uint64_t>(take_word(line), path);
  front.hashes.emplace_back(line);
  front.sizes.push_back(size);
  if (front.file_bytes + size < size) throw_damaged("the parts are too large", path);
  front.file_bytes += size;
  front.content.parts.push_back(std::move(part));
}

/// Parses the text before the values. `bytes` are the beginning of a file.
Front parse_front(std::string_view bytes, const std::string& path) {
  std::string_view rest = bytes;
  if (!bytes.starts_with(kCheckpointFirstWords)) throw_damaged("the first line is wrong", path);
  const std::string_view version = take_line(rest, path).substr(kCheckpointFirstWords.size());
  if (version != std::to_string(kCheckpointVersion)) {
    throw VersionMismatch("cannot read a checkpoint of version " + in_quotes(version),
                          in_quotes(path), "use the Shardwise version that wrote the file");
  }
  const std::string_view token = take_line(rest, path);
  const std::string_view writer = take_line(rest, path);
  const auto num_parts = number_of<std::uint64_t>(take_line(rest, path), path);
  // The lines of parts are parsed only after the hash is verified.
  std::vector<std::string_view> lines;
  for (std::uint64_t i = 0; i < num_parts; ++i) lines.push_back(take_line(rest, path));
  const std::string_view before = bytes.substr(0, bytes.size() - rest.size());
  if (take_line(rest, path) != hash_text(before)) throw_damaged("the beginning is damaged", path);

  Front front;
  front.front_bytes = bytes.size() - rest.size();
  front.file_bytes = front.front_bytes;
  front.content.token = ResumeToken::from_text(token);
  front.content.writer = writer;
  for (const std::string_view line : lines) take_part(line, front, path);
  return front;
}

void require_length(const Front& front, std::uint64_t size, const std::string& path) {
  if (size == front.file_bytes) return;
  throw_damaged(
      "the file has " + counted(size, "byte") + " instead of " + human_count(front.file_bytes),
      path);
}

}  // namespace

void require_part_name(std::string_view name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != '\x7f';
  });
  if (is_plain && !name.empty() && name.size() <= kMaxNameBytes) return;
  throw InvalidArgument("the name of the value is not valid", in_quotes(name),
                        "give a name of 1 to 1,000 bytes without spaces or control characters");
}

std::string checkpoint_front(const CheckpointContent& content) {
  std::string text(kCheckpointFirstWords);
  text += std::to_string(kCheckpointVersion);
  text += "\n" + content.token.to_text() + "\n" + escaped(content.writer) + "\n" +
          std::to_string(content.parts.size()) + "\n";
  for (const CheckpointPart& part : content.parts) {
    text += part.name + " " + part.type + " " + shape_text(part.shape) + " " +
            std::to_string(part.bytes.size()) + " " + hash_text(part.bytes) + "\n";
  }
  return text + hash_text(text) + "\n";
}

CheckpointContent parse_checkpoint(std::string_view bytes, const std::string& path) {
  Front front = parse_front(bytes, path);
  require_length(front, bytes.size(), path);
  std::set<std::string_view> names;
  std::size_t at = front.front_bytes;
  for (std::size_t i = 0; i < front.sizes.size(); ++i) {
    CheckpointPart& part = front.content.parts[i];
    part.bytes = bytes.substr(at, front.sizes[i]);
    at += part.bytes.size();
    if (hash_text(part.bytes) != front.hashes[i]) {
      throw_damaged("the value " + in_quotes(part.name) + " is damaged", path);
    }
    if (!names.insert(part.name).second) {
      throw_damaged("the value " + in_quotes(part.name) + " occurs twice", path);
    }
  }
  return std::move(front.content);
}

ResumeToken read_checkpoint_token(const std::string& path) {
  const File file = File::open_read(path);
  const std::uint64_t size = file_identity(file.fd(), path).size_bytes;
  std::string bytes(std::min(kMaxBeforeValues, size), '\0');
  bytes.resize(file.read_at(0, bytes.data(), bytes.size()));
  const Front front = parse_front(bytes, path);
  require_length(front, size, path);
  return front.content.token;
}

}  // namespace shardwise::detail
