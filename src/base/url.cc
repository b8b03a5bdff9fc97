#include "base/url.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

constexpr char kHexDigits[] = "0123456789ABCDEF";

constexpr bool is_unreserved(char c) {
  return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
}
constexpr bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7F;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Decodes the %XX at the front of `text`. Returns nothing if `text` does not begin with %XX.
std::optional<char> encoded_byte(std::string_view text) {
  if (text.size() < 3 || text[0] != '%') return std::nullopt;
  const int high = hex_value(text[1]), low = hex_value(text[2]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

void append_encoded(std::string& out, char c) {
  const auto byte = static_cast<unsigned char>(c);
  out += '%';
  out += kHexDigits[byte >> 4];
  out += kHexDigits[byte & 15];
}

/// Normalises a path or query.
std::string normalised(std::string_view text) {
  constexpr std::string_view kReserved = ":/?#[]@!$&'()*+,;=%";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const auto byte = encoded_byte(text.substr(i))) {
      if (is_unreserved(*byte)) {
        out += *byte;
      } else {
        append_encoded(out, *byte);
      }
      i += 2;
    } else if (is_unreserved(text[i]) || kReserved.find(text[i]) != std::string_view::npos) {
      out += text[i];
    } else {
      append_encoded(out, text[i]);
    }
  }
  return out;
}

/// Resolves "." and ".." in an absolute path.
std::string without_dot_segments(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/', 1), path.size());
    const std::string_view segment = path.substr(0, end);
    path.remove_prefix(end);
    if (segment == "/." || segment == "/..") {
      if (segment == "/..") out.resize(out.empty() ? 0 : out.rfind('/'));
      if (path.empty()) out += '/';
    } else {
      out += segment;
    }
  }
  return out.empty() ? "/" : out;
}

[[noreturn]] void refuse(std::string_view url, std::string_view why) {
  throw InvalidArgument("the URL is malformed",
                        in_quotes(redacted_url(url)) + " (" + std::string(why) + ")",
                        "write scheme://host/path, with %XX for special characters");
}

bool is_host(std::string_view host) {
  if (host.starts_with('[')) {
    return host.size() > 3 && host.ends_with(']') &&
           host.substr(1, host.size() - 2).find_first_not_of("0123456789abcdefABCDEF:.") ==
               std::string_view::npos;
  }
  return !host.empty() && std::ranges::all_of(host, [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
  });
}

/// The parts of a URL as written.
struct RawUrl {
  std::string_view userinfo, host, port, path, query;
  bool has_query = false;
};

/// Splits a text that begins like a URL. Host and port may be missing, so that secrets are also
/// found in a pattern of URLs or a malformed URL.
std::optional<RawUrl> split_loosely(std::string_view url) {
  const std::size_t start = scheme_of(url).size();
  if (start == 0 || !url.substr(start).starts_with("://")) return std::nullopt;
  url.remove_prefix(start + 3);
  url = url.substr(0, url.find('#'));
  RawUrl raw;
  if (const std::size_t mark = url.find('?'); mark != std::string_view::npos) {
    raw.has_query = true;
    raw.query = url.substr(mark + 1);
    url = url.substr(0, mark);
  }
  const std::size_t slash = std::min(url.find('/'), url.size());
  std::string_view authority = url.substr(0, slash);
  raw.path = url.substr(slash);
  if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) {
    raw.userinfo = authority.substr(0, at);
    authority.remove_prefix(at + 1);
  }
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    raw.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  raw.host = authority;
  return raw;
}

std::optional<RawUrl> split_url(std::string_view url) {
  const auto raw = split_loosely(url);
  const bool is_valid = raw && std::ranges::all_of(raw->port, is_digit) && is_host(raw->host);
  return is_valid ? raw : std::nullopt;
}

/// Splits `url` at its question mark.
std::pair<std::string_view, std::string_view> cut_at_query(std::string_view url) {
  const std::size_t mark = std::min(url.find('?'), url.size());
  return {url.substr(0, mark), url.substr(std::min(mark + 1, url.size()))};
}

std::vector<std::string_view> query_parts(std::string_view query) {
  std::vector<std::string_view> parts;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    parts.push_back(query.substr(0, end));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return parts;
}

/// Returns the name of a query's parameter "name=value", decoded and in lower case.
std::string name_of(std::string_view part) {
  const std::string_view name = part.substr(0, part.find('='));
  return to_lower(percent_decoded(name).value_or(std::string(name)));
}

/// A scheme for signed URLs. Names of parameters are in lower case, separated by spaces.
struct SigningScheme {
  std::string_view marks;  ///< a URL with all of these parameters is signed
  std::string_view parts;  ///< all parameters of the signature; "x-*" matches all that begin with
                           ///< x-
};

