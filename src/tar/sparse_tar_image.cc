#include "tar/sparse_tar_image.h"

#include <algorithm>

#include "base/assert.h"
#include "tar/tar_header.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kMaxBody = std::uint64_t{1} << 62;

MappedFile write_image(File& image, const SparseTarImage::Keep& keep,
                       const std::function<void(SparseTarImage::Writer&)>& feed) {
  SparseTarImage::Writer writer(image, keep);
  feed(writer);
  image.resize(writer.finish());
  return MappedFile::open(image);
}

}  // namespace

void SparseTarImage::Writer::take(std::string_view bytes) {
  pending_ += bytes;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const std::size_t left = pending_.size() - at;
    if (keep_rest_) {
      write(at, left);
      at += left;
    } else if (body_left_ > 0) {
      const auto now = static_cast<std::size_t>(std::min<std::uint64_t>(body_left_, left));
      if (keep_body_) write(at, now);
      at += now;
      body_left_ -= now;
    } else if (left >= tar::kBlockBytes && tar::is_zero_block(pending_.data() + at)) {
      at += tar::kBlockBytes;  // a hole reads as zeros
      behind_end_ = true;
    } else if (in_rubbish_) {
      if (left < tar::kBlockBytes) break;
      if (!rubbish_has_header_ && tar::has_valid_checksum(pending_.data() + at)) {
        write(at, tar::kBlockBytes);
        rubbish_has_header_ = true;
      }
      at += tar::kBlockBytes;
    } else if (!take_header(at)) {
      break;
    }
  }
  first_ += at;
  pending_.erase(0, at);
}

std::uint64_t SparseTarImage::Writer::skippable() const noexcept {
  return pending_.empty() && !keep_rest_ && !keep_body_ ? body_left_ : 0;
}

void SparseTarImage::Writer::skip(std::uint64_t num_bytes) noexcept {
  SHARDWISE_ASSERT(num_bytes <= skippable());
  first_ += num_bytes;
  body_left_ -= num_bytes;
}

std::uint64_t SparseTarImage::Writer::finish() {
  write(0, pending_.size());
  return first_ + pending_.size();
}

/// Moves `at` past one entry's headers. Returns false if they may continue in the next piece.
bool SparseTarImage::Writer::take_header(std::size_t& at) {
  std::string why;
  const auto entry = tar::read_raw_entry(pending_, at, &why);
  if (!entry) {
    if (pending_.size() - at < tar::kMaxHeaderBytes) return false;
    write(at, tar::kMaxHeaderBytes);
    at += tar::kMaxHeaderBytes;
    in_rubbish_ = true;
    rubbish_follows_end_ = behind_end_;
    return true;
  }
  behind_end_ = false;
  write(at, static_cast<std::size_t>(entry->data_offset) - at);
  at = static_cast<std::size_t>(entry->data_offset);
  const tar::EntryKind kind = entry->kind();
  if (kind == tar::EntryKind::kFile && entry->size <= kMaxBody) {
    body_left_ = tar::padded(entry->size);
    keep_body_ = keep_(entry->name, entry->size);
  } else if (entry->size != 0 || kind == tar::EntryKind::kUnsupported) {
    keep_rest_ = true;  // keep the rest: only the scan can decide whether the entry has a body
  }
  return true;
}

void SparseTarImage::Writer::write(std::size_t at, std::size_t size) {
  file_.write_at(first_ + at, std::string_view(pending_).substr(at, size));
}

SparseTarImage::SparseTarImage(const std::string& temporary, const Keep& keep,
                               const std::function<void(Writer&)>& feed)
    : file_(File::create_nameless(temporary)), mapped_(write_image(file_, keep, feed)) {}

}  // namespace shardwise
