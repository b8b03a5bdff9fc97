#include "shardwise/ingest/index_builder.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error_types.h"
#include "base/file.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "index/index_files.h"
#include "index/origin.h"
#include "ingest/build_inputs.h"
#include "ingest/build_journal.h"
#include "ingest/build_run.h"
#include "ingest/stored_sources.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

/// The shards and options of the build that made the index at `path`.
struct Rebuild {
  std::vector<std::string> shards;
  BuildOptions options;
};

void require_whole(const std::string& path, const CatalogueMeta& meta) {
  if (!meta.summary.part) return;
  throw InvalidArgument("the index is only part " + to_string(*meta.summary.part) +
                            ", which cannot be updated without sources",
                        in_quotes(path), "name the shards and the part again");
}

/// Returns `build(true)`, which uses the old index; or `build(false)` if that index is damaged.
template <class Build>
auto unless_damaged(const Build& build) {
  try {
    return build(/*use_old=*/true);
  } catch (const CorruptIndex&) {
    return build(/*use_old=*/false);
  }
}

Rebuild as_built(const std::string& path, const BuildOptions& options) {
  Rebuild same{{}, options};
  const IndexFiles files(path_to_write(path));
  const CatalogueMeta& meta = files.catalogue().meta();
  require_whole(path, meta);
  same.options.content = meta.summary.content;
  same.options.part.reset();
  same.options.sources = sources_from_here(files);
  same.shards = read_index_sources(path, options.remote).shards;
  if (!same.shards.empty()) return same;
  for (std::uint64_t i = 0; i < meta.summary.num_shards; ++i) {
    same.shards.push_back(resolve_url(directory_of(files.path()), files.catalogue().shard(i).url));
  }
  return same;
}

}  // namespace

std::vector<std::string> index_sources(const std::string& path) {
  const IndexFiles files(path_to_write(path));
  require_whole(path, files.catalogue().meta());
  return sources_from_here(files);
}

SourceList read_index_sources(const std::string& path, const RemoteAccess& remote) {
  const std::vector<std::string> words = index_sources(path);
  if (words.empty()) return {};
  try {
    return read_sources(words, remote);
  } catch (const NotFound& e) {
    throw NotFound(std::string(e.what()) +
                   "; if the shards moved, name their new paths, or update the index with " +
                   spelled("`shardwise index -o INDEX --relocate OLD NEW`"));
  }
}

BuildReport build_index(const std::string& index_path, const std::vector<std::string>& shards,
                        const BuildOptions& options) {
  const std::string path = path_to_write(index_path);
  return unless_damaged([&](bool use_old) {
    return run_build(path, look_at_all(path, at_home(shards), options, use_old), options.content,
                     options);
  });
}

BuildPlan plan_index(const std::string& index_path, const std::vector<std::string>& shards,
                     const BuildOptions& options) {
  const std::string path = path_to_write(index_path);
  BuildInputs inputs = unless_damaged(
      [&](bool use_old) { return look_at_all(path, at_home(shards), options, use_old); });
  const BuildJournal journal(path, scan_options_hash(options.content), {.is_read_only = true});
  BuildPlan plan;
  plan.missing = std::move(inputs.missing);
  plan.gone = std::move(inputs.gone);
  for (const Source& source : inputs.sources) {
    if (const auto* const reuse = std::get_if<Reuse>(&source)) {
      plan.unchanged.push_back(reuse->row.path);
      continue;
    }
    const auto& rescan = std::get<Rescan>(source);
    if (journal.find(rescan)) {
      plan.resumed.push_back(rescan.place.path);
    } else {
      plan.read.push_back(rescan.place.path);
      plan.bytes_to_read += rescan.size_bytes;
    }
  }
  return plan;
}

BuildReport update_index(const std::string& path, const BuildOptions& options) {
  const Rebuild same = as_built(path, options);
  return build_index(path, same.shards, same.options);
}

BuildPlan plan_update(const std::string& path, const BuildOptions& options) {
  const Rebuild same = as_built(path, options);
  return plan_index(path, same.shards, same.options);
}

}  // namespace shardwise
