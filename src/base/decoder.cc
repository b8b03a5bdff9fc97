#include "base/decoder.h"

#include <bzlib.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <bit>
#include <new>

#include "base/assert.h"
#include "base/expanding_reader.h"
#include "base/text.h"

namespace shardwise {
namespace {

// Largest input of a step in bytes: zlib and bzip2 use 32-bit counts.
constexpr std::size_t kMaxIn = std::size_t{1} << 30;
// Largest output of a step in bytes. It is small, so that the output is still in the CPU's cache
// when its checksum is computed.
constexpr std::size_t kMaxOut = std::size_t{256} << 10;

[[noreturn]] void damaged(std::string why) {
  throw Decoder::Failure{ErrorCode::kCorruptShard, std::move(why)};
}

[[noreturn]] void window_too_large(const ExpansionLimits& limits) {
  throw Decoder::Failure{ErrorCode::kUnsupported, "the expansion needs a window of more than " +
                                                      human_bytes(limits.max_window_bytes) +
                                                      " of memory"};
}

/// Returns byte `at` of a stream's header. Returns 0 if the stream is too short; the codec then
/// reports the truncation.
unsigned header_byte(std::string_view stream, std::size_t at) {
  return at < stream.size() ? static_cast<unsigned char>(stream[at]) : 0;
}

/// Passes `in` and `out` to a codec with an interface like zlib's, and reports its progress.
template <class Stream>
class Window {
 public:
  Window(Stream& stream, std::string_view in, char* out, std::size_t size)
      : stream_(stream), in_(std::min(in.size(), kMaxIn)), out_(std::min(size, kMaxOut)) {
    using In = decltype(stream.next_in);
    using Out = decltype(stream.next_out);
    stream.next_in = reinterpret_cast<In>(const_cast<char*>(in.data()));
    stream.next_out = reinterpret_cast<Out>(out);
    stream.avail_in = static_cast<decltype(stream.avail_in)>(in_);
    stream.avail_out = static_cast<decltype(stream.avail_out)>(out_);
  }
  Decoder::Step step(bool ended) const {
    return {in_ - stream_.avail_in, out_ - stream_.avail_out, ended};
  }

