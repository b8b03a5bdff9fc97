#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/spelling.h"
#include "base/text.h"
#include "index/origin.h"
#include "ingest/build_run.h"
#include "ingest/reusable_index.h"
#include "ingest/stored_sources.h"
#include "shardwise/base/error.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {
namespace {

const Index::Part& require_part(const ReusableIndex& donor) {
  if (donor.summary().part) return *donor.summary().part;
  throw Mismatch("the index is not a part", in_quotes(donor.files.path()),
                 "give the indexes that " + spelled("`shardwise index --part I/N`") + " built");
}

/// Sorts the parts by their numbers.
/// Errors: Mismatch if the parts do not together form one index.
void sort_parts(std::vector<std::unique_ptr<ReusableIndex>>& parts) {
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return require_part(*a).number < require_part(*b).number;
  });
  const Index::Part first = require_part(*parts[0]);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Index::Part& part = require_part(*parts[i]);
    const std::string where = in_quotes(parts[i]->files.path());
    if (part.count != first.count || part.num_shards != first.num_shards) {
      throw Mismatch("the part belongs to another index: this is part " + to_string(part), where,
                     "give parts of one index; " + in_quotes(parts[0]->files.path()) + " is part " +
                         to_string(first));
    }
    if (part.list_hash != first.list_hash) {
      throw Mismatch(
          "the part belongs to another index: the list of shards differs from the list of " +
              in_quotes(parts[0]->files.path()),
          where,
          "build all parts of the same shards, named in the same order, each index in "
          "the same place relative to them");
    }
    if (parts[i]->summary().content != parts[0]->summary().content) {
      throw Mismatch("the part was built with other options than the first one", where,
                     "build all parts with the same policies, columns and hashes");
    }
    if (part.number < i + 1) {
      throw Mismatch("part " + std::to_string(part.number) + " is named twice", where,
                     "name each part once");
    }
    if (part.number > i + 1) {
      throw Mismatch(
          "part " + std::to_string(i + 1) + " of " + std::to_string(first.count) + " is missing",
          where + " belongs to the same index", "give all parts");
    }
  }
  if (parts.size() < first.count) {
    throw Mismatch("part " + std::to_string(parts.size() + 1) + " of " +
                       std::to_string(first.count) + " is missing",
                   in_quotes(parts.back()->files.path()) + " belongs to the same index",
                   "give all parts");
  }
}

/// Returns the sources that all parts were built from, in the stored form of the index at `path`;
/// empty if the parts have different sources.
std::vector<std::string> common_sources(const std::string& path,
                                        const std::vector<std::unique_ptr<ReusableIndex>>& parts) {
  std::vector<std::string> common;
  for (const auto& part : parts) {
    const std::vector<std::string> words = stored_sources_of(path, sources_from_here(part->files));
    if (part == parts.front()) common = words;
    if (words != common) return {};
  }
  return common;
}

}  // namespace

BuildReport merge_indexes(const std::string& index_path, const std::vector<std::string>& parts,
                          const BuildOptions& options) {
  const std::string path = path_to_write(index_path);
  if (parts.empty()) {
    throw InvalidArgument("no parts were given to merge", in_quotes(path), "give all parts");
  }
  open_old_index(path);  // throws, and so keeps the file, if the file at the path is not an index
  std::vector<std::unique_ptr<ReusableIndex>> donors;
  for (const std::string& part : parts) {
    options.cancel.throw_if_cancelled();
    donors.push_back(std::make_unique<ReusableIndex>(part));
  }
  sort_parts(donors);
  BuildInputs inputs;
  inputs.stored_sources = common_sources(path, donors);
  for (const auto& donor : donors) {
    for (std::uint64_t i = 0; i < donor->summary().num_shards; ++i) {
      Index::Shard row = donor->files.catalogue().shard(i);
      row.path = resolve_url(donor->home, row.url);
      row.url = url_of_path(path, row.path);
      inputs.sources.emplace_back(Reuse{donor.get(), std::move(row)});
    }
  }
  return run_build(path, inputs, donors[0]->summary().content, options);
}

}  // namespace shardwise
