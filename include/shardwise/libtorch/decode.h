#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <torch/types.h>
#include <nlohmann/json_fwd.hpp>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"

/// Decodes fields of samples to tensors and values.
///
/// Threads: every function is safe concurrently. It keeps no state except scratch memory per
///   thread.
/// Errors: bytes that cannot be decoded are a BadField, whose text names shard, sample, field and
///   reason.
/// Security: nothing in a field is executed (pickles are never read), nothing is printed, and the
///   limits in the options bound every allocation.
namespace shardwise::libtorch {

/// Height and width of an image, in pixels. 0 x 0 means the stored size.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;

  [[nodiscard]] bool empty() const noexcept { return height == 0 && width == 0; }
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

struct DecodeOptions {
  /// Resize every image to this size, without keeping its aspect ratio, by antialiased bilinear
  /// interpolation. When an image shrinks, the triangle filter becomes wider, like in Pillow's
  /// BILINEAR and torch's interpolate(antialias=True). Pixel centres are at halves.
  ImageSize resize{};
  /// Largest image in pixels. Larger images are refused before memory is allocated (2^28 pixels
  /// take 768 MiB). Sides above 2^20 pixels are also refused, and narrow strips whose resize would
  /// need many times that memory.
  std::uint64_t max_pixels = std::uint64_t{1} << 28;
  std::size_t max_json_bytes = std::size_t{64} << 20;
  std::size_t max_json_depth = 128;  ///< nesting of arrays and objects
};

/// Decodes an image to RGB. The content determines the format, not the field's name:
///
///   JPEG  baseline and progressive; gray, YCbCr, RGB, CMYK, YCCK (inverted, as Adobe stores inks).
///         The orientation is ignored. Damage that Pillow accepts is accepted; a file that ends
///         before its pixels is an error
///   PNG   gray, palette, RGB, with or without alpha, 1 to 16 bits, interlaced or not. Alpha and
///         transparency are dropped; 16 bits are scaled to 8; gamma and colour profiles are ignored
///   WebP  lossy and lossless; the first frame of an animation. Alpha is dropped
///   PNM   binary PGM and PPM (P5, P6), up to 16 bits, which are scaled to 8
///
/// @return  uint8 [3, H, W], contiguous, on the CPU.
/// Errors: NotFound if there is no such field. BadField. InvalidArgument unless height and width of
///   the size are both 0, or both from 1 to 2^20.
SHARDWISE_EXPORT torch::Tensor decode_image(const Sample& sample, std::string_view field,
                                            const DecodeOptions& options = {});
/// Decodes an image in memory. `where` names the bytes in error texts.
SHARDWISE_EXPORT torch::Tensor decode_image(std::string_view bytes, const DecodeOptions& options,
                                            std::string_view where);

/// Decodes a NumPy .npy array: versions 1 to 3, C or Fortran order, either byte order.
/// @return  a tensor of the array's shape in C order, on the CPU, also for 0-dimensional and empty
///   arrays. The types bool, int8-64, uint8, float16-64, complex64 and complex128 are kept. uint16
///   becomes int32, and uint32 becomes int64.
/// Errors: BadField, also for types that LibTorch lacks (uint64, strings, dates, records), for
///   object arrays, which are pickles, and for data that is shorter or longer than the header
///   states.
SHARDWISE_EXPORT torch::Tensor decode_npy(const Sample& sample, std::string_view field);
SHARDWISE_EXPORT torch::Tensor decode_npy(std::string_view bytes, std::string_view where);

/// Parses a JSON document. Include <nlohmann/json.hpp> to use the result. Errors: BadField, with
/// the byte offset.
SHARDWISE_EXPORT nlohmann::json decode_json(const Sample& sample, std::string_view field,
                                            const DecodeOptions& options = {});
SHARDWISE_EXPORT nlohmann::json decode_json(std::string_view bytes, const DecodeOptions& options,
                                            std::string_view where);

/// Returns a copy of a text field. Errors: BadField if it is not UTF-8.
SHARDWISE_EXPORT std::string decode_text(const Sample& sample, std::string_view field);

/// A field that is not decoded.
struct Bytes {
  std::string data;
};

/// A decoded field: an image or array, a number, a text, a document, or bytes.
using Value = std::variant<torch::Tensor, std::int64_t, std::string,
                           std::shared_ptr<const nlohmann::json>, Bytes>;

/// Decodes one field by WebDataset's naming convention. The part of the name after the last dot
/// determines the decoder, ignoring case: "png", "seg.png" and "left.PNG" are images.
///
///     jpg jpeg png webp ppm pgm pnm        an image, see decode_image()
///     cls cls2 class count index inx id    a whole number
///     txt text transcript                  a text
///     json jsn                             a document
///     npy                                  an array
///     anything else, e.g. pickles          Bytes, unchanged
///
/// Errors: NotFound; BadField.
SHARDWISE_EXPORT Value decode(const Sample& sample, std::string_view field,
                              const DecodeOptions& options = {});
/// Decodes every field of the sample. Returns the values by field name. Errors: BadField.
SHARDWISE_EXPORT std::map<std::string, Value> decode(const Sample& sample,
                                                     const DecodeOptions& options = {});

}  // namespace shardwise::libtorch