 private:
  const Stream& stream_;
  const std::size_t in_;
  const std::size_t out_;
};

/// zlib reads the header, and checks the content against the CRC-32 and length in the trailer.
class GzipDecoder : public Decoder {
 public:
  GzipDecoder() {
    constexpr int kLargestWindow = 15, kGzipOnly = 16;
    if (inflateInit2(&stream_, kLargestWindow + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipDecoder() override { inflateEnd(&stream_); }

  bool begin(std::string_view) override {
    inflateReset(&stream_);
    return true;
  }
  Step step(std::string_view in, char* out, std::size_t size) override {
    const Window window(stream_, in, out, size);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      damaged(stream_.msg == nullptr ? "not gzip data" : stream_.msg);
    }
    return window.step(result == Z_STREAM_END);
  }

 private:
  z_stream stream_{};
};

/// A bzip2 stream has a CRC-32 per block, and one over all blocks.
class Bzip2Decoder : public Decoder {
 public:
  Bzip2Decoder() { init(); }
  ~Bzip2Decoder() override { BZ2_bzDecompressEnd(&stream_); }

  bool begin(std::string_view) override {
    BZ2_bzDecompressEnd(&stream_);
    init();
    return true;
  }
  Step step(std::string_view in, char* out, std::size_t size) override {
    const Window window(stream_, in, out, size);
    const int result = BZ2_bzDecompress(&stream_);
    if (result == BZ_MEM_ERROR) throw std::bad_alloc();
    if (result != BZ_OK && result != BZ_STREAM_END) {
      damaged(result == BZ_DATA_ERROR ? "the data or its checksum is wrong" : "not bzip2 data");
    }
    return window.step(result == BZ_STREAM_END);
  }

 private:
  void init() {
    stream_ = {};
    if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw std::bad_alloc();
  }

  bz_stream stream_{};
};

/// In xz, headers and index have a CRC-32. The header states the kind of checksum of the content.
class XzDecoder : public Decoder {
 public:
  explicit XzDecoder(const ExpansionLimits& limits) : limits_(limits) {}
  ~XzDecoder() override { lzma_end(&stream_); }

  bool begin(std::string_view rest) override {
    constexpr std::uint64_t kBesideTheWindow = std::uint64_t{1} << 20;
    if (lzma_stream_decoder(&stream_, limits_.max_window_bytes + kBesideTheWindow, 0) != LZMA_OK) {
      throw std::bad_alloc();
    }
    const auto check = static_cast<lzma_check>(header_byte(rest, 7) & 15);
    return check != LZMA_CHECK_NONE && lzma_check_is_supported(check) != 0;
  }
  Step step(std::string_view in, char* out, std::size_t size) override {
    const Window window(stream_, in, out, size);
    const lzma_ret result = lzma_code(&stream_, LZMA_RUN);
    switch (result) {
      case LZMA_OK:
      case LZMA_BUF_ERROR:
      case LZMA_STREAM_END:
        return window.step(result == LZMA_STREAM_END);
      case LZMA_MEM_ERROR:
        throw std::bad_alloc();
      case LZMA_MEMLIMIT_ERROR:
        window_too_large(limits_);
      case LZMA_OPTIONS_ERROR:
        throw Failure{ErrorCode::kUnsupported,
                      "compressed with options that this liblzma does not know"};
      default:
        damaged(result == LZMA_DATA_ERROR ? "the data or its checksum is wrong" : "not xz data");
    }
  }

 private:
  const ExpansionLimits limits_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class ZstdDecoder : public Decoder {
 public:
  explicit ZstdDecoder(const ExpansionLimits& limits) : limits_(limits) {
    if (!context_) throw std::bad_alloc();
    const ZSTD_bounds bounds = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
    const int log = static_cast<int>(std::bit_width(limits.max_window_bytes)) - 1;
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax,
                           std::min(std::max(log, bounds.lowerBound), bounds.upperBound));
  }

  bool begin(std::string_view rest) override {
    ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
    return (header_byte(rest, 4) & 4) != 0;  // Content_Checksum_flag
  }
  Step step(std::string_view in, char* out, std::size_t size) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out, size, 0};
    const std::size_t result = ZSTD_decompressStream(context_.get(), &to, &from);
    if (ZSTD_isError(result) == 0) return {from.pos, to.pos, result == 0};
    switch (ZSTD_getErrorCode(result)) {
      case ZSTD_error_memory_allocation:
        throw std::bad_alloc();
      case ZSTD_error_frameParameter_windowTooLarge:
        window_too_large(limits_);
      case ZSTD_error_dictionary_wrong:
        throw Failure{ErrorCode::kUnsupported, "compressed with a dictionary"};
      default:
        damaged(ZSTD_getErrorName(result));
    }
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
  };
  const ExpansionLimits limits_;
  const std::unique_ptr<ZSTD_DCtx, Free> context_{ZSTD_createDCtx()};
};

class Lz4Decoder : public Decoder {
 public:
  Lz4Decoder() {
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context_, LZ4F_VERSION)) != 0) {
      throw std::bad_alloc();
    }
  }
  ~Lz4Decoder() override { LZ4F_freeDecompressionContext(context_); }

  bool begin(std::string_view rest) override {
    LZ4F_resetDecompressionContext(context_);
    const unsigned flags = header_byte(rest, 4);
    if ((flags & 1) != 0) {
      throw Failure{ErrorCode::kUnsupported, "compressed with a dictionary"};
    }
    return (flags & 4) != 0;  // C.Checksum
  }
  Step step(std::string_view in, char* out, std::size_t size) override {
    Step step{in.size(), size, false};
    const std::size_t result =
        LZ4F_decompress(context_, out, &step.given, in.data(), &step.taken, nullptr);
    if (LZ4F_isError(result) != 0) damaged(LZ4F_getErrorName(result));
    step.ended = result == 0;
    return step;
  }

 private:
  LZ4F_dctx* context_ = nullptr;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(Compression compression, const ExpansionLimits& limits) {
  SHARDWISE_ASSERT(compression != Compression::kNone);
  switch (compression) {
    case Compression::kGzip:
      return std::make_unique<GzipDecoder>();
    case Compression::kZstd:
      return std::make_unique<ZstdDecoder>(limits);
    case Compression::kXz:
      return std::make_unique<XzDecoder>(limits);
    case Compression::kBzip2:
      return std::make_unique<Bzip2Decoder>();
    case Compression::kLz4:
      return std::make_unique<Lz4Decoder>();
    case Compression::kNone:
      break;
  }
  throw InvalidArgument("unknown compression", "", "");
}

}  // namespace shardwise
