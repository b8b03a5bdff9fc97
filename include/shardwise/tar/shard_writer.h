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

/// Writes samples into tar shards in WebDataset's layout: members are named `key.field`, and the
/// members of a sample are consecutive.
///
/// Equal samples give equal bytes on every machine: headers contain no times, owners or modes of
/// the machine. Headers are ustar. Pax headers are added only where ustar does not suffice: for
/// names above 100 bytes or not ASCII, and for members of 8 GiB or more. The shards satisfy the
/// strict policies of build_index().
///
/// A shard appears under its name as soon as it is full, and only complete. close() finishes the
/// last shard. If a writer is destroyed without close(), or killed, the full shards remain, and the
/// unfinished shard never appears.
///
/// Threads: one thread.
class SHARDWISE_EXPORT ShardWriter {
 public:
  /// The names of the shards that a writer makes: a number, counted from 0, between two texts.
  struct SHARDWISE_EXPORT Names {
    std::string before;   ///< with the folder, e.g. "data/train-"
    unsigned digits = 6;  ///< least number of digits; shorter numbers are padded with zeros
    std::string after = ".tar";

    [[nodiscard]] std::string name(std::uint64_t number) const;
  };

  struct Options {
    /// Largest number of samples in a shard.
    std::uint64_t max_samples = 1000;
    /// Largest size of a shard, counting members with their headers and padding. Pax headers for
    /// long names, and the end of the archive (up to 10 KB), are not counted. A larger sample
    /// becomes the only sample of its shard.
    std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
    /// Replace existing shards instead of failing. close() also removes shards with higher numbers
    /// that a ShardWriter wrote earlier, because they belong to an earlier, larger set.
    bool replace = false;
    /// Number of the first shard.
    std::uint64_t first = 0;
    /// Write nothing. Only read the sizes of files, and count what would be written.
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
  /// Errors: InvalidArgument if a reader of the shard would not find this key with these fields.
  ///   The sample is then not written. This happens if:
  /// - the key or a field is empty or contains a NUL;
  /// - the last part of the key contains a dot, or a field contains a slash;
  /// - webdataset reserves the name;
  /// - there is no field, or a field occurs twice (ignoring case);
  /// - the key is already in this shard.
  /// Errors: InvalidArgument if a file with the shard's name exists. NotFound, kIo or kNoSpace if a
  ///   file cannot be read or written. If writing had begun, the unfinished shard is dropped, and
  ///   all later calls throw InvalidArgument.
  void write(std::string_view key, std::span<const Field> fields);

  /// Finishes the last shard. Call it once. If no sample was written, no shard is made.
  /// Errors: kIo, kNoSpace. InvalidArgument if a write failed before. InvalidArgument also if no
  ///   sample was written and Options::replace would remove the shards of an earlier set.
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

/// Parses "data/train-%06d.tar" or "data/train-{:06}.tar". In a pattern, %% means a percent sign,
/// and {{ and }} mean braces.
/// Errors: InvalidArgument unless the pattern has exactly one number of at most 19 digits, after
///   the last slash.
SHARDWISE_EXPORT ShardWriter::Names parse_shard_names(std::string_view pattern);

}  // namespace shardwise
