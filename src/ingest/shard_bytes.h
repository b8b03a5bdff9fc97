#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/mapped_read.h"
#include "ingest/read_ahead.h"
#include "ingest/remote_shards.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/hash.h"
#include "tar/sparse_tar_image.h"

namespace shardwise {

/// The location of a shard's bytes, and the way to read a remote shard.
struct ShardPlace {
  std::string path;                ///< path, or URL
  RemoteShards* remote = nullptr;  ///< null for a local file
  RemoteShards::State state = {};  ///< state of a remote shard
  std::string copy = {};           ///< a local file to read instead; may be empty
};

struct ShardBytesOptions {
  /// Compressed and remote shards need nameless temporary files, which are created in the folder of
  /// this path.
  std::string temporary;
  /// Selects the members whose data is kept. A local uncompressed shard always has all data.
  SparseTarImage::Keep keep;
  bool hash = false;  ///< true if stored_hash() will be called
  /// Stop expanding and fetching at the first unreadable header, because the scan will fail there.
  bool stop_at_damage = false;
  /// Called from time to time with the number of stored bytes read so far. If it throws, the work
  /// ends and the exception is rethrown.
  std::function<void(std::uint64_t stored_bytes)> tick;
};

/// A shard's bytes for scanning: the mapped file or, if the shard is compressed or remote, an image
/// of its expanded bytes. Truncating the file during the scan does not crash the process: missing
/// bytes read as zeros, and require_unchanged() throws.
/// Threads: one, which must also destroy the object.
class ShardBytes {
 public:
  /// Errors: NotFound, kIo; CorruptShard and Unsupported if expanding fails; kNoSpace; errors of
  ///   `remote`.
  ShardBytes(const ShardPlace& place, const ShardBytesOptions& options);
  ~ShardBytes();

  Compression compression() const noexcept { return compression_; }
  /// True if the compressed form has no checksum of the content.
  bool unchecked() const noexcept { return unchecked_; }
  /// True if the file itself is scanned, so that reading it is part of the scan.
  bool is_in_place() const noexcept { return !image_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  std::int64_t mtime_ns() const noexcept { return mtime_ns_; }
  /// Call this after reading, even if reading failed.
  /// Errors: StaleIndex if the file has changed since it was opened.
  void require_unchanged() const;
  /// hash64 of the first 512 bytes as stored.
  std::uint64_t first_block_hash() const noexcept { return first_block_hash_; }
  /// hash128 of all bytes as stored.
  /// REQUIRES: options.hash is true, or the shard is compressed.
  Hash128 stored_hash() const;
  std::string_view bytes() const noexcept { return image_ ? image_->bytes() : file_->bytes(); }

  /// Lets the kernel drop the pages before `offset`, so that scanning a large shard does not
  /// increase the process's memory.
  void forget_before(std::uint64_t offset) noexcept;
  /// Call this for each member, in shard order. Drops the pages before the member's data. If
  /// members are small, also lets the kernel read ahead.
  void at_member(std::uint64_t data_offset) noexcept;

  /// Call this when the scan has reached the end without an error.
  /// Errors: CorruptShard if expanding stopped at an unreadable header.
  void done() const;

 private:
  void open_file(MappedFile file, const ShardBytesOptions& options);
  void expand_into(SparseTarImage::Writer& writer, const ShardBytesOptions& options);
  void stream(const ShardBytesOptions& options);

  const ShardPlace place_;
  std::optional<RemoteShards::Copy> copy_;
  std::optional<File> stored_;            // file of a remote compressed shard, as stored
  std::optional<MappedFile> file_;        // empty if the shard is remote and uncompressed
  std::optional<MappedReadGuard> guard_;  // guards file_
  std::optional<SparseTarImage> image_;
  Compression compression_ = Compression::kNone;
  bool unchecked_ = false;
  bool stopped_ = false;  // expanding stopped at an unreadable header
  std::uint64_t size_bytes_ = 0;
  std::int64_t mtime_ns_ = 0;
  std::uint64_t first_block_hash_ = 0;
  std::optional<Hash128> streamed_hash_;
  std::uint64_t forgotten_ = 0;
  ReadAhead read_ahead_;
};

}  // namespace shardwise
