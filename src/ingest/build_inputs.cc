#include "ingest/build_inputs.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/offset_table.h"
#include "index/side_tables.h"
#include "index/url_base.h"
#include "ingest/moved_shards.h"
#include "ingest/remote_shards.h"
#include "ingest/stored_sources.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/defect_policies.h"

namespace shardwise {
namespace {

bool scans_alike(const Index::Content& a, const Index::Content& b) {
  return scan_options_hash(a) == scan_options_hash(b);
}

/// Determines a shard's size, time and validator without reading the shard.
/// @param states  caches these properties for remote shards; null if `remote` is null.
/// Errors: NotFound, kIo; Unsupported; InvalidArgument if `named` already contains the shard;
///   errors of `remote`.
Rescan look_at(const std::string& shard, const std::string& index_path, const RemoteAccess& remote,
               const RemoteAccess& states, DistinctShards& named) {
  Rescan source;
  source.place.path = shard;
  source.url = url_of_path(index_path, shard);
  if (!is_fetched_url(shard)) {
    const FileIdentity identity = file_identity(shard);
    named.add_file(shard, identity);
    source.size_bytes = identity.size_bytes;
    source.mtime_ns = identity.mtime_ns;
    return source;
  }
  if (!remote) {
    throw Unsupported("the shard is remote, but no remote access was given",
                      in_quotes(redacted_url(shard)), "give BuildOptions::remote");
  }
  named.add_url(shard);
  source.place.remote = remote.get();
  source.place.state = states->state(shard);
  source.size_bytes = source.place.state.size_bytes.value_or(0);
  return source;
}

void require_valid(const std::string& path, const std::vector<std::string>& shards,
                   const BuildOptions& options) {
  if (shards.empty()) {
    throw InvalidArgument("no shards were given to index", in_quotes(path),
                          "name at least one shard");
  }
  for (std::size_t i = 0; i < options.content.columns.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (options.content.columns[i].name != options.content.columns[j].name) continue;
      throw InvalidArgument("two columns have the same name",
                            in_quotes(options.content.columns[i].name),
                            "give one of them another name: NAME=FIELD:JSONPATH");
    }
  }
  // Opening the side tables throws if one of their columns has the name of a new column.
  static_cast<void>(detail::SideTables(path, options.content.columns));
  const DefectPolicies& policies = options.content.policies;
  if (policies.damage == DefectPolicies::OnDefect::kKeep ||
      policies.no_field == DefectPolicies::OnDefect::kKeep ||
      policies.duplicate_field == DefectPolicies::OnDefect::kKeep) {
    throw InvalidArgument("the policy `keep` is for repeated keys only", in_quotes(path),
                          "choose `error` or `skip`");
  }
  if (options.part && (options.part->number < 1 || options.part->number > options.part->count)) {
    throw InvalidArgument("there is no part " + std::to_string(options.part->number) + " of " +
                              std::to_string(options.part->count),
                          in_quotes(path),
                          "give a part from 1 to the number of parts, e.g. 1/4, 2/4, 3/4 or 4/4");
  }
}

/// Returns the half-open range of shards that the part covers.
std::pair<std::size_t, std::size_t> range_of(const BuildOptions::Part& part,
                                             std::size_t num_shards) {
  __extension__ using Product = unsigned __int128;  // may exceed 64 bits
  const auto end_of = [&](std::uint64_t number) {
    return static_cast<std::size_t>(Product{num_shards} * number / part.count);
  };
  return {end_of(part.number - 1), end_of(part.number)};
}

/// Returns a hash of the shards' URLs, in order.
Hash128 hash_of_list(const std::string& path, const std::vector<std::string>& shards) {
  Hasher128 hasher;
  for (const std::string& shard : shards) {
    const std::string url = url_of_path(path, shard);
    hasher.update_u64(url.size());
    hasher.update(url);
  }
  return hasher.digest();
}

/// Throws if no shard exists, because a wrong path or an unmounted disk must not replace a good
/// index with an empty one.
void require_any(const std::vector<Source>& found, const std::vector<std::string>& missing) {
  if (!found.empty() || missing.empty()) return;
  const std::size_t num_others = missing.size() - 1;
  throw NotFound("all shards are missing",
                 in_quotes(without_secrets(missing.front())) +
                     (num_others == 0 ? "" : " and " + human_count(num_others) + " more"),
                 "check the paths");
}

/// Returns the shards in the form of stored sources, so that a later update looks for missing
/// shards again. Returns an empty list if any path could be taken for a pattern.
std::vector<std::string> sources_of_paths(const std::string& index_path,
                                          const std::vector<std::string>& shards) {
  const bool has_pattern = std::ranges::any_of(
      shards, [](const std::string& shard) { return !is_fetched_url(shard) && is_pattern(shard); });
  return has_pattern ? std::vector<std::string>() : stored_sources_of(index_path, shards);
}

/// True if the sources only name the shards, one by one, as a list in a file does. The index then
/// need not store the sources, because an update uses the index's list of shards.
bool are_sources_the_shards(const BuildInputs& inputs) {
  return !inputs.part && inputs.missing.empty() &&
         std::ranges::equal(
             inputs.stored_sources, inputs.sources, {}, {},
             [](const Source& source) -> const std::string& { return url_of(source); });
}

/// Returns the rows of an index, by URL.
std::unordered_map<std::string, Index::Shard> rows_of(const ReusableIndex& donor,
                                                      const CancelToken& cancel) {
  std::unordered_map<std::string, Index::Shard> rows;
  rows.reserve(donor.summary().num_shards);
  for (std::uint64_t i = 0; i < donor.summary().num_shards; ++i) {
    cancel.throw_if_cancelled();
    Index::Shard row = donor.files.catalogue().shard(i);
    std::string url = row.url;
    rows.emplace(std::move(url), std::move(row));
  }
  return rows;
}

/// Returns the paths of the rows' shards, in index order.
std::vector<std::string> paths_of(const std::unordered_map<std::string, Index::Shard>& rows,
                                  const std::string& home) {
  std::map<std::uint64_t, std::string> paths;
  for (const auto& [url, row] : rows) paths.emplace(row.number, resolve_url(home, row.url));
  std::vector<std::string> in_order;
  in_order.reserve(paths.size());
  for (auto& [number, path] : paths) in_order.push_back(std::move(path));
  return in_order;
}

/// True if the shard matches its row. For a local shard, the first 512 bytes are also compared,
/// because many tools set file times.
bool is_unchanged(const ReusableIndex& old, const Index::Shard& row, const Rescan& now,
                  const BuildOptions& options) {
  if (now.place.remote != nullptr && same_state(row, now)) return true;
  return !difference_from(old, row, now, options.accept_times);
}

}  // namespace

