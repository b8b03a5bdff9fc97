#include "storage/file_fetcher.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/backoff.h"
#include "storage/fetch_failure.h"

namespace shardwise {
namespace {

constexpr std::size_t kFileBufferBytes = std::size_t{256} << 10;

std::string path_of(const std::string& url) {
  std::string_view rest = std::string_view(url).substr(5);
  if (rest.starts_with("//localhost/")) {
    rest.remove_prefix(11);
  } else if (rest.starts_with("///")) {
    rest.remove_prefix(2);
  }
  const auto path = percent_decoded(rest);
  if (!path || !path->starts_with('/') || path->starts_with("//") ||
      path->find('\0') != std::string::npos || rest.find_first_of("?#") != std::string_view::npos) {
    throw InvalidArgument("the file: URL is malformed", in_quotes(url),
                          "write file:///folder/x.tar, with %25, %3F and %23 for %, ? and #");
  }
  return *path;
}

Fetcher::Stat describe(const FileIdentity& identity) {
  std::string validator;
  for (const std::uint64_t part : {identity.device, identity.inode, identity.size_bytes,
                                   static_cast<std::uint64_t>(identity.mtime_ns)}) {
    if (!validator.empty()) validator += '-';
    validator += std::to_string(part);
  }
  return {.size_bytes = identity.size_bytes, .validator = validator, .has_ranges = true};
}

class FileFetcher : public Fetcher {
 public:
  Fetcher::Stat stat(const Fetcher::Request& request) override {
    check_cancelled(request);
    return checked(describe(file_identity(path_of(request.url))), request);
  }

  Fetcher::Stat fetch(const Fetcher::Request& request, Fetcher::Sink& sink) override {
    const File file = File::open_read(path_of(request.url));
    Fetcher::Stat source = checked(describe(file_identity(file.fd(), file.path())), request);
    const std::uint64_t end = request.range.end.value_or(*source.size_bytes);
    if (end > *source.size_bytes || request.range.begin > end) {
      throw_fetch_error(request.url,
                        "the file has " + human_count(*source.size_bytes) +
                            " bytes, but the request is for bytes " +
                            human_count(request.range.begin) + " to " + human_count(end),
                        "index the file again");
    }
    std::vector<char> buffer(kFileBufferBytes);
    for (std::uint64_t offset = request.range.begin; offset < end;) {
      check_cancelled(request);
      const auto wanted =
          static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), end - offset));
      const std::size_t size = file.read_at(offset, buffer.data(), wanted);
      if (size == 0)
        throw_fetch_error(request.url, "the file was truncated during the read",
                          "fetch the file again");
      // A write changes the file's time before its bytes. If the time is unchanged, the bytes were
      // read before any write.
      const Fetcher::Stat now = describe(file_identity(file.fd(), file.path()));
      if (now.validator != source.validator) {
        throw_changed_at_source(request.url, source.validator, now.validator);
      }
      sink.write({buffer.data(), size});
      offset += size;
    }
    return source;
  }

 private:
  static Fetcher::Stat checked(Fetcher::Stat file, const Fetcher::Request& request) {
    if (!request.validator.empty() && request.validator != file.validator) {
      throw_changed_at_source(request.url, request.validator, file.validator);
    }
    return file;
  }
};

}  // namespace

std::unique_ptr<Fetcher> make_file_fetcher() { return std::make_unique<FileFetcher>(); }

}  // namespace shardwise
