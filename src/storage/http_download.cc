#include "storage/http_download.h"

#include <algorithm>

#include "base/text.h"
#include "storage/fetch_failure.h"

namespace shardwise {
namespace {

/// Number of bytes collected before a write to the sink, because libcurl delivers at most 16 KiB at
/// a time.
constexpr std::size_t kWriteBufferBytes = std::size_t{256} * 1024;

constexpr std::string_view kLyingServer = "check the server and its proxies";

std::string bytes_text(std::uint64_t count) { return human_count(count) + " bytes"; }

/// A server may name two versions of a file of the same size within this time. They then probably
/// come from two nodes of the server, not from a change of the file.
constexpr std::chrono::seconds kSoon{10};
constexpr std::size_t kMaxSeen = 4096;

/// Returns "Content-Encoding: gzip" if the bytes sent differ from the bytes stored; otherwise
/// empty.
std::string encoding_of(const HttpAnswer& answer) {
  if (!answer.content_encoding.empty()) {
    return "Content-Encoding: " + escaped(answer.content_encoding);
  }
  return answer.stored_encoding.empty()
             ? ""
             : "stored with Content-Encoding: " + escaped(answer.stored_encoding) +
                   ", sent without it";
}

/// Returns `reason`. If the response has an encoding, it is appended as a possible cause.
std::string with_encoding(std::string_view reason, const HttpAnswer& answer) {
  const std::string encoding = encoding_of(answer);
  return std::string(reason) + (encoding.empty() ? "" : "; the response has " + encoding);
}

/// True for encodings that are not supported, and that stored files never have.
bool is_unreadable(std::string_view encoding) {
  return encoding == "br" || encoding == "deflate" || encoding == "compress" ||
         encoding == "x-compress";
}

constexpr std::string_view kSendAsStored =
    "configure the server and its proxies to send shards as stored, without Content-Encoding";

}  // namespace

void SeenVersions::take(const Fetcher::Request& request, const Fetcher::Stat& file,
                        const HttpAnswer& answer) {
  const auto now = std::chrono::steady_clock::now();
  bool are_several = false;
  {
    const Lock lock(mutex_);
    if (request.validator.empty() || request.validator == file.validator) {
      if (by_url_.size() >= kMaxSeen) by_url_.clear();
      by_url_[request.url] = {file, now};
      return;
    }
    const auto seen = by_url_.find(request.url);
    if (seen != by_url_.end()) {
      const auto& [before, when] = seen->second;
      are_several = before.validator == request.validator && now - when < kSoon &&
                    (!file.size_bytes || file.size_bytes == before.size_bytes);
    }
  }
  std::string cause;
  if (!encoding_of(answer).empty()) {
    cause = "the response has " + encoding_of(answer) + ": " + std::string(kSendAsStored);
  } else if (are_several) {
    cause =
        "the server sent both versions within seconds, with the same size: if the file was not "
        "replaced, make all nodes of the server send the same ETag or Last-Modified";
  }
  throw_changed_at_source(request.url, request.validator, file.validator, cause);
}

HttpQuery HttpDownload::next_query() {
  const Fetcher::Range& range = request_.range;
  if (position_ > range.begin && validator_.empty()) {
    restart(
        "the transfer was interrupted, and the server sends no ETag or Last-Modified to resume "
        "with");
  }
  has_begun_ = has_progress_ = was_restarted_ = false;
  end_.reset();
  HttpQuery query;
  if (position_ > 0 || range.end) {
    query.range = std::to_string(position_) + "-";
    if (range.end) query.range += std::to_string(*range.end - 1);
    if (position_ > range.begin) query.if_range = validator_;
  }
  // Send If-Match only for a strong ETag; other validators are compared with the response's.
  // If-Match always fails for a weak ETag. If-Unmodified-Since would accept a file that was
  // replaced by an older one.
  if (matches_ && is_strong_etag(request_.validator)) query.if_match = request_.validator;
  return query;
}

void HttpDownload::restart(std::string_view why) {
  if (!start_over())
    throw_fetch_error<BadPart>(request_.url, why, "fetch the file again from the start");
}

bool HttpDownload::start_over() {
  buffer_.clear();
  if (position_ > request_.range.begin && !sink_.restart()) return false;
  position_ = request_.range.begin;
  validator_.clear();
  file_ = {};
  return true;
}

void HttpDownload::begin(const HttpAnswer& answer) {
  has_begun_ = true;
  if (answer.has_bad_length) {
    throw_fetch_error(request_.url,
                      "the Content-Length or Content-Range of the response is malformed",
                      kLyingServer);
  }
  // The response to a request with If-Range may omit the validator.
  const bool is_later = position_ > request_.range.begin;
  const bool is_same = is_later && answer.status == 206 && answer.validator().empty();
  if (is_unreadable(answer.content_encoding)) {
    throw_fetch_error(request_.url, "the response has " + encoding_of(answer), kSendAsStored);
  }
  if (!is_same) versions_.take(request_, answer.file(), answer);
  if (is_later && !is_same && answer.range_validator() != validator_) {
    restart("the file changed while it was fetched");
    if (answer.status == 206) {  // this is part of another version: request the whole file
      was_restarted_ = true;
      return;
    }
  }
  if (answer.status == 206) {
    begin_part(answer);
  } else {
    begin_whole(answer);
  }
  const std::string known = is_same ? file_.validator : answer.validator();
  if (validator_.empty()) validator_ = answer.range_validator();
  file_ = answer.file();
  file_.validator = known;
}

void HttpDownload::require_it_may_end() {
  if (end_ || std::chrono::steady_clock::now() - began_ <= max_without_length_) return;
  is_endless_ = true;
  const auto hours = std::chrono::ceil<std::chrono::hours>(max_without_length_).count();
  throw_fetch_error(request_.url,
                    "the response has no length, and did not end after " + std::to_string(hours) +
                        " h and " + bytes_text(position_),
                    "make the server send Content-Length");
}

void HttpDownload::begin_whole(const HttpAnswer& answer) {
  const Fetcher::Range& range = request_.range;
  began_ = std::chrono::steady_clock::now();
  if (range.begin > 0) {
    throw_fetch_error<BadPart>(
        request_.url,
        with_encoding("the server sent the whole file instead of the requested part", answer),
        "use a shard cache, or a server that supports range requests");
  }
  if (position_ > 0) {
    restart("the transfer was interrupted, and the server cannot send only the rest");
  }
  if (!answer.length && !answer.is_chunked) {
    throw_fetch_error(
        request_.url,
        with_encoding("the response has no length, so truncation could not be detected", answer),
        "make the server send Content-Length");
  }
  if (!answer.is_chunked) end_ = answer.length;
  if (range.end) {
    if (end_ && *end_ < *range.end) {
      throw_fetch_error(request_.url,
                        with_encoding("the file has " + bytes_text(*end_) +
                                          ", but the range ends at byte " + human_count(*range.end),
                                      answer),
                        "index the file again");
    }
    end_ = range.end;
  }
}

void HttpDownload::begin_part(const HttpAnswer& answer) {
  const Fetcher::Range& range = request_.range;
  if (position_ == 0 && !range.end) {
    throw_fetch_error(request_.url, "the server sent a part instead of the whole file",
                      kLyingServer);
  }
  const auto refuse = [&](std::string_view reason, std::string_view remedy = kLyingServer) {
    throw_fetch_error<BadPart>(request_.url, with_encoding(reason, answer), remedy);
  };
  if (!answer.content_encoding.empty() && !answer.length) {
    refuse("the part was encoded while it was sent", kSendAsStored);
  }
  const auto& part = answer.range;
  if (!part || part->begin != position_ || part->begin == part->end) {
    refuse("the server sent another part than requested");
  }
  if (part->total && range.end && *range.end > *part->total) {
    refuse("the file has " + bytes_text(*part->total) + ", but the range ends at byte " +
               human_count(*range.end),
           "index the file again");
  }
  if (file_.size_bytes && part->total && *part->total != *file_.size_bytes) {
    refuse("the server first announced " + bytes_text(*file_.size_bytes) + ", then " +
           bytes_text(*part->total));
  }
  const auto wanted = range.end ? range.end : part->total;
  if (!wanted || part->end != *wanted ||
      (answer.length && *answer.length != part->end - part->begin)) {
    refuse("the server sent a shorter or longer part than requested");
  }
  end_ = part->end;
}

bool HttpDownload::write(std::string_view bytes) {
  if (was_restarted_) return false;
  require_it_may_end();
  const std::uint64_t left = end_ ? *end_ - position_ : bytes.size();
  const bool is_all = bytes.size() > left;
  bytes = bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left)));
  if (!bytes.empty()) has_progress_ = true;
  position_ += bytes.size();
  if (buffer_.empty() && bytes.size() >= kWriteBufferBytes) {
    sink_.write(bytes);
  } else {
    if (buffer_.capacity() == 0) buffer_.reserve(2 * kWriteBufferBytes);
    buffer_ += bytes;
    if (buffer_.size() >= kWriteBufferBytes) flush();
  }
  return !is_all;
}

void HttpDownload::flush() {
  if (!buffer_.empty()) sink_.write(buffer_);
  buffer_.clear();
}

bool HttpDownload::finish(const HttpResult& result) {
  if (result.has_file() && !has_begun_) begin(result.answer);
  flush();
  // If all bytes have arrived, ignore how the connection ended. For example, libcurl may report at
  // that moment that the last bytes came too slowly.
  const bool has_all = has_begun_ && end_ && position_ == *end_;
  if ((!result.has_file() && !has_all) || was_restarted_) return false;
  if (result.has_excess) {
    throw_fetch_error(request_.url, "the server sent more bytes than it announced", kLyingServer);
  }
  const auto& wanted = request_.range.end;
  if (!end_ && wanted && position_ < *wanted) {
    throw_fetch_error(request_.url,
                      "the file has " + bytes_text(position_) + ", but the range ends at byte " +
                          human_count(*wanted),
                      "index the file again");
  }
  return !end_ || position_ == *end_;
}

}  // namespace shardwise