std::vector<Rescan> look_at_each(const std::string& index_path, std::span<const std::string> shards,
                                 const BuildOptions& options, DistinctShards& named,
                                 std::vector<std::string>& missing) {
  std::vector<Rescan> found;
  RemoteAccess states;
  if (options.remote) states = remembering_states(options.remote, shards);
  for (const std::string& shard : shards) {
    options.cancel.throw_if_cancelled();
    try {
      found.push_back(look_at(shard, index_path, options.remote, states, named));
    } catch (const NotFound&) {
      if (is_fetched_url(shard) && !options.drop_missing) throw;
      missing.push_back(shard);
    }
  }
  return found;
}

void require_none_missing(const std::vector<std::string>& missing, std::size_t num_shards,
                          std::string_view remedy) {
  if (missing.empty()) return;
  const std::string how_many = human_count(missing.size()) + " of " + counted(num_shards, "shard");
  throw NotFound(num_shards == 1
                     ? "the shard does not exist"
                     : how_many + (missing.size() == 1 ? " does" : " do") + " not exist",
                 (missing.size() == 1 ? "" : "the first is ") +
                     in_quotes(without_secrets(missing.front())) + " (No such file or directory)",
                 std::string(remedy) +
                     (missing.front().find("::") == std::string::npos
                          ? ""
                          : "; give each source by itself, because :: does not join sources"));
}

const std::string& url_of(const Source& source) {
  const auto* const reuse = std::get_if<Reuse>(&source);
  return reuse != nullptr ? reuse->row.url : std::get<Rescan>(source).url;
}

