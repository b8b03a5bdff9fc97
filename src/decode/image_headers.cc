// Reads the headers of images without calling the image libraries. This is faster, and the metadata
// is found without copying. Every offset is checked before use.

#include <zlib.h>

#include <algorithm>
#include <optional>
#include <string>

#include "decode/decode_failure.h"
#include "decode/exif.h"
#include "decode/image_formats.h"

namespace shardwise::detail {
namespace {

std::size_t byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}

/// REQUIRES: the range is inside `bytes`.
std::size_t read_big_endian(std::string_view bytes, std::size_t offset, std::size_t num_bytes) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < num_bytes; ++i) value = value << 8 | byte_at(bytes, offset + i);
  return value;
}

/// REQUIRES: the range is inside `bytes`.
std::size_t read_little_endian(std::string_view bytes, std::size_t offset, std::size_t num_bytes) {
  std::size_t value = 0;
  for (std::size_t i = num_bytes; i > 0; --i) value = value << 8 | byte_at(bytes, offset + i - 1);
  return value;
}

// ------------------------------------------------------------------------------------------ JPEG

/// Iterates over the markers before a JPEG's first scan. Like libjpeg, it skips bytes that are not
/// part of a segment.
class JpegMarkers {
 public:
  explicit JpegMarkers(std::string_view bytes) : bytes_(bytes) {}

  enum Code : std::size_t {
    kTem = 0x01,
    kSof0 = 0xC0,
    kDht = 0xC4,
    kJpg = 0xC8,
    kDac = 0xCC,
    kSof15 = 0xCF,
    kRst0 = 0xD0,
    kEoi = 0xD9,
    kSos = 0xDA,
    kApp1 = 0xE1
  };

