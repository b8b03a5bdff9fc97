#include "shardwise/ingest/source_list.h"

#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/ascii.h"
#include "base/cancel_scope.h"
#include "base/counted.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/expanding_reader.h"
#include "base/lines.h"
#include "base/normal_path.h"
#include "base/text.h"
#include "base/url.h"
#include "ingest/distinct_shards.h"
#include "ingest/remote_shards.h"
#include "ingest/shard_url.h"
#include "ingest/source_names.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxShards = 10'000'000;  // a range with more names is a typing error
constexpr std::uint64_t kMaxNameBytes = std::uint64_t{2} << 30;  // of one pattern
constexpr int kMaxListDepth = 8;

/// True for a name that a shell's * does not match. Editors, notebooks, macOS ("._0.tar") and
/// snapshots create such files and folders next to the shards.
bool is_hidden(std::string_view name) { return name.starts_with('.'); }

/// True if any component of `rest` is hidden.
/// @param rest  path of a file, relative to a folder.
bool is_hidden_below(std::string_view rest) {
  return is_hidden(rest) || rest.find("/.") != std::string_view::npos;
}

/// Lists all files below a directory except hidden ones, sorted bytewise. Symbolic links to folders
/// are followed. Each folder is entered once, preferably by a path without links.
struct Folders {
  explicit Folders(const std::string& directory) {
    enter(directory);
    // The order of links_ makes the result independent of the order of entries on the disk.
    while (!links_.empty()) enter(links_.extract(links_.begin()).value());
    std::sort(shards.begin(), shards.end());
    std::sort(others.begin(), others.end());
  }

  std::vector<std::string> shards;
  std::vector<std::string> others;

 private:
  void enter(const std::string& directory) try {
    struct stat status {};
    if (::stat(directory.c_str(), &status) != 0) {
      throw_errno(errno, "cannot read the directory", directory);
    }
    if (!entered_.emplace(status.st_dev, status.st_ino).second) return;
    for (const auto& entry : fs::directory_iterator(directory)) {
      detail::CancelScope::throw_if_cancelled();
      if (is_hidden(entry.path().filename().native())) continue;
      std::error_code leads_nowhere;
      const std::string path = entry.path().string();
      if (!entry.is_directory(leads_nowhere)) {
        (is_named_like_a_shard(path) ? shards : others).push_back(path);
      } else if (entry.is_symlink()) {
        links_.insert(path);
      } else {
        enter(path);
      }
    }
  } catch (const fs::filesystem_error& e) {
    throw_errno(e.code().value(), "cannot read the directory", directory);
  }

  std::set<std::pair<dev_t, ino_t>> entered_;
  std::set<std::string> links_;  // links to folders that have not been followed yet
};

/// Maximum size of a list in bytes: 65,536 paths of 4,096 bytes.
constexpr std::uint64_t kMaxListBytes = std::uint64_t{256} << 20;

/// A brace in a pattern.
struct Brace {
  std::size_t open;  // offsets of { and }
  std::size_t close = 0;
  std::vector<std::size_t> commas = {};  // that are in no brace within this one
  bool has_brace = false;
};

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 18 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// True if the brace is expanded. Otherwise it is literal text, e.g. in a command, where braces may
/// be part of a program's text: awk '{print $1, $2}'.
bool is_expanded(const Brace& brace, std::string_view pattern, bool is_command) {
  const std::string_view body = pattern.substr(brace.open + 1, brace.close - brace.open - 1);
  if (!brace.commas.empty()) {
    return !is_command || body.find_first_of(" $'\"") == std::string_view::npos;
  }
  if (brace.has_brace) return false;
  const std::size_t dots = body.find("..");
  if (dots == std::string_view::npos) return false;
  return !is_command || (is_number(body.substr(0, dots)) && is_number(body.substr(dots + 2)));
}

/// Returns the first brace that is expanded. Of nested braces that is the outer one, as in a shell.
std::optional<Brace> find_brace(const std::string& pattern) {
  const bool is_command = is_command_url(pattern);
  std::optional<Brace> first;
  std::vector<Brace> open;
  for (std::size_t i = pattern.find('{'); i < pattern.size(); ++i) {
    if (pattern[i] == '{') {
      if (!open.empty()) open.back().has_brace = true;
      open.push_back({.open = i});
    } else if (pattern[i] == ',' && !open.empty()) {
      open.back().commas.push_back(i);
    } else if (pattern[i] == '}' && !open.empty()) {
      Brace brace = std::move(open.back());
      open.pop_back();
      brace.close = i;
      if ((!first || brace.open < first->open) && is_expanded(brace, pattern, is_command)) {
        first = std::move(brace);
      }
      if (open.empty() && first) return first;
    }
  }
  if (!open.empty() && !is_command) {
    throw InvalidArgument("a brace is not closed", in_quotes(without_urls(pattern)),
                          "write {000000..000146}");
  }
  return first;
}