/// docs/formats/cache-directory.md documents these schemes and their services.
constexpr SigningScheme kSigningSchemes[] = {
    {"x-amz-signature", "x-amz-*"},
    {"x-goog-signature", "x-goog-*"},
    {"signature awsaccesskeyid", "signature awsaccesskeyid expires policy x-amz-security-token"},
    {"signature googleaccessid", "signature googleaccessid expires policy x-amz-security-token"},
    {"signature key-pair-id", "signature key-pair-id expires policy x-amz-security-token"},
    {"signature keyname expires", "signature keyname expires urlprefix"},
    {"signature ossaccesskeyid", "signature ossaccesskeyid expires security-token"},
    // The list is not x-oss-*, because e.g. x-oss-process selects other content.
    {"x-oss-signature",
     "x-oss-signature x-oss-signature-version x-oss-credential x-oss-access-key-id x-oss-date "
     "x-oss-expires x-oss-additional-headers x-oss-security-token"},
    {"q-signature q-ak",
     "q-signature q-ak q-sign-algorithm q-sign-time q-key-time q-header-list q-url-param-list "
     "x-cos-security-token"},
    {"sig sv",
     "sig se si sip ske skoid sks skt sktid skv sp spr sr srt ss st sv sdd saoid suoid scid"},
};

/// True if `holds` returns true for a name in `list`.
template <class Holds>
bool any_name(std::string_view list, const Holds& holds) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    if (holds(list.substr(0, end))) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

/// True if the parameter `name` belongs to a signature. `names` are the names of all parameters of
/// the URL.
bool is_of_a_signature(std::string_view name, const std::vector<std::string>& names) {
  const auto is_missing = [&](std::string_view mark) {
    return std::ranges::find(names, mark) == names.end();
  };
  const auto is_name = [&](std::string_view part) {
    return part.ends_with('*') ? name.starts_with(part.substr(0, part.size() - 1)) : name == part;
  };
  return std::ranges::any_of(kSigningSchemes, [&](const SigningScheme& scheme) {
    return any_name(scheme.parts, is_name) && !any_name(scheme.marks, is_missing);
  });
}

}  // namespace

std::string scheme_of(std::string_view url) {
  std::string scheme;
  for (const char c : url.substr(0, url.find(':'))) {
    const bool other = is_digit(c) || c == '+' || c == '-' || c == '.';
    if (!is_letter(c) && (!other || scheme.empty())) return {};
    scheme += c;
  }
  return scheme.size() < url.size() ? to_lower(scheme) : std::string();
}

bool is_remote_url(std::string_view url) {
  const std::string scheme = scheme_of(url);
  return !scheme.empty() && scheme != "file" && url.substr(scheme.size()).starts_with("://");
}

bool is_command_url(std::string_view url) {
  return url.starts_with('|') || scheme_of(url) == "pipe";
}

std::string Url::origin() const {
  return scheme + "://" + host + (port ? ":" + std::to_string(*port) : "");
}

Url parse_url(std::string_view url) {
  if (std::ranges::any_of(url, is_control)) refuse(url, "it has a control character");
  const auto raw = split_url(url);
  if (!raw) refuse(url, "it has no scheme or no valid host");
  Url parsed{.scheme = scheme_of(url), .host = to_lower(raw->host)};
  parsed.userinfo = raw->userinfo;
  if (!raw->port.empty()) {
    std::uint16_t port = 0;
    const char* const end = raw->port.data() + raw->port.size();
    const auto [last, error] = std::from_chars(raw->port.data(), end, port);
    if (error != std::errc() || last != end || port == 0) refuse(url, "its port is not valid");
    const bool usual =
        (parsed.scheme == "http" && port == 80) || (parsed.scheme == "https" && port == 443);
    if (!usual) parsed.port = port;
  }
  if (!raw->path.empty()) parsed.path = without_dot_segments(normalised(raw->path));
  if (raw->has_query) parsed.query = normalised(raw->query);
  return parsed;
}

std::string canonical_url(std::string_view url) {
  if (is_object_url(url)) {
    if (std::ranges::any_of(url, is_control)) refuse(url, "it has a control character");
    return scheme_of(url) + std::string(url.substr(url.find(':')));
  }
  const Url parsed = parse_url(url);
  return parsed.origin() + parsed.path + (parsed.query ? "?" + *parsed.query : "");
}

