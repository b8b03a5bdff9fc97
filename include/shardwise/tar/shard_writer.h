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

/// Writes samples into tar shards, one after another, as WebDataset has them: member `key.field`,
/// the members of a sample side by side.
///
/// Equal samples make equal bytes on every machine: headers hold no times, owners or modes of the
/// machine. They are ustar headers, with pax ones only for what ustar cannot say (names above 100
/// bytes, or not ASCII; members above 8 GiB). `build_index` accepts the shards under strict
/// policies.
///
/// A shard appears under its name when it is full, whole or not at all; the last by close(). A
/// writer that is destroyed without close(), or killed, leaves the shards that were full, and
/// nothing of the one that was not. One thread.
class SHARDWISE_EXPORT ShardWriter {
 public:
  /// How the shards of a set are named: a number, from 0, between two texts.
  struct SHARDWISE_EXPORT Names {
    std::string before;   ///< folder and all: "data/train-"
    unsigned digits = 6;  ///< of the number, at least; filled up with zeros
    std::string after = ".tar";

    [[nodiscard]] std::string name(std::uint64_t number) const;
  };

  struct Options {
    /// Samples a shard, at most.
    std::uint64_t max_samples = 1000;
    /// Bytes a shard, at most: of its members with their headers and padding; long names and the
    /// end of the archive (10 KB at most) come on top. A sample that is larger gets a shard of its
    /// own.
    std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
    /// Replace shards that are there already, instead of failing. close() removes those of higher
    /// numbers that a ShardWriter wrote: they are of an earlier and larger set.
    bool replace = false;
    /// Write nothing: only look at files and count what would be written.
    bool dry_run = false;
  };

  /// A field of a sample that is to be written: bytes, or what a file holds.
  struct Field {
    std::string name;  ///< "jpg", "seg.png"
    std::string_view bytes = {};
    std::string file = {};  ///< unless empty it is copied, through a small buffer
  };

  /// `pattern` as of parse_shard_names. Errors: InvalidArgument (the pattern, a limit of 0).
  ShardWriter(std::string_view pattern, const Options& options);
  explicit ShardWriter(std::string_view pattern);
  ShardWriter(const Names& names, const Options& options);
  ~ShardWriter();
  ShardWriter(ShardWriter&&) noexcept;
  ShardWriter& operator=(ShardWriter&&) noexcept;

  /// Writes one sample.
  /// Errors: InvalidArgument, and nothing is written, if a reader would not find this key with
  ///   these fields: key or field is empty or holds a NUL, there is a dot in the key's last part or
  ///   a slash in a field, the name is one that webdataset reserves, a field comes twice
  ///   (in any case), the key is in this shard already, or there is no field; or if a shard's name
  ///   is taken. NotFound, kIo (a file), kNoSpace: the shard is dropped, and the writer takes
  ///   nothing more, if something of the sample was written by then.
  void write(std::string_view key, std::span<const Field> fields);

  /// Finishes the last shard. Once; a writer without samples makes no shard.
  /// Errors: kIo, kNoSpace; InvalidArgument if a write failed before, or if all shards of an
  ///   earlier set would be replaced by none.
  void close();

  /// Counts over finished shards and the one that is being written; `shard_bytes` counts finished
  /// shards only.
  struct Totals {
    std::uint64_t shards = 0;
    std::uint64_t samples = 0;
    std::uint64_t members = 0;
    std::uint64_t content_bytes = 0;  ///< of the fields alone
    std::uint64_t shard_bytes = 0;    ///< of the files; a dry run does not count long names
  };
  [[nodiscard]] const Totals& totals() const noexcept;
  /// Paths of the shards that are finished, in order; those of a dry run do not exist.
  [[nodiscard]] const std::vector<std::string>& paths() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads "data/train-%06d.tar" or "data/train-{:06}.tar"; %% stands for a percent sign, {{ and }}
/// for braces.
/// Errors: InvalidArgument, unless there is one number in it, of at most 19 digits, behind the
///   last slash.
SHARDWISE_EXPORT ShardWriter::Names parse_shard_names(std::string_view pattern);

}  // namespace shardwise
