#include "shardwise/ingest/relocate.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/origin.h"
#include "ingest/build_run.h"
#include "ingest/distinct_shards.h"
#include "ingest/moved_shards.h"
#include "ingest/source_names.h"
#include "ingest/stored_sources.h"
#include "shardwise/ingest/source_list.h"

namespace shardwise {
namespace {

/// True if the place is a URL in which bytes may be percent-encoded.
bool is_encoded(const std::string& place) { return is_remote_url(place) && !is_object_url(place); }

/// Returns a folder, a file or a URL prefix in normal spelling, without a slash at its end.
std::string normal_place(const std::string& place) {
  if (place.empty()) {
    throw InvalidArgument("the relocation lacks a folder", "", "give the old and the new folder");
  }
  if (is_command_url(place)) {
    throw Unsupported("a command cannot be relocated", in_quotes(redacted_url(place)),
                      "name folders, or URLs");
  }
  std::string normal = is_remote_url(place) ? place : normal_absolute_path(place);
  while (normal.ends_with('/')) normal.pop_back();
  return normal;
}

bool lies_in(const std::string& place, const std::string& folder) {
  return place == folder || place.starts_with(folder + "/");
}

/// True if combining this folder with the pattern would change its meaning, because characters of
/// the folder's name would be read as part of the pattern.
bool reads_otherwise(const std::string& folder, const std::string& pattern) {
  if (folder.find('{') != std::string::npos) return true;
  return !is_remote_url(folder) && folder.find_first_of("*?[\\") != std::string::npos &&
         pattern.find_first_of(kGlobCharacters) != std::string::npos;
}

/// A validated relocation, in normal spelling. `from` has no secrets, because the index stores URLs
/// without them. `to` keeps its secrets, because the shards are fetched with them during the
/// relocation.
class Move {
 public:
  explicit Move(const Relocation& relocation)
      : from_(normal_place(unsigned_url(relocation.from))), to_(normal_place(relocation.to)) {}

  const std::string& from() const noexcept { return from_; }
  bool crosses_kinds() const { return is_remote_url(from_) != is_remote_url(to_); }
  bool holds(const std::string& place) const {
    return is_remote_url(from_) ? rebased_url(place, from_, from_).has_value()
                                : lies_in(place, from_);
  }
  /// Returns the new place for a place below `from`.
  /// Errors: InvalidArgument if the new place cannot be written as a path or URL.
  std::string apply(const std::string& place) const {
    if (is_remote_url(from_) && is_remote_url(to_)) return *rebased_url(place, from_, to_);
    // Paths and object keys both contain literal bytes. Treat the path as a key of s3, so that
    // rebased_url() percent-encodes it if `to_` is an http URL.
    if (is_remote_url(to_)) {
      return *rebased_url("s3://x" + place.substr(from_.size()), "s3://x", to_);
    }
    std::string rest;
    if (is_encoded(from_)) {
      const std::string moved = *rebased_url(place, from_, "https://x");
      const std::size_t path = std::string_view("https://x").size();
      const auto decoded = percent_decoded(moved.substr(path, moved.find_first_of("?#") - path));
      if (!decoded) refuse(place);
      rest = *decoded;
    } else if (is_remote_url(from_)) {
      rest = rebased_url(place, from_, "s3://x")->substr(std::string_view("s3://x").size());
    } else {
      rest = place.substr(from_.size());
    }
    if ((rest + "/").find("/../") != std::string::npos || rest.find('\0') != std::string::npos) {
      refuse(place);
    }
    return to_ + rest;
  }

 private:
  [[noreturn]] static void refuse(const std::string& place) {
    throw InvalidArgument("the URL has no path below a folder", in_quotes(without_secrets(place)),
                          "index the shards again");
  }

  std::string from_, to_;
};

class Moves {
 public:
  explicit Moves(const std::vector<Relocation>& relocations) {
    for (const Relocation& relocation : relocations) moves_.emplace_back(relocation);
    // Sort by length, longest first, because the first match is used.
    std::stable_sort(moves_.begin(), moves_.end(), [](const Move& a, const Move& b) {
      return a.from().size() > b.from().size();
    });
  }

  const Move* find(const std::string& place) const {
    const auto found = std::find_if(moves_.begin(), moves_.end(),
                                    [&](const Move& move) { return move.holds(place); });
    return found == moves_.end() ? nullptr : &*found;
  }
  const std::vector<Move>& all() const noexcept { return moves_; }

