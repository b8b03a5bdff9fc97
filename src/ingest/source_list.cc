#include "shardwise/ingest/source_list.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <unordered_set>

#include "ingest/shard_url.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"
#include "shardwise/base/url.h"

namespace shardwise {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxShards = 10'000'000;  // a slip like {0..9999999999} is no dataset
constexpr int kMaxListDepth = 8;
constexpr std::string_view kDescriptorSuffix = ".json";

class Expander {
 public:
  explicit Expander(RemoteShards* remote) : remote_(remote) {}

  SourceList run(const std::vector<std::string>& sources) {
    for (const std::string& source : sources) add_source(source, 0);
    std::unordered_set<std::string_view> seen;
    for (const std::string& path : list_.shards) {
      if (!seen.insert(path).second) {
        throw InvalidArgument("a shard is named twice", in_quotes(path),
                              "each of its samples would come twice; name it once");
      }
    }
    return std::move(list_);
  }

 private:
  void add_source(const std::string& source, int depth) {
    if (source.empty()) throw InvalidArgument("an empty source", "", "give the path of a shard");
    if (source == "-") {
      add_list(std::cin, "standard input", depth);
    } else if (source[0] == '@') {
      const std::string path = source.substr(1);
      std::ifstream list(path);
      if (!list || fs::is_directory(path)) {
        throw NotFound("cannot read the list of shards", in_quotes(path), "check the path");
      }
      add_list(list, in_quotes(path), depth);
    } else {
      for (const std::string& pattern : expand_braces(source)) add_pattern(pattern);
    }
  }

