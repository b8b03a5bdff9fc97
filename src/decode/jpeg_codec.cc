#include <cstdio>
// libjpeg's headers need stdio.h to be included before them.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>

#include "base/of_thread.h"
#include "decode/decode_failure.h"
#include "decode/image_formats.h"

// Our callbacks leave libjpeg by longjmp. Functions that call setjmp therefore have no objects with
// destructors, and do not change local variables after setjmp. A class around them owns all memory.
//
// At the end of the data, libjpeg is given an end-of-image marker. If it needs more bits, it
// continues with zeros and issues a warning. A file that lacks only the marker is therefore
// accepted. A warning after the end of the data means that pixels are missing.

namespace shardwise::detail {
namespace {

constexpr std::size_t kJpegMessageSize = 240;
constexpr int kMaxScans = 500;  // real progressive files have about ten scans
constexpr JDIMENSION kRowsAtOnce = 8;
constexpr unsigned kFullScale = 8;

struct JpegErrors {
  // Must be the first member, because libjpeg passes its address to callbacks.
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  DecodeWarnings* warnings;
  bool is_strict;
  bool has_ended_early;
  bool is_in_pixels;  // the header has been read
  bool has_all_rows;
  char message[kJpegMessageSize];
};

JpegErrors& errors_of(j_common_ptr jpeg) { return *reinterpret_cast<JpegErrors*>(jpeg->err); }

[[noreturn]] void give_up(JpegErrors& errors, const char* reason) {
  std::snprintf(errors.message, kJpegMessageSize, "JPEG: %.200s", reason);
  std::longjmp(errors.jump, 1);
}

extern "C" {

[[noreturn]] static void jpeg_failed(j_common_ptr jpeg) {
  JpegErrors& errors = errors_of(jpeg);
  if (errors.has_ended_early) give_up(errors, "the data ends early");
  char text[JMSG_LENGTH_MAX] = {};
  errors.manager.format_message(jpeg, text);
  give_up(errors, text);
}

static void jpeg_warned(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  JpegErrors& errors = errors_of(jpeg);
  const bool costs_pixels = errors.has_ended_early && !errors.has_all_rows;
  if (errors.is_strict || costs_pixels) jpeg_failed(jpeg);
  char text[JMSG_LENGTH_MAX] = {};
  errors.manager.format_message(jpeg, text);
  char warning[kJpegMessageSize];
  std::snprintf(warning, sizeof warning, "JPEG: %.200s", text);
  errors.warnings->add(warning);
}

static void jpeg_silent(j_common_ptr) {}

static void jpeg_watch_scans(j_common_ptr jpeg) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(jpeg);
  if (decompress->input_scan_number <= kMaxScans) return;
  give_up(errors_of(jpeg), "more than 500 scans");
}

static void jpeg_do_nothing(j_decompress_ptr) {}

static boolean jpeg_needs_more(j_decompress_ptr jpeg) {
  static constexpr std::array<JOCTET, 2> kEndOfImage = {0xFF, JPEG_EOI};
  JpegErrors& errors = errors_of(reinterpret_cast<j_common_ptr>(jpeg));
  // An arithmetic decoder reads zeros after the end as data, without a warning, so fail here.
  if (!errors.is_in_pixels || jpeg->arith_code) give_up(errors, "the data ends early");
  if (!errors.has_ended_early) {
    WARNMS(jpeg, JWRN_JPEG_EOF);
    errors.has_ended_early = true;
  }
  jpeg->src->next_input_byte = kEndOfImage.data();
  jpeg->src->bytes_in_buffer = kEndOfImage.size();
  return TRUE;
}

static void jpeg_skip(j_decompress_ptr jpeg, long num_bytes) {
  if (num_bytes <= 0) return;
  const std::size_t skipped =
      std::min(static_cast<std::size_t>(num_bytes), jpeg->src->bytes_in_buffer);
  jpeg->src->next_input_byte += skipped;
  jpeg->src->bytes_in_buffer -= skipped;
}

}  // extern "C"

/// Converts CMYK to RGB. Treats the ink values as inverted (Adobe's convention) even without
/// Adobe's marker, as Pillow does.
void inks_to_rgb(const std::uint8_t* inks, std::size_t num_pixels, std::uint8_t* rgb) {
  for (std::size_t i = 0; i < num_pixels; ++i, inks += 4, rgb += 3) {
    for (int c = 0; c < 3; ++c) {
      rgb[c] = static_cast<std::uint8_t>((unsigned{inks[c]} * inks[3] + 127) / 255);
    }
  }
}

class JpegReader {
 public:
  JpegReader(std::string_view bytes, const DecodeRequest& request, DecodeWarnings& warnings) {
    jpeg_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = jpeg_failed;
    errors_.manager.emit_message = jpeg_warned;
    errors_.manager.output_message = jpeg_silent;
    errors_.warnings = &warnings;
    errors_.is_strict = request.strict;
    progress_.progress_monitor = jpeg_watch_scans;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = jpeg_do_nothing;
    source_.fill_input_buffer = jpeg_needs_more;
    source_.skip_input_data = jpeg_skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = jpeg_do_nothing;
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  RealBox read(const DecodeRequest& request, RgbImage& image) {
    require(read_header());
    require_pixels(jpeg_.image_height, jpeg_.image_width, request.max_pixels);
    const Box wanted = wanted_box(request, jpeg_.image_height, jpeg_.image_width);
    has_inks_ = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    require(start(request.scale, has_inks_ ? JCS_CMYK : JCS_RGB));
    require_all_scans();
    const Box box = scaled(wanted, request.scale);
    image.reshape(box.height, box.width);
    const bool is_whole = box.height == jpeg_.output_height && box.width == jpeg_.output_width;
    require(is_whole && !has_inks_ ? read_whole(image.data()) : read_part(box, is_whole, image));
    const double scale = static_cast<double>(request.scale) / kFullScale;
    const auto from_edge = [&](std::size_t full, std::size_t edge) {
      return static_cast<double>(full) * scale - static_cast<double>(edge);
    };
    return {from_edge(wanted.top, box.top), from_edge(wanted.left, box.left),
            from_edge(wanted.height, 0), from_edge(wanted.width, 0)};
  }

 private:
  void require(bool worked) const {
    if (!worked) throw DecodeFailure(errors_.message);
  }

  bool read_header() noexcept {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &progress_;
    jpeg_.src = &source_;
    jpeg_read_header(&jpeg_, TRUE);
    errors_.is_in_pixels = true;
    return true;
  }

  bool start(unsigned scale, J_COLOR_SPACE colours) noexcept {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_.out_color_space = colours;
    jpeg_.scale_num = scale;
    jpeg_.scale_denom = kFullScale;
    jpeg_start_decompress(&jpeg_);
    return true;
  }

  /// Checks a file of several scans that was read to its end. Throws if scans are missing and the
  /// end-of-image marker is missing too, because the file may then be truncated.
  void require_all_scans() const {
    if (!errors_.has_ended_early) return;
    for (int c = 0; c < jpeg_.num_components; ++c) {
      bool is_complete = jpeg_.comp_info[c].quant_table != nullptr;
      if (jpeg_.progressive_mode) is_complete &= num_precise(c) == DCTSIZE2;
      if (!is_complete) throw DecodeFailure("JPEG: the data ends early");
    }
  }

  /// Returns the number of coefficients of a progressive file's component that are complete to the
  /// last bit.
  int num_precise(int component) const {
    const int* bits = jpeg_.coef_bits[component];
    return static_cast<int>(std::count(bits, bits + DCTSIZE2, 0));
  }

  /// Returns the rectangle of the scaled image whose pixels `box` touches.
  static Box scaled(const Box& box, unsigned scale) {
    const auto down = [&](std::size_t edge) { return edge * scale / kFullScale; };
    const auto up = [&](std::size_t edge) { return (edge * scale + kFullScale - 1) / kFullScale; };
    const std::size_t top = down(box.top);
    const std::size_t left = down(box.left);
    return {top, left, up(box.top + box.height) - top, up(box.left + box.width) - left};
  }

  bool read_whole(std::uint8_t* out) noexcept {
    if (setjmp(errors_.jump) != 0) return false;
    const std::size_t stride = std::size_t{jpeg_.output_width} * 3;
    while (jpeg_.output_scanline < jpeg_.output_height) read_rows(out, stride, 0);
    errors_.has_all_rows = true;
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  /// Reads up to kRowsAtOnce rows. `out` is the place of row `first`.
  JDIMENSION read_rows(std::uint8_t* out, std::size_t stride, JDIMENSION first) noexcept {
    std::array<JSAMPROW, kRowsAtOnce> rows;
    const JDIMENSION at = jpeg_.output_scanline;
    const JDIMENSION num_rows = std::min(kRowsAtOnce, jpeg_.output_height - at);
    for (JDIMENSION i = 0; i < num_rows; ++i) rows[i] = out + (at - first + i) * stride;
    return jpeg_read_scanlines(&jpeg_, rows.data(), num_rows);
  }

  /// Reads the rows and columns of `box`, using the scratch rows.
  bool read_part(const Box& box, bool to_the_end, RgbImage& image) {
    JDIMENSION first_column = 0;
    if (!skip_to(box, first_column)) return false;
    const std::size_t channels = has_inks_ ? 4 : 3;
    const std::size_t stride = jpeg_.output_width * channels;
    RgbImage& scratch = detail::of_thread<RgbImage>([] {});
    scratch.reshape(kRowsAtOnce, (stride + 2) / 3);
    const std::size_t offset = (box.left - first_column) * channels;
    for (std::size_t y = 0; y < box.height;) {
      JDIMENSION num_rows = 0;
      if (!read_some(scratch.data(), stride, num_rows)) return false;
      for (JDIMENSION i = 0; i < num_rows && y < box.height; ++i, ++y) {
        const std::uint8_t* from = scratch.data() + i * stride + offset;
        if (has_inks_) {
          inks_to_rgb(from, box.width, image.row(y));
        } else {
          std::memcpy(image.row(y), from, box.width * 3);
        }
      }
    }
    return !to_the_end || finish();
  }

  bool read_some(std::uint8_t* out, std::size_t stride, JDIMENSION& num_rows) noexcept {
    if (setjmp(errors_.jump) != 0) return false;
    num_rows = read_rows(out, stride, jpeg_.output_scanline);
    return true;
  }

  bool finish() noexcept {
    if (setjmp(errors_.jump) != 0) return false;
    errors_.has_all_rows = true;
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  /// Restricts the output to the columns of `box` and a margin, and skips the rows above `box`.
  bool skip_to(const Box& box, JDIMENSION& first_column) noexcept {
    if (setjmp(errors_.jump) != 0) return false;
    if (box.width < jpeg_.output_width && !smooths_blocks()) {
      // Chroma is interpolated from neighbouring samples, and libjpeg treats the edge of the
      // decoded part as the edge of the image. Therefore decode one more sample on each side.
      const std::size_t margin = static_cast<std::size_t>(jpeg_.max_h_samp_factor);
      const std::size_t left = box.left - std::min(box.left, margin);
      const std::size_t right =
          std::min<std::size_t>(box.left + box.width + margin, jpeg_.output_width);
      first_column = static_cast<JDIMENSION>(left);
      auto num_columns = static_cast<JDIMENSION>(right - left);
      jpeg_crop_scanline(&jpeg_, &first_column, &num_columns);
    }
    if (box.top > 0) jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(box.top));
    return true;
  }

  /// True if libjpeg smooths a progressive image with missing coefficients. Smoothing uses the
  /// neighbours of each block, so the columns next to a crop must also be decoded.
  bool smooths_blocks() const {
    if (!jpeg_.progressive_mode) return false;
    for (int c = 0; c < jpeg_.num_components; ++c) {
      if (num_precise(c) < DCTSIZE2) return true;
    }
    return false;
  }

  jpeg_decompress_struct jpeg_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  JpegErrors errors_{};
  bool has_inks_ = false;
};

}  // namespace

RealBox decode_jpeg(std::string_view bytes, const DecodeRequest& request, RgbImage& image,
                    DecodeWarnings& warnings) {
  if (request.keep_16_bits) require_16_bits("JPEG", 8);
  return JpegReader(bytes, request, warnings).read(request, image);
}

}  // namespace shardwise::detail