/// Returns the alternatives of a brace that is expanded.
std::vector<std::string> choices_of(const Brace& brace, const std::string& pattern) {
  std::vector<std::string> choices;
  std::size_t begin = brace.open + 1;
  if (!brace.commas.empty()) {
    for (const std::size_t comma : brace.commas) {
      choices.push_back(pattern.substr(begin, comma - begin));
      begin = comma + 1;
    }
    choices.push_back(pattern.substr(begin, brace.close - begin));
    return choices;
  }
  const std::size_t dots = pattern.find("..", begin);
  const std::string first = pattern.substr(begin, dots - begin);
  const std::string last = pattern.substr(dots + 2, brace.close - dots - 2);
  if (!is_number(first) || !is_number(last)) {
    throw InvalidArgument("the range is malformed", in_quotes(without_urls(pattern)),
                          "write {000000..000146}");
  }
  const std::int64_t from = *parse_int64(first);
  const std::int64_t to = *parse_int64(last);
  if (from > to || static_cast<std::uint64_t>(to - from) >= kMaxShards) {
    throw InvalidArgument("the range is empty, or has more than 10 million numbers",
                          in_quotes(without_urls(pattern)),
                          "write {000000..000146}, smaller number first");
  }
  const auto is_padded = [](const std::string& s) { return s.size() > 1 && s[0] == '0'; };
  const std::size_t width =
      is_padded(first) || is_padded(last) ? std::max(first.size(), last.size()) : 0;
  choices.reserve(static_cast<std::size_t>(to - from) + 1);
  for (std::int64_t i = from; i <= to; ++i) {
    std::string number = std::to_string(i);
    if (number.size() < width) number.insert(0, width - number.size(), '0');
    choices.push_back(std::move(number));
  }
  return choices;
}

/// Appends the names of a pattern.
/// @param whole      the user's pattern, of which this pattern is a part.
/// @param num_names  estimated number of all names if this pattern is one of them.
void expand(std::string pattern, const std::string& whole, std::uint64_t num_names,
            std::vector<std::string>& names) {
  while (const auto brace = find_brace(pattern)) {
    const std::vector<std::string> choices = choices_of(*brace, pattern);
    // Estimate before names are made: a list from others may have a pattern of any number of names.
    if (choices.size() > kMaxShards / num_names) {
      throw InvalidArgument("there are more than 10 million shards", in_quotes(without_urls(whole)),
                            "choose a smaller range");
    }
    const auto with = [&](const std::string& choice) {
      return pattern.substr(0, brace->open) + choice + pattern.substr(brace->close + 1);
    };
    if (choices.size() > 1) {
      for (const std::string& choice : choices) {
        expand(with(choice), whole, num_names * choices.size(), names);
      }
      return;
    }
    pattern = with(choices.front());
  }
  if (pattern.size() > kMaxNameBytes / num_names) {
    throw InvalidArgument("the names of the shards need more than 2 GiB",
                          in_quotes(without_urls(whole)), "choose a smaller range");
  }
  names.push_back(std::move(pattern));
}

/// Rejects "a.tar::b.tar", WebDataset's syntax for joined sources, unless a file has that name.
/// Colons in an IPv6 address ([::1]) of a URL are allowed.
void require_not_joined(const std::string& source) {
  const std::size_t joiner = source.find("::");
  if (joiner == std::string::npos || is_command_url(source)) return;
  std::error_code failed;
  const std::string first = source.substr(0, joiner);
  const bool is_source = is_named_like_a_shard(first) || is_named_like_a_descriptor(first) ||
                         first.ends_with('}') || fs::exists(first, failed);
  if (!is_source || fs::exists(source, failed)) return;
  throw InvalidArgument("sources are joined by ::, as webdataset joins them",
                        in_quotes(without_urls(source)), "give each SOURCE separately");
}

class Expander {
 public:
  explicit Expander(const RemoteAccess& remote) : remote_(remote) {}

