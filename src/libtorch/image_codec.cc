#include "libtorch/image_codec.h"

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

// libpng and libjpeg leave their callbacks by longjmp. The functions that call setjmp hold nothing
// with a destructor and change no local after setjmp: what must be freed belongs to a class around
// them.

namespace shardwise::libtorch::detail {
namespace {

constexpr std::size_t kMessageSize = 240;
constexpr int kMaxJpegScans = 500;  // real progressive files have about ten

void require_pixels(std::uint64_t height, std::uint64_t width, std::uint64_t max_pixels) {
  if (height == 0 || width == 0) throw DecodeFailure("the image has no pixels");
  if (width > max_pixels / height) {
    throw DecodeFailure(std::to_string(width) + " x " + std::to_string(height) +
                        " pixels are more than the limit of " + std::to_string(max_pixels));
  }
}

// ------------------------------------------------------------------------------------------- PNG

struct PngState {
  const unsigned char* bytes = nullptr;
  std::size_t size = 0;
  std::size_t at = 0;
  char message[kMessageSize] = {};
};

extern "C" {

[[noreturn]] static void png_failed(png_structp png, png_const_charp text) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state->message, kMessageSize, "PNG: %s", text);
  png_longjmp(png, 1);
}

static void png_warned(png_structp, png_const_charp) {}

static void png_take(png_structp png, png_bytep out, png_size_t size) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (size > state->size - state->at) png_error(png, "the data ends early");
  std::memcpy(out, state->bytes + state->at, size);
  state->at += size;
}

}  // extern "C"

class PngReader {
 public:
  explicit PngReader(std::string_view bytes) {
    state_.bytes = reinterpret_cast<const unsigned char*>(bytes.data());
    state_.size = bytes.size();
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

  void read(std::uint64_t max_pixels, RgbImage& image) {
    if (!read_header()) throw DecodeFailure(state_.message);
    const std::size_t height = png_get_image_height(png_, info_);
    const std::size_t width = png_get_image_width(png_, info_);
    require_pixels(height, width, max_pixels);
    if (!set_up_rgb()) throw DecodeFailure(state_.message);
    if (png_get_rowbytes(png_, info_) != width * 3) {
      throw DecodeFailure("PNG: its rows are not RGB");
    }
    image.reshape(height, width);
    std::vector<png_bytep> rows(height);
    for (std::size_t y = 0; y < height; ++y) rows[y] = image.row(y);
    if (!read_rows(rows.data())) throw DecodeFailure(state_.message);
  }

 private:
  bool read_header() noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, &state_, png_take);
    png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);  // require_pixels is the limit
    png_set_chunk_malloc_max(png_, 16u << 20);
    png_set_chunk_cache_max(png_, 256);
    png_read_info(png_, info_);
    return true;
  }

  bool set_up_rgb() noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    png_set_scale_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_rows(png_bytepp rows) noexcept {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  PngState state_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

// ------------------------------------------------------------------------------------------ JPEG

struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands its address back
  std::jmp_buf jump;
  char message[kMessageSize];
};

extern "C" {

[[noreturn]] static void jpeg_failed(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  char text[JMSG_LENGTH_MAX] = {};
  errors->manager.format_message(jpeg, text);
  std::snprintf(errors->message, kMessageSize, "JPEG: %.200s", text);
  std::longjmp(errors->jump, 1);
}

/// Warnings of bytes too many or strange markers pass; those that cost pixels (an early end, a bad
/// code, a lost restart) are failures, and so is every one that is not known here.
static void jpeg_warned(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_TOO_MUCH_DATA:
      return;
    default:
      jpeg_failed(jpeg);
  }
}

static void jpeg_silent(j_common_ptr) {}

static void jpeg_watch_scans(j_common_ptr jpeg) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(jpeg);
  if (decompress->input_scan_number <= kMaxJpegScans) return;
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  std::snprintf(errors->message, kMessageSize, "JPEG: more than %d scans", kMaxJpegScans);
  std::longjmp(errors->jump, 1);
}

}  // extern "C"

/// (255 - c) * (255 - k) / 255, rounded.
std::uint8_t ink_to_light(unsigned c, unsigned k) {
  return static_cast<std::uint8_t>(((255 - c) * (255 - k) + 127) / 255);
}

