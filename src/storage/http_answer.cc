#include "storage/http_answer.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <limits>
#include <utility>

#include "base/ascii.h"
#include "base/assert.h"

namespace shardwise {
namespace {

/// Parses the whole of `text` as a number from 0 to the maximum of a signed 64-bit integer.
std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (error != std::errc() || end != text.data() + text.size() || value >= kMax) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::chrono::seconds> parse_retry_after(const std::string& text) {
  if (const auto seconds = parse_number(text)) return std::chrono::seconds(*seconds);
  const std::time_t when = curl_getdate(text.c_str(), nullptr);
  if (when < 0) return std::nullopt;
  return std::chrono::seconds(std::max<std::time_t>(when - std::time(nullptr), 0));
}

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view text) {
  text = trimmed(text);
  if (!to_lower(text.substr(0, 6)).starts_with("bytes ")) return std::nullopt;
  text = trimmed(text.substr(6));
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view span = trimmed(text.substr(0, slash));
  const std::string_view total = trimmed(text.substr(slash + 1));
  ContentRange range;
  if (total != "*" && !(range.total = parse_number(total))) return std::nullopt;
  if (span == "*") return range;
  const std::size_t dash = span.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_number(span.substr(0, dash)), last = parse_number(span.substr(dash + 1));
  if (!first || !last || *first > *last || (range.total && *last >= *range.total)) {
    return std::nullopt;
  }
  range.begin = *first;
  range.end = *last + 1;
  return range;
}

bool is_strong_etag(std::string_view text) {
  if (text.size() < 2 || !text.starts_with('"') || !text.ends_with('"')) return false;
  return std::ranges::all_of(text.substr(1, text.size() - 2), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte != 0x7F && c != '"';
  });
}

std::string parse_next_link(std::string_view text) {
  while (!text.empty()) {
    const std::size_t open = text.find('<'), close = text.find('>');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) break;
    const std::size_t end = std::min(text.find('<', close), text.size());
    const std::string parameters = to_lower(text.substr(close, end - close));
    if (parameters.find("rel=\"next\"") != std::string::npos ||
        parameters.find("rel=next") != std::string::npos) {
      return std::string(text.substr(open + 1, close - open - 1));
    }
    text.remove_prefix(end);
  }
  return {};
}

std::string HttpAnswer::validator() const {
  if (!version.empty()) return version;
  if (!etag.empty()) return etag;
  if (weak_etag.empty() || last_modified.empty()) return weak_etag + last_modified;
  return weak_etag + ", " + last_modified;
}

void HttpAnswer::take_line(std::string_view line) {
  if (line.starts_with("HTTP/")) {
    HttpAnswer next;
    next.version = std::move(version);
    *this = std::move(next);
    const std::size_t space = line.find(' ');
    if (space != std::string_view::npos) {
      std::from_chars(line.data() + space + 1, line.data() + line.size(), status);
    }
    return;
  }
  line = trimmed(line);
  if (line.empty()) {
    is_complete = true;
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = to_lower(trimmed(line.substr(0, colon)));
  const std::string value(trimmed(line.substr(colon + 1)));
  if (name == "content-length") {
    const auto before = length;
    length = parse_number(value);
    if (!length || (before && before != length)) has_bad_length = true;
  } else if (name == "content-range") {
    range = parse_content_range(value);
    if (!range) has_bad_length = true;
  } else if (name == "transfer-encoding") {
    is_chunked = to_lower(value).ends_with("chunked");
  } else if (name == "accept-ranges") {
    accepts_ranges = to_lower(value) == "bytes";
  } else if (name == "etag") {
    (is_strong_etag(value) ? etag : weak_etag) = value;
  } else if (name == "last-modified") {
    last_modified = value;
  } else if (name == "retry-after") {
    retry_after = parse_retry_after(value);
  } else if (name == "x-amz-bucket-region") {
    bucket_region = value;
  } else if (name == "x-linked-etag") {
    if (is_strong_etag(value)) linked_etag = value;
  } else if (name == "x-xet-hash") {
    const std::string quoted = '"' + value + '"';
    if (linked_etag.empty() && is_strong_etag(quoted)) linked_etag = quoted;
  } else if (name == "content-encoding") {
    content_encoding = to_lower(value);
    if (content_encoding == "identity") content_encoding.clear();
  } else if (name == "x-goog-stored-content-encoding") {
    stored_encoding = to_lower(value);
    if (stored_encoding == "identity") stored_encoding.clear();
  } else if (name == "date") {
    const std::time_t when = curl_getdate(value.c_str(), nullptr);
    if (when >= 0) date = when;
  } else if (name == "link") {
    next_page = parse_next_link(value);
  }
}

Fetcher::Stat HttpAnswer::file() const {
  SHARDWISE_ASSERT(status == 200 || status == 206);
  Fetcher::Stat file{.validator = validator(), .has_ranges = accepts_ranges || status == 206};
  if (status == 206) {
    if (range) file.size_bytes = range->total;
  } else if (!is_chunked) {
    file.size_bytes = length;
  }
  return file;
}

}  // namespace shardwise
