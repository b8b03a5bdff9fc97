#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
// jpeglib.h needs stdio.h before it.
#include <jpeglib.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/fixtures.h"

namespace shardwise::bench {

inline constexpr std::size_t kPictureHeight = 375;
inline constexpr std::size_t kPictureWidth = 500;

/// Returns a JPEG of kPictureHeight x kPictureWidth pixels and about 80 KB. Same seed, same bytes.
std::string make_jpeg(unsigned seed, bool progressive);

/// Makes 4 shards with `num_samples` samples in total: fields "jpg", one of 16 such pictures in
/// turn, and "cls".
ShardSet picture_shards(std::uint64_t num_samples);

/// Decodes by libjpeg-turbo alone, into one reused buffer.
class BareJpeg {
 public:
  void read_header(std::string_view bytes);
  /// @param scale  eighths of the original size.
  void decode(std::string_view bytes, unsigned scale = 8);
  /// Uses jpeg_crop_scanline and jpeg_skip_scanlines, so pixels at the edges are wrong.
  void decode_part(std::string_view bytes, std::size_t top, std::size_t left, std::size_t height,
                   std::size_t width);

 private:
  void begin(std::string_view bytes);
  void read_rows(JDIMENSION end);

  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  std::vector<std::uint8_t> out_ = std::vector<std::uint8_t>(kPictureHeight * kPictureWidth * 3);
};

}  // namespace shardwise::bench
