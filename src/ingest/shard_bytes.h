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

/// Where a shard's bytes are, and how a remote shard is read.
struct ShardPlace {
  std::string path;                ///< or URL
  RemoteShards* remote = nullptr;  ///< null for a local file
  RemoteShards::State state = {};  ///< of a remote shard
  std::string copy = {};           ///< if not empty, a local file that is read instead
};

struct ShardBytesOptions {
  /// Nameless temporary files are made in the folder of this path, for compressed and remote
  /// shards.
  std::string temporary;
  /// Selects the members whose data is kept. A local uncompressed shard has all data anyway.
  SparseTarImage::Keep keep;
  bool hash = false;  ///< true if stored_hash() will be called
  /// Stops expanding and fetching at the first unreadable header, where the scan will fail.
  bool stop_at_damage = false;
  /// Called now and then with the number of stored bytes read so far. An exception from it ends the
  /// work.
  std::function<void(std::uint64_t stored_bytes)> tick;
};

/// A shard's bytes as they are scanned: the mapped file or, if the shard is compressed or remote,
/// an image of its expanded bytes. If the file is truncated meanwhile, the process survives: the
/// missing bytes read as zeros, and require_unchanged() throws.
/// Threads: one, which also destroys it.
class ShardBytes {
 public:
  /// Errors: NotFound, kIo; CorruptShard and Unsupported from expanding; kNoSpace; those of
  /// `remote`.
  ShardBytes(const ShardPlace& place, const ShardBytesOptions& options);
  ~ShardBytes();

  Compression compression() const noexcept { return compression_; }
  /// True if its compressed form has no checksum of the content.
  bool unchecked() const noexcept { return unchecked_; }
  /// True if the file is scanned in place, so that reading it is part of the scan.
  bool is_in_place() const noexcept { return !image_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  std::int64_t mtime_ns() const noexcept { return mtime_ns_; }
  /// Call after reading, even if it failed.
  /// Errors: StaleIndex if the file changed since it was opened.
  void require_unchanged() const;
  /// hash64 of the first 512 stored bytes.
  std::uint64_t first_block_hash() const noexcept { return first_block_hash_; }
  /// hash128 of all stored bytes.
  /// REQUIRES: options.hash, or a compressed shard.
  Hash128 stored_hash() const;
  std::string_view bytes() const noexcept { return image_ ? image_->bytes() : file_->bytes(); }

  /// Lets the kernel drop the pages before `offset`, so that scanning a large shard does not
  /// inflate the process's memory.
  void forget_before(std::uint64_t offset) noexcept;
  /// Call for each member, in shard order. Forgets the bytes before its data. If members are small,
  /// it lets the kernel read ahead.
  void at_member(std::uint64_t data_offset) noexcept;

  /// Call after the scan reached the end without an error.
  /// Errors: CorruptShard if expanding stopped at an unreadable header.
  void done() const;

 private:
  void open_file(MappedFile file, const ShardBytesOptions& options);
  void expand_into(SparseTarImage::Writer& writer, const ShardBytesOptions& options);
  void stream(const ShardBytesOptions& options);

  const ShardPlace place_;
  std::optional<RemoteShards::Copy> copy_;
  std::optional<File> stored_;            // of a remote compressed shard
  std::optional<MappedFile> file_;        // empty for a remote uncompressed shard
  std::optional<MappedReadGuard> guard_;  // of file_
  std::optional<SparseTarImage> image_;
  Compression compression_ = Compression::kNone;
  bool unchecked_ = false;
  bool stopped_ = false;  // at damage
  std::uint64_t size_bytes_ = 0;
  std::int64_t mtime_ns_ = 0;
  std::uint64_t first_block_hash_ = 0;
  std::optional<Hash128> streamed_hash_;
  std::uint64_t forgotten_ = 0;
  ReadAhead read_ahead_;
};

}  // namespace shardwise