  void add_list(std::istream& list, const std::string& name, int depth) {
    if (depth >= kMaxListDepth) {
      throw InvalidArgument("lists of shards are nested too deep", name,
                            "a list may include others, but not itself");
    }
    std::string line;
    while (std::getline(list, line)) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty() && line[0] != '#') add_source(line, depth + 1);
    }
    if (list.bad()) throw Error(ErrorCode::kIo, "cannot read the list of shards", name, "");
  }

  /// A file, a directory or a glob.
  void add_pattern(const std::string& pattern) {
    if (is_command_url(pattern) && remote_ != nullptr && remote_->runs_commands()) {
      add_shard(pattern);
      return;
    }
    require_no_command(pattern, "");
    if (is_remote_url(pattern)) {
      add_path(resolve_reference(pattern, "", ""));
      return;
    }
    std::error_code ignored;
    if (fs::is_directory(pattern, ignored)) {
      add_directory(pattern);
      return;
    }
    if (fs::exists(pattern, ignored) || pattern.find_first_of("*?[") == std::string::npos) {
      add_path(pattern);
      return;
    }
    glob_t found{};
    const int status = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
    std::vector<std::string> matches(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    if (status == GLOB_NOMATCH || (status == 0 && matches.empty())) {
      throw NotFound("no file matches", in_quotes(pattern),
                     "check the pattern; quote it in a shell");
    }
    if (status != 0)
      throw Error(ErrorCode::kIo, "cannot read a directory of", in_quotes(pattern), "");
    std::sort(matches.begin(), matches.end());
    for (const std::string& match : matches) add_path(match);
  }

  void add_directory(const std::string& directory) {
    std::vector<std::string> found;
    try {
      for (const auto& entry : fs::recursive_directory_iterator(directory)) {
        const std::string path = entry.path().string();
        if (path.ends_with(".tar") && entry.is_regular_file()) found.push_back(path);
      }
    } catch (const fs::filesystem_error& e) {
      throw_errno(e.code().value(), "cannot read the directory", directory);
    }
    if (found.empty()) {
      throw NotFound("the directory holds no *.tar", in_quotes(directory), "check the path");
    }
    std::sort(found.begin(), found.end());
    for (const std::string& path : found) add_path(path);
  }

  void add_path(const std::string& path) {
    if (path.substr(0, is_remote_url(path) ? path.find_first_of("?#") : path.size())
            .ends_with(kDescriptorSuffix)) {
      add_descriptor(path);
    } else {
      add_shard(path);
    }
  }

  void add_descriptor(const std::string& path) {
    list_.descriptors.push_back(read_wids_descriptor(path, remote_));
    for (const WidsDataset& set : list_.descriptors.back().datasets) {
      for (const WidsShard& shard : set.shards) add_shard(shard.path);
    }
  }

  void add_shard(const std::string& path) {
    if (list_.shards.size() >= kMaxShards) {
      throw InvalidArgument("more than 10 million shards", in_quotes(path), "check the pattern");
    }
    list_.shards.push_back(path);
  }

  /// `a{1..3}b{x,y}` to a1bx, a1by, a2bx, ...; a brace with neither `..` nor `,` stands for itself.
  static std::vector<std::string> expand_braces(const std::string& pattern) {
    std::size_t open = pattern.find('{');
    while (open != std::string::npos) {
      const std::size_t close = pattern.find('}', open);
      if (close == std::string::npos) {
        throw InvalidArgument("a brace is not closed", in_quotes(pattern),
                              "write {000000..000146}");
      }
      const std::size_t inner_open = pattern.rfind('{', close);
      const std::string body = pattern.substr(inner_open + 1, close - inner_open - 1);
      if (const auto choices = brace_choices(body, pattern)) {
        std::vector<std::string> all;
        for (const std::string& choice : *choices) {
          const auto rest =
              expand_braces(pattern.substr(0, inner_open) + choice + pattern.substr(close + 1));
          if (all.size() + rest.size() > kMaxShards) {
            throw InvalidArgument("more than 10 million shards", in_quotes(pattern),
                                  "check the range");
          }
          all.insert(all.end(), rest.begin(), rest.end());
        }
        return all;
      }
      open = pattern.find('{', close);
    }
    return {pattern};
  }

  static std::optional<std::vector<std::string>> brace_choices(const std::string& body,
                                                               const std::string& pattern) {
    if (const std::size_t dots = body.find(".."); dots != std::string::npos) {
      const std::string first = body.substr(0, dots);
      const std::string last = body.substr(dots + 2);
      const auto is_number = [](const std::string& s) {
        return !s.empty() && s.size() <= 18 &&
               s.find_first_not_of("0123456789") == std::string::npos;
      };
      if (!is_number(first) || !is_number(last)) {
        throw InvalidArgument("a range that is not of two numbers", in_quotes(pattern),
                              "write {000000..000146}");
      }
      const std::int64_t from = *parse_int64(first);
      const std::int64_t to = *parse_int64(last);
      if (from > to || static_cast<std::uint64_t>(to - from) >= kMaxShards) {
        throw InvalidArgument("a range that is empty or above 10 million", in_quotes(pattern),
                              "write {000000..000146}, smaller number first");
      }
      const std::size_t width =
          first[0] == '0' || last[0] == '0' ? std::max(first.size(), last.size()) : 0;
      std::vector<std::string> choices;
      for (std::int64_t i = from; i <= to; ++i) {
        std::string number = std::to_string(i);
        if (number.size() < width) number.insert(0, width - number.size(), '0');
        choices.push_back(std::move(number));
      }
      return choices;
    }
    if (body.find(',') == std::string::npos) return std::nullopt;
    std::vector<std::string> choices;
    std::size_t begin = 0;
    for (;;) {
      const std::size_t comma = body.find(',', begin);
      choices.push_back(body.substr(begin, comma == std::string::npos ? comma : comma - begin));
      if (comma == std::string::npos) return choices;
      begin = comma + 1;
    }
  }

  RemoteShards* const remote_;
  SourceList list_;
};

}  // namespace

SourceList read_sources(const std::vector<std::string>& sources, RemoteShards* remote) {
  return Expander(remote).run(sources);
}

std::vector<std::string> expand_sources(const std::vector<std::string>& sources,
                                        RemoteShards* remote) {
  return read_sources(sources, remote).shards;
}

}  // namespace shardwise
