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

// A build appends each scanned shard to its journal, so that a killed build can be resumed.
// `<index>.journal` does not belong to the index. Only the version that wrote it reads it:
//
//   8 bytes  magic
//   u64      hash64 of the options and format versions that affect a scan
//   records, each:
//     u64    bytes of the row: the shard's, u64 number of skipped members, their rows
//     u64    bytes of the segment
//     u64    hash64 of the row, seeded by the hash of the two numbers and the offset
//     the row
//     the segment; the row has its checksum
//
// If a shard has several records, the last one is used. The table is written anew from the journal
// and from new scans, so a resumed build makes the same files as one that was not killed.

/// The journal of the index at one path. The file is locked while this object lives.
/// A build runs without a journal if a concurrent build of the same path holds it. It also does if
/// the name is taken by another kind of file, or by a file that it cannot write. That file stays as
/// it is.
class BuildJournal {
 public:
  /// When collected records are written: once they have `bytes`, or `age` after the last write. A
  /// build that ends earlier leaves no file.
  struct Pace {
    std::uint64_t bytes = std::uint64_t{8} << 20;
    std::chrono::milliseconds age{1000};
    /// If true, takes no lock, so that a build can start meanwhile. Only find() may be called.
    bool is_read_only = false;
  };

  /// Reads an earlier build's journal, if it has the same `options_hash`. A journal of an earlier
  /// version is discarded.
  BuildJournal(const std::string& index_path, std::uint64_t options_hash, Pace pace);
  BuildJournal(const BuildJournal&) = delete;
  BuildJournal& operator=(const BuildJournal&) = delete;

  /// The shard, if an earlier build scanned it and it did not change. The first 512 bytes of a
  /// local shard are compared, too.
  /// Threads: any.
  std::optional<ShardPart> find(const Rescan& shard) const;
  /// Appends a scanned shard. If the file cannot be written, e.g. on a full disk, the build
  /// continues without a journal.
  void add(const ShardPart& part);
  /// Removes the file, once the index is complete. Never throws: a leftover file is not used.
  void remove() noexcept;

 private:
  struct Record {
    Index::Shard row;
    std::uint64_t offset = 0;  ///< of the row
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
  bool is_enabled_ = true;    // false if another build has it, or it cannot be written
  std::optional<File> file_;  // locked; empty until the first write
  std::uint64_t end_ = 0;     // end of the last good record; 0 means no header yet

  std::unordered_map<std::string, Record> found_;  // by URL; does not change after the constructor
  std::string pending_;
  std::chrono::steady_clock::time_point last_flush_ = std::chrono::steady_clock::now();
};

}  // namespace shardwise
