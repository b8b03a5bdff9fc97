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

/// Fields of samples to tensors and values.
///
/// Threads: every function is safe concurrently and keeps no state but scratch memory a thread.
/// Errors: bytes that are not what was asked for are a BadField whose text names shard, sample,
/// field and reason. Nothing is printed, nothing in a field is ever executed (pickle is never
/// read), and no allocation is larger than the caps in the options allow.
namespace shardwise::libtorch {

/// Height and width of an image, in pixels. 0 x 0 stands for "as it is stored".
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;

  [[nodiscard]] bool empty() const noexcept { return height == 0 && width == 0; }
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

struct DecodeOptions {
  /// Every image is resized to this, its aspect ratio not kept, by antialiased bilinear
  /// interpolation: a triangle filter whose width grows with the scale when the image shrinks, as
  /// Pillow's BILINEAR and torch's interpolate(antialias=True), pixel centres at halves.
  ImageSize resize{};
  /// Larger images are refused before memory is taken for them (2^28 pixels are 768 MiB); so are
  /// those with a side of more than 2^20 pixels, and strips whose resize would take many times
  /// that.
  std::uint64_t max_pixels = std::uint64_t{1} << 28;
  std::size_t max_json_bytes = std::size_t{64} << 20;
  std::size_t max_json_depth = 128;  ///< of arrays and objects in each other
};

/// An image to RGB. The format is told by the content, not by the field's name:
///
///   JPEG  baseline and progressive; gray, YCbCr, RGB, CMYK, YCCK (inverted, as Adobe stores
///         inks). The orientation is ignored.
///         Damage that Pillow forgives is forgiven; a file that ends before its pixels is an error.
///   PNG   gray, palette, RGB, with or without alpha, 1 to 16 bits, interlaced or not. Alpha and
///         transparency are dropped, 16 bits are scaled to 8, gamma and colour profiles are
///         ignored.
///   WebP  lossy and lossless; the first frame of an animation. Alpha is dropped.
///   PNM   binary PGM and PPM (P5, P6), up to 16 bits, which are scaled to 8.
///
/// @return  uint8 [3, H, W], contiguous, on the CPU.
/// Errors: NotFound (no such field); BadField; InvalidArgument (a negative or half-given size).
SHARDWISE_EXPORT torch::Tensor decode_image(const Sample& sample, std::string_view field,
                                            const DecodeOptions& options = {});
/// Decodes bytes from elsewhere; `where` names them in an error.
SHARDWISE_EXPORT torch::Tensor decode_image(std::string_view bytes, const DecodeOptions& options,
                                            std::string_view where);

/// A NumPy .npy array, versions 1 to 3, C or Fortran order, either byte order.
/// @return  a tensor of the array's shape, C order, on the CPU. bool, int8-64, uint8, float16-64,
///          complex64 and complex128 keep their type; uint16 becomes int32 and uint32 int64, which
///          hold every value. 0-dimensional and empty arrays are tensors like others.
/// Errors: BadField, also for what LibTorch has no type for (uint64, strings, dates, records), for
///   object arrays, which are pickles, and for data that is shorter or longer than the header says.
SHARDWISE_EXPORT torch::Tensor decode_npy(const Sample& sample, std::string_view field);
SHARDWISE_EXPORT torch::Tensor decode_npy(std::string_view bytes, std::string_view where);

/// A JSON document. Include <nlohmann/json.hpp> to use it. Errors: BadField; the text has the byte.
SHARDWISE_EXPORT nlohmann::json decode_json(const Sample& sample, std::string_view field,
                                            const DecodeOptions& options = {});
SHARDWISE_EXPORT nlohmann::json decode_json(std::string_view bytes, const DecodeOptions& options,
                                            std::string_view where);

/// A copy of a text field, checked to be UTF-8. Errors: BadField.
SHARDWISE_EXPORT std::string decode_text(const Sample& sample, std::string_view field);

/// A field that is not decoded.
struct Bytes {
  std::string data;
};

/// A decoded field: an image or array, a number, a text, a document, or bytes.
using Value = std::variant<torch::Tensor, std::int64_t, std::string,
                           std::shared_ptr<const nlohmann::json>, Bytes>;

/// One field, decoded as WebDataset's convention for its name says. What follows the last dot
/// counts: "png", "seg.png" and "left.PNG" are images.
///
///     jpg jpeg png webp ppm pgm pnm        an image, as decode_image()
///     cls cls2 class count index inx id    a whole number
///     txt text transcript                  a text
///     json jsn                             a document
///     npy                                  an array
///     anything else, pickles among them    Bytes, as they are
///
/// Errors: NotFound; BadField.
SHARDWISE_EXPORT Value decode(const Sample& sample, std::string_view field,
                              const DecodeOptions& options = {});
/// Every field of the sample by name. Errors: BadField.
SHARDWISE_EXPORT std::map<std::string, Value> decode(const Sample& sample,
                                                     const DecodeOptions& options = {});

}  // namespace shardwise::libtorch
