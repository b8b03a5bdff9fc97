#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "index/header_image.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/mapped_file.h"
#include "shardwise/base/mapped_read.h"

namespace shardwise {

/// A shard's bytes as they are scanned: the file itself, mapped, or, if it is compressed, an image
/// of what it expands to. A file that is truncated meanwhile does not end the process: what is gone
/// reads as zeros, and require_unchanged() throws. One thread, to the end of its life.
class ExpandedShard {
 public:
  /// @param temporary  see HeaderImage; not touched unless the shard is compressed.
  /// @param keep       the members whose data is wanted; of a plain shard there is all data.
  /// Errors: NotFound, kIo; as HeaderImage.
  ExpandedShard(const std::string& path, const std::string& temporary,
                const HeaderImage::Keep& keep, const std::function<void()>& tick);

  Compression compression() const noexcept { return compression_; }
  const FileIdentity& identity() const noexcept { return file_.identity(); }
  /// To be called when reading is over, also when it ended with an error.
  /// Errors: StaleIndex if the file is not what it was when it was opened.
  void require_unchanged() const;
  /// The file as it is stored.
  std::string_view stored_bytes() const noexcept { return file_.bytes(); }
  std::string_view bytes() const noexcept { return image_ ? image_->bytes() : file_.bytes(); }

  /// Tells the kernel that what lies before `offset` is not needed any more, so that scanning a
  /// large shard does not make the process look large.
  void forget_before(std::uint64_t offset) noexcept;

 private:
  const std::string path_;
  MappedFile file_;
  MappedReadGuard guard_;  // of file_
  Compression compression_;
  std::optional<HeaderImage> image_;
  std::uint64_t forgotten_ = 0;
};

/// By content; an uncompressed tar is one whatever its first member is called.
Compression shard_compression(std::string_view stored_bytes) noexcept;

}  // namespace shardwise
