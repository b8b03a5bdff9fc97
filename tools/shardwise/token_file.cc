#include "token_file.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/json.h"
#include "base/lines.h"
#include "base/text.h"
#include "order/checkpoint_format.h"

namespace shardwise::tools {
namespace {

/// Limit for a token's file: above the size of a token with a million samples left out.
constexpr std::size_t kMaxTokenBytes = 64 << 20;
constexpr std::string_view kTokenBegin = "sw";
constexpr const char* kNameATokenFile =
    "name a file with a resume token, which begins with \"sw2.\", \"sw3.\" or \"sw4.\"";

std::string read_front(const File& file, std::size_t size) {
  std::string bytes(size, '\0');
  bytes.resize(file.read_at(0, bytes.data(), bytes.size()));
  return bytes;
}

/// Refuses a file that is not text, e.g. of torch.save(): a zip archive, or a pickle in old
/// versions. Text in UTF-16 passes.
void refuse_binary(std::string_view bytes, const std::string& path) {
  const bool is_torch = bytes.starts_with("PK\x03\x04") || bytes.starts_with("\x80\x02");
  const bool is_wide = bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF");
  if (is_wide || (!is_torch && bytes.find('\0') == std::string_view::npos)) return;
  throw InvalidArgument(
      std::string(is_torch ? "a file of torch.save()" : "the binary file") +
          " is neither a resume token nor a checkpoint of Shardwise",
      in_quotes(path),
      is_torch
          ? "load the file in Python, and give the \"token\" of the loader's state_dict() as text"
          : kNameATokenFile);
}

/// Returns the token in a JSON text, as json.dump() writes it in Python: the text itself, or the
/// text at the key "token" of a state, which may be nested. Other tokens, e.g. of a login, do not
/// count.
std::string token_in_json(std::string_view json, const std::string& path) try {
  using Token = detail::JsonReader::Token;
  std::set<std::string> found;
  detail::JsonReader reader(json);
  bool is_value = true;  // true at the beginning, and after the key "token"
  for (Token token = reader.next(); token != Token::kEnd; token = reader.next()) {
    if (is_value && token == Token::kString && reader.text().starts_with(kTokenBegin)) {
      found.emplace(reader.text());
    }
    is_value = token == Token::kKey && reader.text() == "token";
  }
  if (found.size() == 1) return *found.begin();
  throw InvalidArgument(found.empty() ? "the JSON file has no resume token"
                                      : "the JSON file has several resume tokens",
                        in_quotes(path), "give the \"token\" of one state as text");
} catch (const detail::JsonFault& fault) {
  throw InvalidArgument("the file of the resume token is not valid JSON",
                        in_quotes(path) + " (" + escaped(fault.text()) + ")",
                        "save the state with json.dump(), or give its \"token\" as text");
}

}  // namespace

ResumeToken read_token(const std::string& file_or_text) {
  std::error_code no_error;
  if (!std::filesystem::exists(file_or_text, no_error)) {
    if (file_or_text.starts_with(kTokenBegin)) return ResumeToken::from_text(file_or_text);
    throw NotFound("neither a file nor a resume token", in_quotes(file_or_text),
                   "check the path; tokens begin with \"sw2.\", \"sw3.\" or \"sw4.\"");
  }
  const File file = File::open_read(file_or_text);
  if (read_front(file, detail::kCheckpointFirstWords.size()) == detail::kCheckpointFirstWords) {
    return read_checkpoint_token(file_or_text);
  }
  const std::uint64_t size = file_identity(file.fd(), file_or_text).size_bytes;
  const std::string text =
      read_front(file, static_cast<std::size_t>(std::min<std::uint64_t>(kMaxTokenBytes, size)));
  refuse_binary(text, file_or_text);
  const std::string_view checked =
      trimmed(checked_text(text, "the file of the resume token", in_quotes(file_or_text)));
  if (!checked.empty() && std::string_view("{[\"").find(checked[0]) != std::string_view::npos) {
    return ResumeToken::from_text(token_in_json(checked, file_or_text));
  }
  if (!checked.starts_with(kTokenBegin)) {
    throw InvalidArgument("the file has no resume token", in_quotes(file_or_text), kNameATokenFile);
  }
  return ResumeToken::from_text(std::string(checked));
}

}  // namespace shardwise::tools
