#include "index/origin.h"

#include <vector>

#include "base/error_types.h"
#include "base/file.h"
#include "base/lines.h"
#include "base/text.h"
#include "base/url.h"
#include "index/word_list.h"

namespace shardwise {
namespace {

constexpr std::string_view kOriginFormat = "shardwise fetched index, version 1";
constexpr std::uint64_t kMaxOriginBytes = std::uint64_t{1} << 20;

std::string origin_path(const std::string& folder) { return folder + "/origin.json"; }

}  // namespace

bool is_fetched_folder(std::string_view folder) noexcept {
  return folder.ends_with(kFetchedSuffix);
}

std::optional<Origin> read_origin(const std::string& folder) {
  try {
    const std::vector<std::string> words =
        words_from_json(read_text(origin_path(folder), kMaxOriginBytes, "the origin of the index"));
    if (words.size() != 5 || words[0] != kOriginFormat) return std::nullopt;
    const auto size = parse_int64(words[4]);
    if (!is_remote_url(words[1]) || !size || *size < 0) return std::nullopt;
    return Origin{words[1], words[2], words[3], static_cast<std::uint64_t>(*size)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

void write_origin(const std::string& folder, const Origin& origin) {
  AtomicFile file(origin_path(folder), 0600);
  file.file().write(words_to_json({std::string(kOriginFormat), origin.url, origin.index,
                                   origin.validator, std::to_string(origin.size)}));
  file.commit();
}

std::string url_beside(std::string_view url, std::string_view path) {
  const bool is_object = is_object_url(url);
  if (!is_object) url = url.substr(0, url.find_first_of("?#"));
  const std::size_t host = url.find("://") + 3;
  const std::size_t slash = url.rfind('/');
  std::string beside(url.substr(0, slash < host ? url.size() : slash));
  beside += '/';
  return beside + (is_object ? std::string(path) : percent_encoded(path, "/!$&'()*+,;=:@"));
}

std::string path_to_write(const std::string& path) {
  if (!is_remote_url(path)) return behind_links(path);
  throw Unsupported("an index cannot be written to a URL", in_quotes(redacted_url(path)),
                    "name a local file, then upload both files of the index, the table first");
}

}  // namespace shardwise
