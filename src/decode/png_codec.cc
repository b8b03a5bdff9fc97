#include <png.h>

#include <array>
#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "base/of_thread.h"
#include "decode/decode_failure.h"
#include "decode/image_formats.h"

// Our callbacks leave libpng by longjmp. Functions that call setjmp therefore have no objects with
// destructors, and do not change local variables after setjmp. A class around them owns all memory.

namespace shardwise::detail {
namespace {

constexpr std::size_t kPngMessageSize = 240;

struct PngState {
  const unsigned char* bytes = nullptr;
  std::size_t size = 0;
  std::size_t at = 0;
  DecodeWarnings* warnings = nullptr;
  bool is_strict = false;
  bool has_bad_sum = false;
  char message[kPngMessageSize] = {};
};

extern "C" {

[[noreturn]] static void png_failed(png_structp png, png_const_charp text) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state->message, kPngMessageSize, "PNG: %s", text);
  png_longjmp(png, 1);
}

static void png_warned(png_structp png, png_const_charp text) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  // zlib issues this message if the pixels differ from those that were compressed.
  state->has_bad_sum |= std::strstr(text, "incorrect data check") != nullptr;
  if (state->is_strict || state->has_bad_sum) png_failed(png, text);
  char warning[kPngMessageSize];
  std::snprintf(warning, sizeof warning, "PNG: %s", text);
  state->warnings->add(warning);
}

static void png_take(png_structp png, png_bytep out, png_size_t size) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (size > state->size - state->at) png_error(png, "the data ends early");
  std::memcpy(out, state->bytes + state->at, size);
  state->at += size;
}

}  // extern "C"

constexpr std::size_t kNameBytes = 5;  // libpng requires a zero byte after each name
/// Chunks that do not affect the stored pixels. They are skipped, so that they are not
/// decompressed.
constexpr char kUnused[] =
    "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0sTER\0"
    "tEXt\0tIME\0zTXt";

class PngReader {
 public:
  PngReader(std::string_view bytes, const DecodeRequest& request, DecodeWarnings& warnings) {
    state_.bytes = reinterpret_cast<const unsigned char*>(bytes.data());
    state_.size = bytes.size();
    state_.warnings = &warnings;
    state_.is_strict = request.strict;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, png_failed, png_warned);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  RealBox read(const DecodeRequest& request, RgbImage& image) {
    require(read_header());
    const std::size_t height = png_get_image_height(png_, info_);
    const std::size_t width = png_get_image_width(png_, info_);
    require_pixels(height, width, request.max_pixels);
    const Box box = wanted_box(request, height, width);
    if (request.keep_16_bits) require_16_bits("PNG", png_get_bit_depth(png_, info_));
    pixel_bytes_ = request.keep_16_bits ? 6 : 3;
    require(set_up_rgb());
    if (png_get_rowbytes(png_, info_) != width * pixel_bytes_)
      throw DecodeFailure("PNG: the rows are not RGB");
    const bool is_whole = box.height == height && box.width == width;
    if (is_whole) {
      image.reshape(height, width, pixel_bytes_);
      read_whole(image);
    } else if (png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE) {
      RgbImage scratch;  // freed after use, because it has the size of the whole image
      scratch.reshape(height, width, pixel_bytes_);
      read_whole(scratch);
      copy(scratch.view().cropped(box), image);
    } else {
      image.reshape(box.height, box.width, pixel_bytes_);
      read_part(box, image);
    }
    return whole_of(box);
  }

 private:
  void require(bool worked) const {
    if (!worked) throw DecodeFailure(state_.message);
  }

  bool read_header() noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, &state_, png_take);
    // require_pixels() enforces the limit instead.
    png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);
    png_set_chunk_malloc_max(png_, 16u << 20);
    png_set_chunk_cache_max(png_, 256);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER,
                                reinterpret_cast<png_const_bytep>(kUnused),
                                sizeof kUnused / kNameBytes);
    png_read_info(png_, info_);
    // From here on, a wrong checksum of a pixel chunk is only a warning, because zlib's checksum
    // over all pixels verifies them.
    png_set_crc_action(png_, PNG_CRC_WARN_USE, PNG_CRC_WARN_DISCARD);
    return true;
  }

  bool set_up_rgb() noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    if (pixel_bytes_ == 3) {
      png_set_scale_16(png_);
    } else if constexpr (std::endian::native == std::endian::little) {
      png_set_swap(png_);
    }
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  void read_whole(RgbImage& image) {
    if (!read_rows(image) || !read_end()) forgive();
  }

  void read_part(const Box& box, RgbImage& image) {
    RgbImage& scratch = detail::of_thread<RgbImage>([] {});
    scratch.reshape(1, png_get_image_width(png_, info_), pixel_bytes_);
    for (std::size_t y = 0; y < box.top + box.height; ++y) {
      if (!read_row(scratch.data())) forgive();
      if (y < box.top) continue;
      std::memcpy(image.row(y - box.top), scratch.data() + box.left * pixel_bytes_,
                  box.width * pixel_bytes_);
    }
  }

  static void copy(const RgbView& from, RgbImage& image) {
    image.reshape(from.height, from.width, from.pixel_bytes);
    for (std::size_t y = 0; y < from.height; ++y) {
      std::memcpy(image.row(y), from.row(y), from.width * from.pixel_bytes);
    }
  }

  /// Turns a failure into a warning, if it occurred after the pixels were read and the pixels are
  /// correct.
  void forgive() {
    if (state_.is_strict || state_.has_bad_sum || !has_all_rows()) {
      throw DecodeFailure(state_.message);
    }
    state_.warnings->add(state_.message);
  }

  /// True if all rows were read. libpng returns the last row before it reads the data after the
  /// pixels.
  bool has_all_rows() const {
    constexpr int kPasses = 7;
    return png_get_interlace_type(png_, info_) == PNG_INTERLACE_NONE
               ? png_get_current_row_number(png_) >= png_get_image_height(png_, info_)
               : png_get_current_pass_number(png_) >= kPasses;
  }

  /// Replaces png_read_image(), which needs a pointer to each row. In narrow images a pointer is
  /// larger than a row.
  bool read_rows(RgbImage& image) noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    for (int passes = png_set_interlace_handling(png_); passes > 0; --passes) {
      for (std::size_t y = 0; y < image.height(); ++y) png_read_row(png_, image.row(y), nullptr);
    }
    return true;
  }

  bool read_row(png_bytep row) noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_row(png_, row, nullptr);
    return true;
  }

  bool read_end() noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_end(png_, nullptr);
    return true;
  }

  PngState state_;
  std::size_t pixel_bytes_ = 3;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

RealBox decode_png(std::string_view bytes, const DecodeRequest& request, RgbImage& image,
                   DecodeWarnings& warnings) {
  return PngReader(bytes, request, warnings).read(request, image);
}

}  // namespace shardwise::detail
