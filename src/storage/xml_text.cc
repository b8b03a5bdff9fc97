#include "storage/xml_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace shardwise {
namespace {

void append_utf8(std::string& out, unsigned long code) {
  const auto put = [&](unsigned long byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

/// Appends the character that the reference &name; stands for. Returns false if XML does not
/// predefine it.
bool append_reference(std::string& out, std::string_view name) {
  constexpr auto kNamed = std::to_array<std::pair<std::string_view, char>>(
      {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}});
  for (const auto& [known, character] : kNamed) {
    if (name != known) continue;
    out += character;
    return true;
  }
  if (!name.starts_with('#')) return false;
  name.remove_prefix(1);
  const bool is_hexadecimal = name.starts_with('x');
  if (is_hexadecimal) name.remove_prefix(1);
  unsigned long code = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), code, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || end != name.data() + name.size() || code > 0x10FFFF) return false;
  append_utf8(out, code);
  return true;
}

std::string resolved(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t mark = std::min(text.find('&'), text.size());
    out += text.substr(0, mark);
    text.remove_prefix(mark);
    if (text.empty()) break;
    const std::size_t end = text.find(';');
    if (end != std::string_view::npos && append_reference(out, text.substr(1, end - 1))) {
      text.remove_prefix(end + 1);
    } else {
      out += '&';
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace

std::vector<std::string_view> xml_elements(std::string_view document, std::string_view tag) {
  const std::string open = "<" + std::string(tag), close = "</" + std::string(tag) + ">";
  std::vector<std::string_view> all;
  for (std::size_t at = 0; (at = document.find(open, at)) != std::string_view::npos;) {
    at += open.size();
    if (at >= document.size() ||
        (document[at] != '>' && document[at] != ' ' && document[at] != '/'))
      continue;
    const std::size_t begin = document.find('>', at);
    if (begin == std::string_view::npos) break;
    if (document[begin - 1] == '/') {
      all.emplace_back();
      continue;
    }
    const std::size_t end = document.find(close, begin);
    if (end == std::string_view::npos) break;
    all.push_back(document.substr(begin + 1, end - begin - 1));
    at = end + close.size();
  }
  return all;
}

std::string xml_text(std::string_view document, std::string_view tag) {
  const std::vector<std::string_view> all = xml_elements(document, tag);
  return all.empty() ? std::string() : resolved(all.front());
}

}  // namespace shardwise
