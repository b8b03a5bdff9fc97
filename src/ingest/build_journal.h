#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ingest/shard_scan.h"
#include "shardwise/base/file.h"
#include "shardwise/base/mapped_file.h"

namespace shardwise {

// What a build has scanned so far, so that one that is killed can be gone on with:
// `<index>.journal`, format version 1. It is no index and no reader looks at it.
//
//   8 bytes  magic
//   u64      hash64 of everything that decides what a scan gives: options and format versions
//   records, each:
//     u64    bytes of the payload
//     u64    hash64 of the payload, seeded with the record's offset
//     payload: a shard's row, segment and what was skipped of it
//
// Nothing is synced: a record that power loss took fails its hash, and it and what follows are
// scanned again.

/// The journal of the index at one path. It holds a lock while it lives; a second build of the same
/// path at the same time gets none, and does without. One thread.
class BuildJournal {
 public:
  /// Records are written when they are so many bytes, or so old, together: a build that is over
  /// before leaves no file behind.
  struct Pace {
    std::uint64_t bytes = std::uint64_t{8} << 20;
    std::chrono::milliseconds age{1000};
    bool is_private = false;  ///< nobody but its owner is to read the file: it holds secrets
  };

  /// Reads what an earlier build left, if `options_hash` is the same.
  BuildJournal(const std::string& index_path, std::uint64_t options_hash, Pace pace);

  /// A shard that an earlier build scanned when it had this identity, or nothing.
  std::optional<ShardPart> find(const std::string& url, const FileIdentity& identity,
                                const std::string& validator) const;
  /// Notes a shard that this build scanned. Errors: kNoSpace, kIo.
  void add(const ShardPart& part);
  /// Removes the file: the index is complete. Never throws: what stays behind is not used.
  void remove() noexcept;

 private:
  void open_existing();
  void read_records();
  void flush();

  const std::string path_;
  const std::uint64_t options_hash_;
  const Pace pace_;
  bool enabled_ = true;       // false: another build writes it
  std::optional<File> file_;  // locked; none until there is something to keep
  std::optional<MappedFile> mapped_;
  std::unordered_map<std::string, std::string_view> found_;  // by url: payloads in mapped_
  std::uint64_t end_ = 0;  // of the file, behind the last good record
  std::string pending_;
  std::chrono::steady_clock::time_point last_flush_ = std::chrono::steady_clock::now();
};

}  // namespace shardwise
