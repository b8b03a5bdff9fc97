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

/// Where the bytes of a shard are, and how they are read if that is no local file.
struct ShardPlace {
  std::string path;                ///< or URL
  RemoteShards* remote = nullptr;  ///< none: a local file
  RemoteShards::State state = {};  ///< of a remote shard
  std::string copy = {};           ///< a local file with its bytes, which is read in its place
};

struct ShardBytesOptions {
  /// Path beside which nameless files are made, for the kept bytes of a shard that is no plain
  /// local file.
  std::string temporary;
  /// Selects the members whose data is needed; a plain local shard has all data anyway.
  SparseTarImage::Keep keep;
  bool hash = false;  ///< stored_hash() will be asked for
  /// Stops expanding and fetching at the first header that cannot be read: the scan will end there
  /// with an error.
  bool stop_at_damage = false;
  /// Called now and then while the file is read and expanded, with how many of its bytes, as it is
  /// stored, were read; an exception from it ends the work.
  std::function<void(std::uint64_t stored_bytes)> tick;
};

/// A shard's bytes as they are scanned: the file itself, mapped, or, if it is compressed or remote,
/// an image of its expanded bytes. A file that is truncated meanwhile does not end the process: the
/// missing bytes read as zeros, and require_unchanged() throws. One thread, to the end of its life.
class ShardBytes {
 public:
  /// Errors: NotFound, kIo; CorruptShard and Unsupported from expanding; kNoSpace; those of
  /// `remote`.
  ShardBytes(const ShardPlace& place, const ShardBytesOptions& options);
  ~ShardBytes();

  Compression compression() const noexcept { return compression_; }
  /// True if it is compressed in a form that carries no checksum over its content.
  bool unchecked() const noexcept { return unchecked_; }
  /// True if the file is scanned as it is, not read to its end already.
  bool is_in_place() const noexcept { return !image_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  std::int64_t mtime_ns() const noexcept { return mtime_ns_; }
  /// To be called when reading is over, also when it ended with an error.
  /// Errors: StaleIndex if the file is not what it was when it was opened.
  void require_unchanged() const;
  /// hash64 of the first 512 bytes of the file as it is stored.
  std::uint64_t first_block_hash() const noexcept { return first_block_hash_; }
  /// hash128 of the file as it is stored. REQUIRES: options.hash, or a compressed shard.
  Hash128 stored_hash() const;
  std::string_view bytes() const noexcept { return image_ ? image_->bytes() : file_->bytes(); }

  /// Tells the kernel that what lies before `offset` is not needed any more, so that scanning a
  /// large shard does not make the process look large.
  void forget_before(std::uint64_t offset) noexcept;
  /// To be called for each member, in the order of the shard. Also forgets what lies before its
  /// data; where members are small, tells the kernel to read ahead.
  void at_member(std::uint64_t data_offset) noexcept;

  /// The shard was scanned to its end, without an error.
  /// Errors: CorruptShard if it was not read to its end, since a header cannot be read.
  void done() const;

 private:
  void open_file(MappedFile file, const ShardBytesOptions& options);
  void expand_into(SparseTarImage::Writer& writer, const ShardBytesOptions& options);
  void stream(const ShardBytesOptions& options);

  const ShardPlace place_;
  std::optional<RemoteShards::Copy> copy_;
  std::optional<File> stored_;            // of a remote compressed shard
  std::optional<MappedFile> file_;        // none: a remote shard that is not compressed
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