std::string redacted_url(std::string_view url) {
  if (is_command_url(url)) {
    const std::size_t start = url.starts_with('|') ? 1 : 5;
    const std::size_t word = std::min(url.find_first_not_of(' ', start), url.size());
    const std::size_t end = std::min(url.find_first_of(" \t\n", word), url.size());
    // A word with a quote may continue after the blank, and a word with '=' may contain a secret.
    std::string_view program = url.substr(word, end - word);
    if (program.find_first_of("'\"\\=") != std::string_view::npos) program = {};
    return "pipe:" + std::string(program) + (end < url.size() || program.empty() ? " ***" : "");
  }
  const std::string scheme = scheme_of(url);
  if (!is_remote_url(url)) {
    const bool meant = scheme == "http" || scheme == "https" || is_object_url(url);
    return meant ? scheme + ":***" : std::string(url);
  }
  const auto raw = split_url(url);
  if (!raw) return scheme + "://***";
  std::string out = scheme + "://" + std::string(raw->host);
  if (!raw->port.empty()) (out += ':') += raw->port;
  out += raw->path;
  if (!raw->has_query) return out;
  out += '?';
  for (std::string_view rest = raw->query; !rest.empty();) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::size_t equals = rest.substr(0, end).find('=');
    // A parameter without a name is a value.
    if (equals != std::string_view::npos) out += rest.substr(0, equals + 1);
    out += "***";
    if (end < rest.size()) out += '&';
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

bool is_object_url(std::string_view url) {
  const std::string scheme = scheme_of(url);
  return scheme == "s3" || scheme == "gs" || scheme == "az" || scheme == "hf";
}

namespace {

/// Implements rebased_url() without normalising the URLs.
std::optional<std::string> rebased_as_written(std::string_view url, std::string_view from,
                                              std::string_view to) {
  if (!url.starts_with(from)) return std::nullopt;
  const std::string_view rest = url.substr(from.size());
  if (!rest.empty() && !from.ends_with('/') && rest[0] != '/' && rest[0] != '?') {
    return std::nullopt;
  }
  auto [below, own_query] =
      is_object_url(url) ? std::pair(rest, std::string_view()) : cut_at_query(rest);
  const auto [base, query] = is_object_url(to) ? std::pair(to, std::string_view())
                                               : cut_at_query(to.substr(0, to.find('#')));

  std::string moved(base);
  if (from.ends_with('/') && !moved.ends_with('/')) moved += '/';
  if (moved.ends_with('/') && below.starts_with('/')) below.remove_prefix(1);
  if (is_object_url(url) && !is_object_url(to)) {
    moved += percent_encoded(below, "/");
  } else if (!is_object_url(url) && is_object_url(to)) {
    moved += percent_decoded(below).value_or(std::string(below));
  } else {
    moved += below;
  }
  for (const std::string_view part : {own_query, query}) {
    if (is_object_url(to) || part.empty()) continue;
    moved += moved.find('?') == std::string::npos ? '?' : '&';
    moved += part;
  }
  return moved;
}

}  // namespace

std::optional<std::string> rebased_url(std::string_view url, std::string_view from,
                                       std::string_view to) {
  if (auto moved = rebased_as_written(url, from, to)) return moved;
  if (!is_remote_url(url) || !is_remote_url(from)) return std::nullopt;
  try {
    return rebased_as_written(canonical_url(url), unsigned_url(canonical_url(from)), to);
  } catch (const InvalidArgument&) {  // a malformed URL is not another spelling of `from`
    return std::nullopt;
  }
}

std::string unsigned_url(std::string_view url) {
  const auto raw = is_remote_url(url) && !is_object_url(url) ? split_loosely(url) : std::nullopt;
  if (!raw) return std::string(url);
  std::string plain = scheme_of(url) + "://" + std::string(raw->host);
  if (!raw->port.empty()) (plain += ':') += raw->port;
  plain += raw->path;
  if (!raw->has_query) return plain;
  const std::vector<std::string_view> parts = query_parts(raw->query);
  std::vector<std::string> names;
  std::ranges::transform(parts, std::back_inserter(names), name_of);
  std::vector<std::string_view> kept;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!is_of_a_signature(names[i], names)) kept.push_back(parts[i]);
  }
  if (kept.size() == parts.size()) return plain + "?" + std::string(raw->query);
  for (std::size_t i = 0; i < kept.size(); ++i) (plain += i == 0 ? '?' : '&') += kept[i];
  return plain;
}

std::string without_secrets(const std::string& path_or_url) {
  return is_fetched_url(path_or_url) ? redacted_url(path_or_url) : path_or_url;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto byte = encoded_byte(text.substr(i));
    if (!byte) return std::nullopt;
    out += *byte;
    i += 2;
  }
  return out;
}

std::string percent_encoded(std::string_view text, std::string_view also) {
  std::string out;
  for (const char c : text) {
    if (is_unreserved(c) || also.find(c) != std::string_view::npos) {
      out += c;
    } else {
      append_encoded(out, c);
    }
  }
  return out;
}

}  // namespace shardwise::detail