std::string url_base_of(const std::vector<Source>& sources) {
  UrlBase base;
  for (const Source& source : sources) base.add(url_of(source));
  return base.text();
}

std::uint64_t size_of(const Source& source) {
  const auto* const reuse = std::get_if<Reuse>(&source);
  return reuse != nullptr ? reuse->row.size_bytes : std::get<Rescan>(source).size_bytes;
}

bool same_state(const Index::Shard& row, const Rescan& now) {
  const RemoteShards::State& state = now.place.state;
  const bool is_known =
      now.place.remote == nullptr || (state.size_bytes && !state.validator.empty());
  return is_known && row.size_bytes == now.size_bytes && row.mtime_ns == now.mtime_ns &&
         row.validator == state.validator;
}

std::uint64_t scan_options_hash(const Index::Content& content) {
  std::string text = std::to_string(kIndexVersion) + " " + to_string(content.policies) +
                     (content.hashes ? " hashes" : "");
  for (const Index::Column& column : content.columns) text += "\n" + to_string(column);
  return hash64(text);
}

BuildInputs look_at_all(const std::string& path, const std::vector<std::string>& shards,
                        const BuildOptions& options, bool use_old) {
  require_valid(path, shards, options);
  BuildInputs inputs;
  const auto range = options.part ? range_of(*options.part, shards.size())
                                  : std::pair<std::size_t, std::size_t>(0, shards.size());
  if (options.part) {
    inputs.part = {options.part->number, options.part->count, shards.size(),
                   hash_of_list(path, shards)};
  }
  inputs.stored_sources = stored_sources_of(path, options.sources);
  if (use_old) inputs.old = open_old_index(path);
  const ReusableIndex* const old = inputs.old.get();
  const bool can_reuse = old != nullptr && scans_alike(old->summary().content, options.content);
  std::unordered_map<std::string, Index::Shard> old_rows;
  if (old != nullptr && options.check_index) old->files.check_sections(options.cancel);
  if (old != nullptr) old_rows = rows_of(*old, options.cancel);
  DistinctShards named;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (range.first <= i && i < range.second) continue;
    // The shard belongs to another part. Record it only to detect a shard of this part that is the
    // same file under another name.
    options.cancel.throw_if_cancelled();
    named.add_if_there(shards[i]);
  }
  const std::span<const std::string> own =
      std::span(shards).subspan(range.first, range.second - range.first);
  std::vector<Rescan> found = look_at_each(path, own, options, named, inputs.missing);
  if (!options.drop_missing) {
    const std::string moved =
        "; if the shards moved, name their new paths, or update the index with " +
        spelled("`shardwise index -o INDEX --relocate OLD NEW`");
    require_none_missing(inputs.missing, own.size(),
                         "check the path" + (old == nullptr ? std::string() : moved) + "; " +
                             spelled("`shardwise index --drop-missing`") +
                             " leaves out missing shards");
  }
  // URLs that are also in the old index, but whose shards have changed or are missing. The old
  // shard may have moved to another name, so recognise() still needs its row.
  std::vector<std::string> named_again;
  for (Rescan& source : found) {
    options.cancel.throw_if_cancelled();
    const auto had = old_rows.find(source.url);
    if (had == old_rows.end()) {
      inputs.sources.emplace_back(std::move(source));
    } else if (can_reuse && is_unchanged(*old, had->second, source, options)) {
      inputs.sources.emplace_back(reuse_of(*old, had->second, source));
      old_rows.erase(had);
    } else {
      named_again.push_back(source.url);
      inputs.sources.emplace_back(std::move(source));
    }
  }
  for (const std::string& shard : inputs.missing) {
    named_again.push_back(url_of_path(path, shard));
  }
  if (can_reuse) recognise(*old, options, inputs.sources, old_rows);
  for (const std::string& url : named_again) old_rows.erase(url);
  if (!inputs.part) require_any(inputs.sources, inputs.missing);
  if (!inputs.missing.empty() && inputs.stored_sources.empty())
    inputs.stored_sources = sources_of_paths(path, shards);
  if (are_sources_the_shards(inputs)) inputs.stored_sources.clear();
  if (old != nullptr) inputs.gone = paths_of(old_rows, old->home);
  return inputs;
}

}  // namespace shardwise
