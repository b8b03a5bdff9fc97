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

// A build appends each shard that it has scanned to its journal, so that a killed build can be
// resumed. `<index>.journal` is no part of an index; only the version that wrote it reads it:
//
//   8 bytes  magic
//   u64      hash64 of everything that decides what a scan gives: options and format versions
//   records, each:
//     u64    bytes of the row: the shard's, u64 how many members were skipped, their rows
//     u64    bytes of the segment
//     u64    hash64 of the row, seeded with that of the two numbers and the record's offset
//     the row
//     the segment, whose checksum the row holds
//
// The last record of a shard counts. The table is written afresh from the journal and from what is
// scanned, so a resumed build makes the same files as one that was not killed.

/// The journal of the index at one path. It is locked while this lives. A second build of the same
/// path at the same time does without a journal; so does one that finds something else under its
/// name, or a file that it may not write, which stays as it is. One thread, but for find().
class BuildJournal {
 public:
  /// Records are collected, and written once they have `bytes`, or the last writing is `age` ago: a
  /// build that ends before leaves no file.
  struct Pace {
    std::uint64_t bytes = std::uint64_t{8} << 20;
    std::chrono::milliseconds age{1000};
    /// Takes no lock, so that a build that begins meanwhile gets it: find() alone may be called.
    bool is_read_only = false;
  };

  /// Reads what an earlier build left, if `options_hash` is the same. A journal of an earlier
  /// version is discarded.
  BuildJournal(const std::string& index_path, std::uint64_t options_hash, Pace pace);
  BuildJournal(const BuildJournal&) = delete;
  BuildJournal& operator=(const BuildJournal&) = delete;

  /// The shard, if an earlier build scanned it as it is now; the first 512 bytes of a local one are
  /// compared, too. Any thread.
  std::optional<ShardPart> find(const Rescan& shard) const;
  /// Appends a shard that was scanned. If the file cannot be written, as on a full disk, the build
  /// continues without a journal.
  void add(const ShardPart& part);
  /// Removes the file: the index is complete. Never throws: what stays behind is not used.
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
  bool is_enabled_ = true;    // false: another build writes it, or it cannot be written
  std::optional<File> file_;  // locked; none until there is something to write
  std::uint64_t end_ = 0;     // of the last good record; 0: the file is to be begun

  std::unordered_map<std::string, Record> found_;  // by URL; does not change after the constructor
  std::string pending_;
  std::chrono::steady_clock::time_point last_flush_ = std::chrono::steady_clock::now();
};

}  // namespace shardwise
