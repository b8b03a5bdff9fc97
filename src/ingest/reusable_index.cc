#include "ingest/reusable_index.h"

#include <unistd.h>

#include <utility>

#include "base/error_types.h"
#include "base/file.h"
#include "base/text.h"
#include "index/offset_table.h"
#include "index/origin.h"

namespace shardwise {

ReusableIndex::ReusableIndex(const std::string& path)
    : files(path), home(directory_of(files.path())) {
  for (Index::SkippedMember& member : files.catalogue().skipped(UINT64_MAX)) {
    skipped[member.shard].push_back(std::move(member));
  }
}

ShardPart ReusableIndex::take_over(const Index::Shard& row) const {
  ShardPart part;
  part.row = row;
  const SegmentView view = files.segment(row.number, row.segment_checksum);
  part.segment = files.segment_bytes(row.number);
  part.key_hashes = hash_keys(view);
  part.fields = count_fields(view);
  if (const auto it = skipped.find(row.number); it != skipped.end()) part.skipped = it->second;
  part.reused = true;
  return part;
}

ShardPart ReusableIndex::keep(const Index::Shard& row) const {
  ShardPart part;
  part.row = row;
  part.kept = row.number;
  files.require_intact(row.number, row.segment_checksum);
  if (const auto it = skipped.find(row.number); it != skipped.end()) part.skipped = it->second;
  part.reused = true;
  return part;
}

std::unique_ptr<ReusableIndex> open_old_index(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return nullptr;
  if (!Catalogue::looks_like_one(path)) {
    throw InvalidArgument("the file is not a Shardwise index, and is not replaced", in_quotes(path),
                          "choose another name for the index, or remove the file");
  }
  try {
    return std::make_unique<ReusableIndex>(path);
  } catch (const CorruptIndex&) {
    return nullptr;
  } catch (const VersionMismatch&) {
    return nullptr;
  }
}

detail::EarlierContent detail::earlier_content(const std::string& path) {
  try {
    return {.content = Index::open(path_to_write(path))->summary().content};
  } catch (const NotFound&) {
    return {};
  } catch (const CorruptIndex&) {
    return {.is_lost = true};
  } catch (const VersionMismatch&) {
    return {.is_lost = true};
  }
}

}  // namespace shardwise
