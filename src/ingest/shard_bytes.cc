#include "ingest/shard_bytes.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/assert.h"
#include "base/expanding_reader.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "tar/tar_header.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// A remote shard is requested in parts. Parts grow while members are small. After each member that
// is worth skipping, the next part is small again.
constexpr std::uint64_t kFirstPartBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kLargestPartBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kWorthSkippingBytes = std::uint64_t{1} << 20;

}  // namespace

ShardBytes::ShardBytes(const ShardPlace& place, const ShardBytesOptions& options) : place_(place) {
  if (!place_.copy.empty()) {
    open_file(MappedFile::open(place_.copy), options);
  } else if (place_.remote == nullptr) {
    open_file(MappedFile::open(place_.path), options);
    mtime_ns_ = file_->identity().mtime_ns;
  } else if ((copy_ = place_.remote->copy(place_.path, place_.state))) {
    open_file(MappedFile::open(copy_->path), options);
  } else {
    stream(options);
  }
}

ShardBytes::~ShardBytes() = default;

void ShardBytes::open_file(MappedFile file, const ShardBytesOptions& options) {
  file_.emplace(std::move(file));
  const std::string_view stored = file_->bytes();
  guard_.emplace(stored.data(), stored.size());
  read_ahead_ = ReadAhead(stored);
  if (options.hash) read_ahead_.read_all();
  size_bytes_ = stored.size();
  compression_ = shard_compression(stored);
  first_block_hash_ = hash64(stored.substr(0, tar::kBlockBytes));
  if (compression_ == Compression::kNone) return;
  read_ahead_.read_all();
  try {
    image_.emplace(options.temporary, options.keep,
                   [&](SparseTarImage::Writer& writer) { expand_into(writer, options); });
  } catch (const CorruptShard&) {
    require_unchanged();
    throw;
  }
}

void ShardBytes::expand_into(SparseTarImage::Writer& writer, const ShardBytesOptions& options) {
  ExpandingReader reader(file_->bytes(), compression_, without_secrets(place_.path));
  std::string piece(kPieceBytes, '\0');
  while (const std::size_t n = reader.read(piece.data(), piece.size())) {
    options.tick(reader.compressed_position());
    writer.take(std::string_view(piece).substr(0, n));
    stopped_ = options.stop_at_damage && writer.at_damage();
    if (stopped_) break;
  }
  unchecked_ = reader.unchecked();
}

/// Reads a remote shard once, from front to back. Skips bytes that are not needed.
void ShardBytes::stream(const ShardBytesOptions& options) {
  RemoteShards& remote = *place_.remote;
  const RemoteShards::State& state = place_.state;
  Hasher128 hasher;
  std::string first;  // first bytes, collected until they show the kind of compression
  bool decided = false;
  std::uint64_t brought = 0;  // number of bytes read or skipped
  image_.emplace(options.temporary, options.keep, [&](SparseTarImage::Writer& writer) {
    const auto pass_on = [&](std::string_view bytes) {
      if (stored_) {
        stored_->write(bytes);
      } else {
        writer.take(bytes);
      }
    };
    const auto decide = [&] {
      decided = true;
      compression_ = shard_compression(first);
      first_block_hash_ = hash64(std::string_view(first).substr(0, tar::kBlockBytes));
      if (compression_ != Compression::kNone) stored_ = File::create_nameless(options.temporary);
      pass_on(first);
    };
    const auto take = [&](std::string_view bytes) {
      options.tick(brought += bytes.size());
      if (options.hash) hasher.update(bytes);
      if (decided) return pass_on(bytes);
      first += bytes;
      if (first.size() >= tar::kBlockBytes) decide();
    };
    if (options.hash || !state.has_ranges || !state.size_bytes) {
      remote.read(place_.path, state, 0, std::nullopt, take);
    } else {
      std::uint64_t part = kFirstPartBytes;
      for (std::uint64_t at = 0; at < *state.size_bytes;) {
        const std::uint64_t end = std::min(*state.size_bytes, at + part);
        remote.read(place_.path, state, at, end, take);
        at = end;
        stopped_ = options.stop_at_damage && writer.at_damage();
        if (stopped_) break;
        const std::uint64_t rest = std::min(writer.skippable(), *state.size_bytes - at);
        if (rest >= kWorthSkippingBytes) {
          writer.skip(rest);
          at += rest;
          brought += rest;
          part = kFirstPartBytes;
        } else {
          part = std::min(4 * part, kLargestPartBytes);
        }
      }
    }
    if (!decided) decide();
  });
  if (stored_) {
    image_.reset();
    open_file(MappedFile::open(*stored_), options);
    return;
  }
  if (options.hash) streamed_hash_ = hasher.digest();
  size_bytes_ = image_->bytes().size();
}

void ShardBytes::require_unchanged() const {
  if (!file_) return;  // the validator of each response was checked
  const bool whole = !guard_->damaged();
  const std::string& path = place_.copy.empty() ? place_.path : place_.copy;
  if (whole && (place_.remote != nullptr || file_identity(path) == file_->identity())) return;
  throw StaleIndex("the shard changed while it was read", in_quotes(without_secrets(place_.path)),
                   "wait until it is complete, then run again");
}

Hash128 ShardBytes::stored_hash() const {
  SHARDWISE_ASSERT(streamed_hash_ || file_);
  return streamed_hash_ ? *streamed_hash_ : hash128(file_->bytes());
}

void ShardBytes::done() const {
  if (stopped_) {
    throw CorruptShard("the compressed shard has an unreadable header",
                       in_quotes(without_secrets(place_.path)), "repack the shard");
  }
  if (!copy_ || compression_ == Compression::kNone) return;
  place_.remote->keep_expanded(place_.path, place_.state, copy_->path, compression_,
                               bytes().size());
}

void ShardBytes::at_member(std::uint64_t data_offset) noexcept {
  if (is_in_place()) read_ahead_.at(data_offset);
  forget_before(data_offset);
}

void ShardBytes::forget_before(std::uint64_t offset) noexcept {
  constexpr std::uint64_t kStepBytes = std::uint64_t{8} << 20;  // a multiple of every page size
  if (offset - forgotten_ < 2 * kStepBytes) return;
  const std::uint64_t end = offset / kStepBytes * kStepBytes;
  // This drops only the pages of the mapping. The file stays in the page cache.
  ::madvise(const_cast<char*>(bytes().data()) + forgotten_, end - forgotten_, MADV_DONTNEED);
  forgotten_ = end;
}

}  // namespace shardwise