class JpegReader {
 public:
  JpegReader() {
    jpeg_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = jpeg_failed;
    errors_.manager.emit_message = jpeg_warned;
    errors_.manager.output_message = jpeg_silent;
    progress_.progress_monitor = jpeg_watch_scans;
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  void read(std::string_view bytes, std::uint64_t max_pixels, RgbImage& image) {
    if (!read_header(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) {
      throw DecodeFailure(errors_.message);
    }
    require_pixels(jpeg_.image_height, jpeg_.image_width, max_pixels);
    image.reshape(jpeg_.image_height, jpeg_.image_width);
    const bool inks = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    if (!inks) {
      if (!read_rows(JCS_RGB, image.data(), image.width() * 3)) {
        throw DecodeFailure(errors_.message);
      }
      return;
    }
    const std::size_t num_pixels = image.height() * image.width();
    const auto cmyk = std::make_unique_for_overwrite<std::uint8_t[]>(num_pixels * 4);
    if (!read_rows(JCS_CMYK, cmyk.get(), image.width() * 4)) throw DecodeFailure(errors_.message);
    // Adobe's programs store inks inverted, and mark the file.
    const unsigned flip = jpeg_.saw_Adobe_marker != 0 ? 255 : 0;
    const std::uint8_t* from = cmyk.get();
    std::uint8_t* to = image.data();
    for (std::size_t i = 0; i < num_pixels; ++i, from += 4, to += 3) {
      const unsigned black = from[3] ^ flip;
      for (int c = 0; c < 3; ++c) to[c] = ink_to_light(from[c] ^ flip, black);
    }
  }

 private:
  bool read_header(const unsigned char* bytes, std::size_t size) noexcept {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &progress_;
    jpeg_mem_src(&jpeg_, bytes, static_cast<unsigned long>(size));
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }

  bool read_rows(J_COLOR_SPACE colours, std::uint8_t* out, std::size_t stride) noexcept {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_.out_color_space = colours;
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      std::array<JSAMPROW, 8> rows;
      const JDIMENSION first = jpeg_.output_scanline;
      for (JDIMENSION i = 0; i < rows.size(); ++i) {
        rows[i] = out + std::min(first + i, jpeg_.output_height - 1) * stride;
      }
      jpeg_read_scanlines(&jpeg_, rows.data(),
                          std::min<JDIMENSION>(rows.size(), jpeg_.output_height - first));
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  jpeg_decompress_struct jpeg_{};
  jpeg_progress_mgr progress_{};
  JpegErrors errors_{};
};

// ------------------------------------------------------------------------------------------- PNM

/// Reads the next number of a PNM header, after blanks and comments.
std::uint64_t pnm_number(std::string_view& rest) {
  for (;;) {
    const auto start = rest.find_first_not_of(" \t\r\n\v\f");
    rest.remove_prefix(std::min(start, rest.size()));
    if (rest.empty() || rest[0] != '#') break;
    rest.remove_prefix(std::min(rest.find('\n'), rest.size()));
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) throw DecodeFailure("PNM: the header holds no size");
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return value;
}

void decode_pnm(std::string_view bytes, std::uint64_t max_pixels, RgbImage& image) {
  const std::size_t channels = bytes[1] == '6' ? 3 : 1;
  std::string_view rest = bytes.substr(2);
  const std::uint64_t width = pnm_number(rest);
  const std::uint64_t height = pnm_number(rest);
  const std::uint64_t most = pnm_number(rest);
  if (most == 0 || most > 65535) throw DecodeFailure("PNM: a maximum value out of range");
  if (rest.empty()) throw DecodeFailure("PNM: the data ends early");
  rest.remove_prefix(1);  // the one blank after the header
  require_pixels(height, width, max_pixels);
  const std::size_t depth = most > 255 ? 2 : 1;
  const std::uint64_t num_values = width * height * channels;  // <= 3 * max_pixels
  if (rest.size() / depth < num_values) throw DecodeFailure("PNM: the data ends early");
  image.reshape(height, width);
  const auto* from = reinterpret_cast<const std::uint8_t*>(rest.data());
  std::uint8_t* to = image.data();
  const auto half = static_cast<unsigned>(most / 2);
  const auto top = static_cast<unsigned>(most);
  for (std::uint64_t i = 0; i < num_values; ++i) {
    unsigned value = depth == 1 ? from[i] : from[2 * i] * 256u + from[2 * i + 1];
    if (value > top) throw DecodeFailure("PNM: a value above the maximum");
    if (top != 255) value = (value * 255 + half) / top;
    if (channels == 3) {
      to[i] = static_cast<std::uint8_t>(value);
    } else {
      std::fill_n(to + 3 * i, 3, static_cast<std::uint8_t>(value));
    }
  }
}

}  // namespace

void RgbImage::reshape(std::size_t height, std::size_t width) {
  const std::size_t size = height * width * 3;
  if (size > capacity_) {
    pixels_.reset();
    pixels_ = std::make_unique_for_overwrite<std::uint8_t[]>(size);
    capacity_ = size;
  }
  height_ = height;
  width_ = width;
}

void decode_rgb(std::string_view bytes, std::uint64_t max_pixels, RgbImage& image) {
  const auto starts = [&](std::string_view magic) {
    return bytes.substr(0, magic.size()) == magic;
  };
  if (starts("\xFF\xD8\xFF")) {
    JpegReader().read(bytes, max_pixels, image);
  } else if (starts("\x89PNG\r\n\x1A\n")) {
    PngReader(bytes).read(max_pixels, image);
  } else if (starts("P5") || starts("P6")) {
    decode_pnm(bytes, max_pixels, image);
  } else {
    throw DecodeFailure(bytes.empty() ? "it is empty"
                                      : "neither PNG nor JPEG nor binary PNM by its first bytes");
  }
}

}  // namespace shardwise::libtorch::detail
