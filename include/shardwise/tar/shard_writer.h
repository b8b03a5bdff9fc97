#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise {

/// Writes samples into tar shards in WebDataset's layout: members `key.field`, the members of a
/// sample next to each other.
///
/// Equal samples give equal bytes on every machine: headers contain no times, owners or modes of
/// the machine. Headers are ustar. Pax headers are added only where ustar is too small: names above
/// 100 bytes or not ASCII, and members of 8 GiB or more. Strict policies of build_index() accept
/// the shards.
///
/// A full shard appears under its name at once and complete. close() finishes the last shard. If a
/// writer is destroyed without close(), or killed, the full shards remain, and the unfinished one
/// never appears.
///
/// Threads: one thread.
class SHARDWISE_EXPORT ShardWriter {
 public:
  /// The names of a set's shards: a number, counted from 0, between two texts.
  struct SHARDWISE_EXPORT Names {
    std::string before;   ///< with the folder, e.g. "data/train-"
    unsigned digits = 6;  ///< of the number, at least; padded with zeros
    std::string after = ".tar";

    [[nodiscard]] std::string name(std::uint64_t number) const;
  };

  struct Options {
    /// Samples per shard, at most.
    std::uint64_t max_samples = 1000;
    /// Bytes per shard, at most, counting members with their headers and padding. Pax headers for
    /// long names and the end of the archive (up to 10 KB) come on top. A larger sample gets a
    /// shard to itself.
    std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
    /// Replace existing shards instead of failing. close() also removes shards with higher numbers
    /// that a ShardWriter wrote: they belong to an earlier, larger set.
    bool replace = false;
    /// Write nothing: only read the sizes of files, and count what would be written.
    bool dry_run = false;
  };

  /// One field of a sample to write: bytes, or the content of a file.
  struct Field {
    std::string name;  ///< "jpg", "seg.png"
    std::string_view bytes = {};
    std::string file = {};  ///< if not empty, this file is copied, through a small buffer
  };

  /// @param pattern  in the syntax of parse_shard_names().
  /// Errors: InvalidArgument for a malformed pattern or a limit of 0.
  ShardWriter(std::string_view pattern, const Options& options);
  explicit ShardWriter(std::string_view pattern);
  ShardWriter(const Names& names, const Options& options);
  ~ShardWriter();
  ShardWriter(ShardWriter&&) noexcept;
  ShardWriter& operator=(ShardWriter&&) noexcept;

  /// Writes one sample.
  /// Errors: InvalidArgument, and the sample is not written, if a reader would not find this key
  ///   with these fields. That is so if:
  /// - the key or a field is empty or contains a NUL;
  /// - the last part of the key contains a dot, or a field contains a slash;
  /// - webdataset reserves the name;
  /// - there is no field, or a field occurs twice (ignoring case);
  /// - the key is already in this shard.
  /// Errors: InvalidArgument if a file with the shard's name exists. NotFound, kIo or kNoSpace if a
  ///   file cannot be read or written. If writing had begun, the unfinished shard is dropped, and
  ///   all later calls throw InvalidArgument.
  void write(std::string_view key, std::span<const Field> fields);

  /// Finishes the last shard. Call it once. A writer without samples makes no shard.
  /// Errors: kIo, kNoSpace. InvalidArgument if a write failed before, or if Options::replace would
  ///   replace all shards of an earlier set by none.
  void close();

  /// Counts over the finished shards and the current one. `shard_bytes` counts finished shards
  /// only.
  struct Totals {
    std::uint64_t shards = 0;
    std::uint64_t samples = 0;
    std::uint64_t members = 0;
    std::uint64_t content_bytes = 0;  ///< of the fields alone
    std::uint64_t shard_bytes = 0;    ///< of the files; in a dry run without pax headers
  };
  [[nodiscard]] const Totals& totals() const noexcept;
  /// Paths of the finished shards, in order. In a dry run these files do not exist.
  [[nodiscard]] const std::vector<std::string>& paths() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Parses "data/train-%06d.tar" or "data/train-{:06}.tar". In these, %% stands for a percent sign,
/// and {{ and }} for braces.
/// Errors: InvalidArgument unless the pattern has exactly one number of at most 19 digits, after
///   the last slash.
SHARDWISE_EXPORT ShardWriter::Names parse_shard_names(std::string_view pattern);

}  // namespace shardwise
