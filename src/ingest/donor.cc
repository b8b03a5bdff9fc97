#include "ingest/donor.h"

#include <unistd.h>

#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "index/offset_table.h"
#include "shardwise/base/error.h"

namespace shardwise {

Donor::Donor(const std::string& path) : files(path), home(directory_of(files.path())) {
  files.check_sections();
  for (SkippedMember& member : files.catalogue().skipped(UINT64_MAX)) {
    skipped[member.shard].push_back(std::move(member));
  }
}

ShardPart Donor::take_over(const ShardInfo& row) const {
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

std::unique_ptr<Donor> open_old_index(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return nullptr;
  if (!Catalogue::looks_like_one(path)) {
    throw InvalidArgument("will not replace a file that is no Shardwise index", in_quotes(path),
                          "choose another name for the index, or remove the file");
  }
  try {
    return std::make_unique<Donor>(path);
  } catch (const CorruptIndex&) {
    return nullptr;
  } catch (const VersionMismatch&) {
    return nullptr;
  }
}

}  // namespace shardwise