  /// Returns the sources after the move; empty if any of them can no longer be written as a source.
  std::vector<std::string> apply_to_words(std::vector<std::string> words) const {
    for (std::string& word : words) {
      // Split the source into a folder and the pattern below that folder.
      const std::size_t pattern =
          word.find_first_of(is_fetched_url(word) ? "{" : kPatternCharacters);
      const std::size_t cut =
          pattern == std::string::npos ? word.size() : word.rfind('/', pattern) + 1;
      std::string folder = word.substr(0, cut);
      if (!is_fetched_url(word)) folder = normal_absolute_path(folder.empty() ? "." : folder);
      while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
      const Move* const move = find(folder);
      const bool splits = std::any_of(moves_.begin(), moves_.end(), [&](const Move& other) {
        return &other != move && lies_in(other.from(), folder);
      });
      if (splits || (move != nullptr && move->crosses_kinds())) return {};
      if (move == nullptr) continue;
      const std::string now = unsigned_url(move->apply(folder));
      if (is_encoded(now) && now.find('?') != std::string::npos) return {};
      if (reads_otherwise(now, word.substr(cut))) return {};
      word.replace(0, cut, pattern == std::string::npos ? now : now + "/");
    }
    return words;
  }

 private:
  std::vector<Move> moves_;
};

/// Returns a shard's path or URL in the spelling of normal_place().
std::string place_of(const std::string& path) {
  return is_fetched_url(path) ? path : normal_absolute_path(path);
}

/// True if a descriptor is among the sources, and the sources do not list every shard at its new
/// place. A relocation cannot change a descriptor's content.
bool descriptors_name_others(const std::vector<std::string>& words,
                             const std::vector<Source>& sources, const RemoteAccess& remote) {
  if (std::none_of(words.begin(), words.end(), is_named_like_a_descriptor)) return false;
  std::set<std::string> named;
  try {
    for (const std::string& shard : read_sources(words, remote).shards) {
      named.insert(unsigned_url(place_of(shard)));
    }
  } catch (const Error&) {
    return true;  // a descriptor that cannot be read lists no shards
  }
  return std::any_of(sources.begin(), sources.end(), [&](const Source& source) {
    return named.count(unsigned_url(place_of(std::get<Reuse>(source).row.path))) == 0;
  });
}

}  // namespace

BuildReport relocate_index(const std::string& index_path,
                           const std::vector<Relocation>& relocations,
                           const BuildOptions& options) {
  const std::string path = path_to_write(index_path);
  BuildInputs inputs;
  inputs.old = std::make_unique<ReusableIndex>(path);
  const ReusableIndex& old = *inputs.old;
  const std::vector<std::string> words = index_sources(path);
  const Moves moves(relocations);
  std::vector<std::string> places;
  for (std::uint64_t i = 0; i < old.summary().num_shards; ++i) {
    places.push_back(place_of(resolve_url(old.home, old.files.catalogue().shard(i).url)));
  }
  for (const Move& move : moves.all()) {
    if (std::any_of(places.begin(), places.end(),
                    [&](const std::string& place) { return move.holds(place); })) {
      continue;
    }
    throw InvalidArgument(
        "no shard of the index lies below " + in_quotes(without_secrets(move.from())),
        in_quotes(path),
        "give the old folder as the index stores it; the first shard is " +
            (places.empty() ? "none" : in_quotes(without_secrets(places.front()))));
  }
  std::vector<std::string> moved;
  std::vector<const Move*> move_of;
  DistinctShards named;
  for (const std::string& place : places) {
    move_of.push_back(moves.find(place));
    if (move_of.back() != nullptr) {
      moved.push_back(move_of.back()->apply(place));
    } else {
      named.add_if_there(place);
    }
  }
  const std::vector<Rescan> shards = look_at_each(path, moved, options, named, inputs.missing);
  require_none_missing(inputs.missing, moved.size(), "check the new folder of the shards");
  std::uint64_t num_different = 0;
  std::string first_different;
  auto now = shards.begin();
  for (std::uint64_t i = 0; i < places.size(); ++i) {
    options.cancel.throw_if_cancelled();
    Index::Shard row = old.files.catalogue().shard(i);
    if (move_of[i] == nullptr) {
      row.path = places[i];
      inputs.sources.emplace_back(Reuse{&old, std::move(row)});
      continue;
    }
    const Rescan& shard = *now++;
    if (const auto difference = difference_from(old, row, shard, options.accept_times)) {
      if (num_different++ > 0) continue;
      first_different = in_quotes(without_secrets(shard.place.path)) + " (" + *difference + ")";
      continue;
    }
    inputs.sources.emplace_back(reuse_of(old, row, shard));
  }
  if (num_different > 0) {
    throw StaleIndex(
        human_count(num_different) + " of " + counted(shards.size(), "shard", "differs", "differ") +
            " from the index; the first",
        first_different,
        (options.accept_times ? ""
                              : "if the shards were copied, accept their new times: " +
                                    spelled("BuildOptions::accept_times") + "; otherwise ") +
            "give the shards as SOURCE, to index the changed shards again");
  }
  const std::vector<std::string> words_now = moves.apply_to_words(words);
  if (!descriptors_name_others(words_now, inputs.sources, options.remote)) {
    inputs.stored_sources = stored_sources_of(path, words_now);
  }
  return run_build(path, inputs, old.summary().content, options);
}

}  // namespace shardwise