  SourceList run(const std::vector<std::string>& sources) {
    for (const std::string& source : sources) add_source(source, 0);
    if (list_.shards.empty() && !sources.empty()) {
      throw InvalidArgument("the list names no shard", in_quotes(without_urls(sources.front())),
                            "write a shard on each line");
    }
    if (!may_name_others_) list_.sources.clear();
    std::unordered_set<std::string_view> seen;
    for (const std::string& path : list_.shards) {
      if (!seen.insert(path).second) refuse_shard_named_twice(path, path);
    }
    return std::move(list_);
  }

 private:
  void add_source(const std::string& named, int depth) {
    const std::string source = at_home(named);
    if (source.empty()) throw InvalidArgument("a source is empty", "", "give the path of a shard");
    static_cast<void>(c_path(source));
    if (source == "-") {
      add_list("", depth);
    } else if (source == "@") {
      throw InvalidArgument("a list of shards has no name", "'@'", "write @list.txt");
    } else if (source[0] == '@') {
      add_list(at_home(source.substr(1)), depth);
    } else {
      require_not_joined(source);
      list_.sources.push_back(source);
      for (const std::string& pattern : expand_braces(source)) add_pattern(at_home(pattern));
    }
  }

  /// @param path  path of the list; empty means standard input.
  void add_list(const std::string& path, int depth) {
    const std::string name = name_of_text(path);
    if (depth >= kMaxListDepth) {
      throw InvalidArgument("lists of shards are nested too deep", name,
                            "check that no list includes itself");
    }
    constexpr std::string_view kWhat = "the list of shards";
    const std::string text = read_text(path, kMaxListBytes, kWhat);
    for (const std::string_view line : lines_of(text, kWhat, name)) {
      if (!line.empty() && line[0] != '#') add_source(std::string(line), depth + 1);
    }
  }