  /// Moves to the next marker that has a segment or ends the image. Returns false if the data ends
  /// first.
  bool next() {
    do {
      at_ = std::min(bytes_.find('\xFF', at_), bytes_.size());
      at_ = std::min(bytes_.find_first_not_of('\xFF', at_), bytes_.size());
      if (at_ == bytes_.size()) return false;
      code_ = byte_at(bytes_, at_++);
    } while (code_ <= kTem || (code_ >= kRst0 && code_ < kEoi));
    if (code_ == kEoi) return true;
    if (bytes_.size() - at_ < 2) return false;
    const std::size_t size = std::max<std::size_t>(read_big_endian(bytes_, at_, 2), 2) - 2;
    at_ += 2;
    if (size > bytes_.size() - at_) return false;
    segment_ = bytes_.substr(at_, size);
    at_ += size;
    return true;
  }
  std::size_t code() const { return code_; }
  std::string_view segment() const { return segment_; }
  bool is_frame_header() const {
    return code_ >= kSof0 && code_ <= kSof15 && code_ != kDht && code_ != kJpg && code_ != kDac;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 2;  // starts after the marker that begins the image
  std::size_t code_ = 0;
  std::string_view segment_;
};

// ------------------------------------------------------------------------------------------- PNG

/// Inflates as much of `bytes` as possible. Returns an empty text if they are damaged, or inflate
/// to more than 1 MiB.
std::string inflated(std::string_view bytes) {
  constexpr std::size_t kMax = std::size_t{1} << 20;
  constexpr std::size_t kMaxRatio = 1032;  // zlib's
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return {};
  std::string text(std::min(kMax, bytes.size() * kMaxRatio) + 1, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  const std::size_t size = text.size() - stream.avail_out;
  inflateEnd(&stream);
  const bool is_whole = result == Z_STREAM_END || result == Z_BUF_ERROR;
  text.resize(is_whole && size <= kMax ? size : 0);
  return text;
}

/// Moves the text before the next zero byte from `rest` to `word`, and removes the zero byte.
/// Returns false if there is no zero byte.
bool take_word(std::string_view& rest, std::string_view& word) {
  const std::size_t end = rest.find('\0');
  if (end == std::string_view::npos) return false;
  word = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

/// A tEXt, zTXt or iTXt chunk: its keyword, and the data after it.
struct PngText {
  std::string_view name;
  std::string_view rest;

  [[nodiscard]] std::string text() const {
    std::string_view left = rest;
    if (name == "tEXt") return std::string(left);
    bool is_compressed = name == "zTXt";
    if (name == "iTXt" && !left.empty()) {
      is_compressed = left[0] != '\0';
      left.remove_prefix(1);
    }
    // The format defines only one compression method.
    if (left.empty() || (is_compressed && left[0] != '\0')) return {};
    left.remove_prefix(1);
    std::string_view word;
    if (name == "iTXt" && !(take_word(left, word) && take_word(left, word))) return {};
    return is_compressed ? inflated(left) : std::string(left);
  }
};

/// Finds the orientation in a PNG's chunks. The last chunk of each kind is used, and only that
/// chunk is decompressed.
class PngMetadata {
 public:
  void take(std::string_view name, std::string_view data) {
    if (name == "eXIf") {
      exif_ = data;
      return;
    }
    std::string_view keyword;
    if ((name != "tEXt" && name != "zTXt" && name != "iTXt") || !take_word(data, keyword)) return;
    if (keyword == "XML:com.adobe.xmp") xmp_ = {name, data};
    if (keyword == "Raw profile type exif") profile_ = {name, data};
  }
  [[nodiscard]] unsigned orientation() const {
    const std::string profile = exif_.empty() ? raw_profile(profile_.text()) : std::string();
    return orientation_of(exif_.empty() ? profile : exif_, xmp_.text());
  }

 private:
  std::string_view exif_;
  PngText profile_;
  PngText xmp_;
};

// ------------------------------------------------------------------------------------------ WebP

struct WebpChunk {
  std::string_view name;
  std::string_view data;
};

/// Removes the next complete chunk from `rest`. Returns nullopt if no complete chunk is left.
std::optional<WebpChunk> take_webp_chunk(std::string_view& rest) {
  if (rest.size() < 8) return std::nullopt;
  const std::size_t size = read_little_endian(rest, 4, 4);
  if (size > rest.size() - 8) return std::nullopt;
  const WebpChunk chunk{rest.substr(0, 4), rest.substr(8, size)};
  rest.remove_prefix(std::min(rest.size(), 8 + size + size % 2));
  return chunk;
}

/// Reads the header of a bitstream without a container. The bitstream may be truncated.
ImageHeader bare_webp_header(std::string_view name, std::string_view data) {
  if (name == "VP8 " && data.size() >= 10 && data.substr(3, 3) == "\x9D\x01\x2A") {
    return {read_little_endian(data, 8, 2) & 0x3FFF, read_little_endian(data, 6, 2) & 0x3FFF, 1};
  }
  if (name == "VP8L" && data.size() >= 5 && data[0] == '\x2F') {
    const std::size_t bits = read_little_endian(data, 1, 4);
    return {(bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 1};
  }
  throw DecodeFailure("WebP: the header is damaged or ends early");
}

constexpr std::size_t kWebpHeaderBytes = 12;
constexpr std::size_t kAnimationFlag = 0x02;
constexpr std::size_t kXmpFlag = 0x04;
constexpr std::size_t kExifFlag = 0x08;

}  // namespace

ImageHeader read_jpeg_header(std::string_view bytes) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  ImageHeader header{0, 0, 1};
  bool has_frame = false;
  std::string_view exif;
  std::string extended;
  std::string_view xmp;
  JpegMarkers markers(bytes);
  for (bool more = markers.next(); more; more = markers.next()) {
    if (markers.code() == JpegMarkers::kEoi || markers.code() == JpegMarkers::kSos) break;
    const std::string_view segment = markers.segment();
    if (markers.is_frame_header() && segment.size() >= 5 && !has_frame) {
      has_frame = true;
      header.height = read_big_endian(segment, 1, 2);
      header.width = read_big_endian(segment, 3, 2);
    } else if (markers.code() == JpegMarkers::kApp1 && segment.starts_with(kExif)) {
      if (!exif.empty()) {  // a large block is split into several segments
        if (extended.empty()) extended = exif;
        extended += segment.substr(kExif.size());
      }
      exif = extended.empty() ? segment : extended;
    } else if (markers.code() == JpegMarkers::kApp1 && segment.starts_with(kXmp)) {
      xmp = segment.substr(kXmp.size());
    }
  }
  if (!has_frame) throw DecodeFailure("JPEG: the data holds no frame header");
  header.orientation = orientation_of(exif, xmp);
  return header;
}

ImageHeader read_png_header(std::string_view bytes) {
  constexpr std::size_t kSignatureBytes = 8;
  constexpr std::size_t kAroundData = 12;  // bytes of a chunk's length, name and CRC
  std::string_view rest = bytes.substr(kSignatureBytes);
  if (rest.size() < 25) throw DecodeFailure("PNG: the data ends early");
  if (rest.substr(4, 4) != "IHDR") throw DecodeFailure("PNG: the first chunk is not IHDR");
  ImageHeader header{read_big_endian(rest, 12, 4), read_big_endian(rest, 8, 4), 1};
  PngMetadata metadata;
  while (rest.size() >= kAroundData) {
    const std::size_t size = read_big_endian(rest, 0, 4);
    if (size > rest.size() - kAroundData) break;
    const std::string_view name = rest.substr(4, 4);
    if (name == "IEND") break;
    metadata.take(name, rest.substr(8, size));
    rest.remove_prefix(size + kAroundData);
  }
  header.orientation = metadata.orientation();
  return header;
}

ImageHeader read_webp_header(std::string_view bytes) {
  std::string_view rest = bytes.substr(kWebpHeaderBytes);
  if (rest.substr(0, 4) != "VP8X") {
    if (rest.size() < 8) throw DecodeFailure("WebP: the data ends early");
    return bare_webp_header(rest.substr(0, 4), rest.substr(8));
  }
  const auto extended = take_webp_chunk(rest);
  if (!extended || extended->data.size() < 10) throw DecodeFailure("WebP: the data ends early");
  ImageHeader header{read_little_endian(extended->data, 7, 3) + 1,
                     read_little_endian(extended->data, 4, 3) + 1, 1};
  const std::size_t flags = byte_at(extended->data, 0);
  std::string_view exif;
  std::string_view xmp;
  while (const auto chunk = take_webp_chunk(rest)) {
    if (chunk->name == "EXIF" && (flags & kExifFlag) != 0 && exif.empty()) exif = chunk->data;
    if (chunk->name == "XMP " && (flags & kXmpFlag) != 0 && xmp.empty()) xmp = chunk->data;
  }
  header.orientation = orientation_of(exif, xmp);
  return header;
}

WebpFrame first_webp_frame(std::string_view bytes, const ImageHeader& header) {
  std::string_view rest = bytes.substr(kWebpHeaderBytes);
  const Box canvas{0, 0, header.height, header.width};
  if (rest.substr(0, 4) != "VP8X") return {bytes, canvas};
  const auto extended = take_webp_chunk(rest);
  if (!extended || (byte_at(extended->data, 0) & kAnimationFlag) == 0) return {bytes, canvas};
  if (read_little_endian(bytes, 4, 4) > bytes.size() - 8) {
    throw DecodeFailure("WebP: the data ends early");
  }
  while (const auto chunk = take_webp_chunk(rest)) {
    constexpr std::size_t kFrameHeaderBytes = 16;
    if (chunk->name != "ANMF" || chunk->data.size() < kFrameHeaderBytes) continue;
    const auto number = [&](std::size_t offset) {
      return read_little_endian(chunk->data, offset, 3);
    };
    const Box place{2 * number(3), 2 * number(0), number(9) + 1, number(6) + 1};
    if (place.height > canvas.height || place.width > canvas.width ||
        place.top > canvas.height - place.height || place.left > canvas.width - place.width) {
      throw DecodeFailure("WebP: a frame lies outside the canvas");
    }
    return {chunk->data.substr(kFrameHeaderBytes), place};
  }
  throw DecodeFailure("WebP: an animation without a frame");
}

}  // namespace shardwise::detail
