#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "ingest/build_inputs.h"
#include "ingest/shard_scan.h"

namespace shardwise {

// The journal of a build keeps what it has scanned so far, so that a killed build can be resumed.
// It has two files, which are no index and which no reader looks at:
//
//   <index>.journal.table  the offset table as far as it is written: room for its header, then
//                          segments one behind the other
//   <index>.journal        what the table does not say of its shards, format version 4:
//
//     8 bytes  magic
//     u64      hash64 of everything that decides what a scan gives: options and format versions
//     records, each:
//       u64    bytes of the payload
//       u64    hash64 of the payload, seeded with the record's offset
//       payload:
//         u64  kind: 0 the segment lies in the table; 1 it follows this record; 2 the table is done
//         of 0 and 1:
//           u64  where in the table the segment lies; of kind 1 it is 0
//           u64  bytes of the segment
//           the shard's row, u64 how many members were skipped, their rows
//         of 2: the name that the table is given
//       of kind 1 the segment
//
// If there are two records of one shard, the later one counts. A record of kind 0 also says that
// the table was cut where its segment begins: records of segments that lay behind no longer count.
//
// A build that resumes keeps the table up to the last segment that is in its place: the longest
// prefix that holds the first of the shards that the index is to have now. It copies other segments
// that are still of use into the journal, cuts the table, and writes on. The finished table is
// renamed, so nothing is written twice.
//
// The journal is never synced. Records that a power cut damaged fail their hashes; segments fail
// their checksums, which the rows hold, too. Such shards are scanned again.

/// The journal of the index at one path. It holds a lock while it lives. A second build of the same
/// path at the same time does without a journal; so does one that finds something else under one of
/// the names, or a file that it may not write, which stays as it is. One thread, but for find().
class BuildJournal {
 public:
  /// Records are collected, and written when together they stand for `bytes` or the last writing is
  /// `age` ago: a build that ends before leaves no file behind.
  struct Pace {
    std::uint64_t bytes = std::uint64_t{8} << 20;
    std::chrono::milliseconds age{1000};
    /// Takes no lock, so that a build that begins meanwhile gets it: find() alone may be called.
    bool only_looks = false;
  };

  /// Reads what an earlier build left, if `options_hash` is the same, and changes nothing.
  BuildJournal(const std::string& index_path, std::uint64_t options_hash, Pace pace);
  /// Unless the table was committed, cuts off what is in no record.
  ~BuildJournal();
  BuildJournal(const BuildJournal&) = delete;
  BuildJournal& operator=(const BuildJournal&) = delete;

  /// The shard, if an earlier build scanned it as it is now (of a local one the first 512 bytes are
  /// looked at, too), or has it in the table already. Any thread.
  std::optional<ShardPart> find(const Source& source) const;

  /// The table that is to be written: the earlier build's, cut behind the first of `sources` that
  /// it holds, or a new one. What find() gave of others it gives still. Errors: kNoSpace, kIo.
  AtomicFile& begin_table(const std::vector<Source>& sources);
  /// Notes that the part was put into the table at `offset`. Errors: kNoSpace, kIo.
  void add(const ShardPart& part, std::uint64_t offset);
  /// Notes that the table is whole and about to be renamed to `path`. Errors: kNoSpace, kIo.
  void add_end(const std::string& path);
  /// Removes the files: the index is complete. Never throws: what stays behind is not used.
  void remove() noexcept;

 private:
  struct Record {
    Index::Shard row;
    bool in_table = false;
    std::uint64_t segment_offset = 0;  ///< in the table, or the journal
    std::uint64_t segment_bytes = 0;
    std::uint64_t payload_offset = 0;
    std::uint64_t payload_bytes = 0;
  };

  void open_existing();
  void read_records();
  bool read_record(std::uint64_t file_bytes, std::string& table_name);
  void open_table(const std::string& table_name);
  const File& table() const { return table_ ? table_->file() : *found_table_; }
  ShardPart read(const Record& record) const;
  void put_record(const std::string& payload);
  void keep(Record record);
  void carry(const std::vector<Source>& sources, std::size_t first);
  void cut(std::size_t num_records);
  void flush();
  void write_pending();

  const std::string index_path_;
  const std::string path_;
  const std::string table_path_;
  const std::uint64_t options_hash_;
  const Pace pace_;
  bool enabled_ = true;       // false: another build writes it, or it is none of ours
  std::optional<File> file_;  // locked; none until there is something to keep
  std::uint64_t end_ = 0;     // of it, behind the last good record; 0: it is to be begun

  std::vector<Record> records_;
  std::unordered_map<std::string, std::size_t> by_url_;  // those that count
  std::vector<std::size_t> in_table_;                    // of them, in order of the table
  std::optional<File> found_table_;                      // locked; the earlier build's
  bool goes_on_ = false;  // the earlier build's table may be written on

  std::unique_ptr<AtomicFile> table_;
  bool table_is_kept_ = false;      // it has table_path_'s name
  std::uint64_t recorded_end_ = 0;  // of the table, behind what records in the file stand for

  std::string pending_;
  std::uint64_t pending_table_end_ = 0;
  std::chrono::steady_clock::time_point last_flush_ = std::chrono::steady_clock::now();
};

}  // namespace shardwise