  /// Adds a file, a directory, a glob or a URL.
  void add_pattern(const std::string& pattern) {
    if (is_command_url(pattern) && remote_ != nullptr && remote_->runs_commands()) {
      add_shard(pattern);
      return;
    }
    require_no_command(pattern, "");
    if (is_remote_url(pattern)) {
      add_remote(pattern);
      return;
    }
    std::error_code ignored;
    if (fs::is_directory(pattern, ignored)) {
      add_directory(pattern);
      return;
    }
    if (fs::exists(pattern, ignored) || pattern.find_first_of(kGlobCharacters) == pattern.npos) {
      add_path(pattern);
      return;
    }
    glob_t found{};
    const int status = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
    std::vector<std::string> matches(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    const std::size_t slash = pattern.rfind('/', pattern.find_first_of(kGlobCharacters));
    const bool has_folder =
        slash == std::string::npos || fs::exists(pattern.substr(0, slash + 1), ignored);
    if (status == GLOB_NOMATCH || (status == 0 && matches.empty()) || !has_folder) {
      throw NotFound("no file matches", in_quotes(pattern), "check the pattern, and the folder");
    }
    if (status != 0)
      throw Error(ErrorCode::kIo, "cannot read a directory of the pattern", in_quotes(pattern),
                  "check the permissions of the directories");
    std::sort(matches.begin(), matches.end());
    may_name_others_ = true;
    for (const std::string& match : matches) add_path(match);
  }

  /// Adds the URL of a shard, a descriptor, a folder (with a slash at its end), or a glob.
  void add_remote(const std::string& url) {
    const std::size_t glob = glob_in(url);
    const std::string path = is_object_url(url) ? url : url.substr(0, url.find('?'));
    if (glob == std::string::npos && !path.ends_with('/')) {
      add_path(resolve_reference(url, "", ""));
      return;
    }
    if (remote_ == nullptr) {
      throw Unsupported("a remote folder cannot be listed", in_quotes(redacted_url(url)),
                        "give BuildOptions::remote");
    }
    may_name_others_ = true;
    const std::vector<std::string> files = list(url, glob);
    std::vector<std::string> others;
    std::size_t num_shards = 0;
    for (const std::string& file : files) {
      if (glob != std::string::npos) {
        constexpr int kAsAShell = FNM_PATHNAME | FNM_PERIOD | FNM_NOESCAPE;
        if (::fnmatch(url.c_str(), file.c_str(), kAsAShell) != 0) continue;
        add_path(file);
      } else if (file.starts_with(url) &&
                 is_hidden_below(std::string_view(file).substr(url.size()))) {
        continue;
      } else if (is_named_like_a_shard(file)) {
        add_shard(file);
      } else {
        others.push_back(file);
        continue;
      }
      ++num_shards;
    }
    if (num_shards == 0 && glob != std::string::npos) {
      throw NotFound("no file matches", in_quotes(redacted_url(url)),
                     "check the pattern against the listed files (" + human_count(files.size()) +
                         "); * does not match /");
    }
    if (num_shards == 0) {
      throw NotFound("the remote folder holds no shard", in_quotes(redacted_url(url)),
                     "name shards *.tar, *.tgz or *.tar.<codec>; the folder has " +
                         counted(others.size(), "other file"));
    }
    list_.left_out.insert(list_.left_out.end(), others.begin(), others.end());
  }

  /// Lists the files whose URLs begin with `url`, or with the part of `url` before its glob.
  std::vector<std::string> list(const std::string& url, std::size_t glob) const {
    try {
      return remote_->list(url.substr(0, glob));
    } catch (const Unsupported&) {
      if (glob == std::string::npos || is_object_url(url)) throw;
      throw Unsupported("the URL has a *, but files of this scheme cannot be listed",
                        in_quotes(redacted_url(url)),
                        "name the shards by a pattern, e.g. train-{000000..000146}.tar, or by a "
                        "list (@list.txt); write a * of a file name as %2A");
    }
  }

  /// Returns the position of the first glob character in a URL. In object keys, all glob characters
  /// count. In other URLs only a * before the query counts, because ? and [ have other meanings
  /// there.
  static std::size_t glob_in(const std::string& url) {
    const std::size_t host = url.find("://") + 3;
    if (is_object_url(url)) return url.find_first_of(kGlobCharacters, host);
    const std::size_t star = url.find('*', host);
    return star < url.find('?', host) ? star : std::string::npos;
  }

  void add_directory(const std::string& directory) {
    may_name_others_ = true;
    Folders folders(directory);
    if (folders.shards.empty()) {
      throw NotFound(
          "the directory holds no shard", in_quotes(directory),
          "name shards *.tar, *.tgz or *.tar.<codec>; " +
              (folders.others.empty()
                   ? "the directory is empty, or all names begin with a dot"
                   : "other files, e.g. " + in_quotes(folders.others.front()) + ", are ignored"));
    }
    for (const std::string& path : folders.shards) add_shard(path);
    list_.left_out.insert(list_.left_out.end(), folders.others.begin(), folders.others.end());
  }

  void add_path(const std::string& path) {
    if (is_named_like_a_descriptor(path)) {
      add_descriptor(path);
    } else {
      add_shard(path);
    }
  }

  void add_descriptor(const std::string& path) {
    may_name_others_ = true;
    list_.descriptors.push_back(read_wids_descriptor(path, remote_));
    for (const WidsDescriptor::Set& set : list_.descriptors.back().datasets) {
      for (const WidsDescriptor::Shard& shard : set.shards) add_shard(shard.path);
    }
  }

  void add_shard(const std::string& path) {
    if (list_.shards.size() >= kMaxShards) {
      throw InvalidArgument("there are more than 10 million shards",
                            in_quotes(without_secrets(path)), "narrow the pattern");
    }
    list_.shards.push_back(path);
  }

  const RemoteAccess& remote_;
  bool may_name_others_ = false;  ///< a source is a directory, a glob or a descriptor
  SourceList list_;
};

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern) {
  std::vector<std::string> names;
  expand(pattern, pattern, 1, names);
  return names;
}

std::string without_urls(const std::string& text) {
  const std::size_t url = text.find("://");
  if (is_fetched_url(text) && text.find("://", url + 3) == std::string::npos) {
    return redacted_url(text);
  }
  return url == std::string::npos ? text : text.substr(0, url + 3) + "***";
}

bool is_named_like_a_shard(const std::string& path) {
  const std::string name = to_lower(path);
  return name.ends_with(".tgz") || without_compression_suffix(name).ends_with(".tar");
}

bool is_named_like_a_descriptor(const std::string& path) {
  return without_query(path).ends_with(".json");
}

SourceList read_sources(const std::vector<std::string>& sources, const RemoteAccess& remote) {
  return Expander(remote).run(sources);
}

std::vector<std::string> expand_sources(const std::vector<std::string>& sources,
                                        const RemoteAccess& remote) {
  return read_sources(sources, remote).shards;
}

}  // namespace shardwise
