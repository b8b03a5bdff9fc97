#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/file.h"
#include "ingest/build_inputs.h"
#include "ingest/shard_scan.h"

namespace shardwise {

// A build appends each scanned shard to its journal, so that a killed build can be resumed. The
// file `<index>.journal` is not part of the index. It is read only by the program version that
// wrote it. Format:
//
//   8 bytes  magic
//   u64      hash64 of the options and format versions that affect a scan
//   records, each:
//     u64    size of the row in bytes
//     u64    size of the segment in bytes
//     u64    hash64 of the row, seeded by the hash of the two numbers and the offset
//     the row: the shard's catalogue row, the number of skipped members (u64), their rows
//     the segment; its checksum is in the shard's row
//
// If a shard has several records, the last one is used. A resumed build writes the table from the
// journal and from new scans, so it produces the same files as an uninterrupted build.

/// The journal of the index at one path. The file is locked while this object exists. A build runs
/// without a journal if a concurrent build of the same path has locked it. It also runs without a
/// journal if the file is not a journal, or is not writable; such a file is not changed.
class BuildJournal {
 public:
  /// Collected records are written once they reach `bytes`, or `age` after the last write. A build
  /// that ends before the first write leaves no file.
  struct Pace {
    std::uint64_t bytes = std::uint64_t{8} << 20;
    std::chrono::milliseconds age{1000};
    /// Takes no lock, so that a build can start meanwhile. Only find() may be called.
    bool is_read_only = false;
  };

  /// Reads the journal of an earlier build, if it has the same `options_hash`. A journal in the
  /// format of an earlier version is discarded.
  BuildJournal(const std::string& index_path, std::uint64_t options_hash, Pace pace);
  BuildJournal(const BuildJournal&) = delete;
  BuildJournal& operator=(const BuildJournal&) = delete;

  /// Returns the shard's records if an earlier build scanned the shard and it has not changed
  /// since. The first 512 bytes of a local shard are also compared.
  /// Threads: any.
  std::optional<ShardPart> find(const Rescan& shard) const;
  /// Appends a scanned shard. If the file cannot be written, e.g. on a full disk, the build
  /// continues without a journal.
  void add(const ShardPart& part);
  /// Removes the file. Call this when the index is complete. Never throws, because a leftover file
  /// is harmless.
  void remove() noexcept;

 private:
  struct Record {
    Index::Shard row;
    std::uint64_t offset = 0;  ///< offset of the row in the file
    std::uint64_t row_bytes = 0;
    std::uint64_t segment_bytes = 0;
  };

  void open_existing();
  void read_records();
  bool read_record(std::uint64_t file_bytes);
  ShardPart read(const Record& record) const;
  void flush();

  const std::string path_;
  const std::uint64_t options_hash_;
  const Pace pace_;
  // False if another build has locked the file, or if it is not writable.
  bool is_enabled_ = true;
  std::optional<File> file_;  // locked; empty until the first write
  // End of the last valid record; 0 means that the header is not yet written.
  std::uint64_t end_ = 0;

  std::unordered_map<std::string, Record> found_;  // by URL; constant after construction
  std::string pending_;
  std::chrono::steady_clock::time_point last_flush_ = std::chrono::steady_clock::now();
};

}  // namespace shardwise
