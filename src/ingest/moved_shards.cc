#include "ingest/moved_shards.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "base/counted.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "index/offset_table.h"
#include "ingest/quick_check.h"
#include "ingest/remote_shards.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

/// Thrown to stop reading a remote shard when enough bytes have arrived.
struct Enough {};

std::string read_remote(const Rescan& shard, std::uint64_t offset, std::size_t size) {
  std::string bytes;
  const RemoteShards::State& state = shard.place.state;
  const std::uint64_t end = std::min<std::uint64_t>(offset + size, shard.size_bytes);
  if (offset >= end) return bytes;
  try {
    shard.place.remote->read(shard.place.path, state, state.has_ranges ? offset : 0,
                             state.has_ranges ? std::optional(end) : std::nullopt,
                             [&](std::string_view came) {
                               bytes += came;
                               if (bytes.size() >= size) throw Enough();
                             });
  } catch (const Enough&) {
    bytes.resize(size);
  }
  return bytes;
}

ReadShard reader_of(const Rescan& shard) {
  if (shard.place.remote != nullptr) {
    return [&shard](std::uint64_t offset, std::size_t size) {
      return read_remote(shard, offset, size);
    };
  }
  return [file = std::make_shared<const File>(File::open_read(shard.place.path))](
             std::uint64_t offset, std::size_t size) {
    return shardwise::reader_of(*file)(offset, size);
  };
}

/// True if the donor's path still leads to a file with the row's size and time, and that file is
/// not the same file as `now`.
bool is_still_there(const ReusableIndex& donor, const Index::Shard& row, const Rescan& now) {
  try {
    const FileIdentity there = file_identity(resolve_url(donor.home, row.url));
    return there.size_bytes == row.size_bytes && there.mtime_ns == row.mtime_ns &&
           there != file_identity(now.place.path);
  } catch (const Error&) {
    return false;  // a file that cannot be examined counts as missing
  }
}

/// Size, time, and hash of a shard's first header. The time is 0 if times are ignored.
using Probe = std::tuple<std::uint64_t, std::int64_t, std::uint64_t>;

}  // namespace

std::optional<std::string> difference_from(const ReusableIndex& donor, const Index::Shard& row,
                                           const Rescan& now, bool accept_times) {
  SHARDWISE_FAULT_POINT("build.compare_shard");
  if (now.size_bytes != row.size_bytes) {
    return counted(now.size_bytes, "byte") + " now, " + human_count(row.size_bytes) +
           " when indexed";
  }
  const RemoteShards::State& state = now.place.state;
  if (same_state(row, now)) return difference_at_start(row, reader_of(now));
  if (!accept_times) {
    return now.place.remote != nullptr || !row.validator.empty()
               ? "the source sends another version"
               : "the time differs";
  }
  if (now.place.remote != nullptr && state.validator.empty() && !row.content_hash) {
    return "the server sends no version (no ETag, no Last-Modified), and the index has no hash";
  }
  const bool is_readable_anywhere = now.place.remote == nullptr || state.has_ranges;
  const ReadShard read = reader_of(now);
  if (!is_readable_anywhere) return difference_at_start(row, read);
  return quick_check(row, donor.files.segment(row.number, row.segment_checksum), read);
}

Reuse reuse_of(const ReusableIndex& donor, const Index::Shard& row, const Rescan& now) {
  Reuse reuse{&donor, row};
  reuse.row.path = now.place.path;
  reuse.row.url = now.url;
  reuse.row.mtime_ns = now.mtime_ns;
  reuse.row.validator = now.place.state.validator;
  reuse.is_moved = row.url != reuse.row.url || row.mtime_ns != reuse.row.mtime_ns ||
                   row.validator != reuse.row.validator;
  return reuse;
}

void recognise(const ReusableIndex& old, const BuildOptions& options, std::vector<Source>& sources,
               std::unordered_map<std::string, Index::Shard>& unnamed) {
  const bool accept_times = options.accept_times;
  const auto time_of = [&](std::int64_t mtime_ns) { return accept_times ? 0 : mtime_ns; };
  std::map<Probe, std::vector<const Index::Shard*>> had;
  for (const auto& [url, row] : unnamed) {
    if (!row.validator.empty() || row.mtime_ns == 0) continue;  // skip remote shards
    had[{row.size_bytes, time_of(row.mtime_ns), row.first_header_hash}].push_back(&row);
  }
  if (had.empty()) return;
  std::map<Probe, std::vector<Source*>> found;
  for (Source& source : sources) {
    options.cancel.throw_if_cancelled();
    const auto* const now = std::get_if<Rescan>(&source);
    if (now == nullptr || now->place.remote != nullptr) continue;
    const Probe least{now->size_bytes, time_of(now->mtime_ns), 0};
    const auto first = had.lower_bound(least);
    if (first == had.end() || std::get<0>(first->first) != std::get<0>(least) ||
        std::get<1>(first->first) != std::get<1>(least)) {
      continue;
    }
    const std::uint64_t header = hash64(reader_of(*now)(0, kTarBlockBytes));
    found[{std::get<0>(least), std::get<1>(least), header}].push_back(&source);
  }
  for (const auto& [probe, same] : found) {
    options.cancel.throw_if_cancelled();
    const auto rows = had.find(probe);
    if (rows == had.end() || rows->second.size() != 1 || same.size() != 1) continue;
    const Index::Shard row = *rows->second.front();
    const auto& now = std::get<Rescan>(*same.front());
    // With accept_times, the user accepts copies, so the original file may still exist.
    if (!accept_times && is_still_there(old, row, now)) continue;
    if (difference_from(old, row, now, accept_times)) continue;
    *same.front() = reuse_of(old, row, now);
    unnamed.erase(row.url);
  }
}

}  // namespace shardwise
