#include "compressed_bytes.h"

#include <bzlib.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <memory>
#include <stdexcept>

namespace shardwise::fuzz {
namespace {

/// Each of these functions writes to `out`, and returns the number of bytes. 0 means failure.
std::size_t to_gzip(std::string_view in, std::string& out) {
  constexpr int kLevel = 6, kLargestWindow = 15, kGzipHeader = 16, kMemory = 8;
  z_stream stream{};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kLargestWindow + kGzipHeader, kMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return 0;
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  deflateEnd(&stream);
  return whole ? stream.total_out : 0;
}

std::size_t to_bzip2(std::string_view in, std::string& out) {
  constexpr int kBlock = 9, kQuiet = 0, kUsualWorkFactor = 0;
  auto used = static_cast<unsigned>(out.size());
  const int result =
      BZ2_bzBuffToBuffCompress(out.data(), &used, const_cast<char*>(in.data()),
                               static_cast<unsigned>(in.size()), kBlock, kQuiet, kUsualWorkFactor);
  return result == BZ_OK ? used : 0;
}

std::size_t to_xz(std::string_view in, std::string& out, bool checked) {
  constexpr std::uint32_t kPreset = 6;
  std::size_t used = 0;
  const lzma_ret result =
      lzma_easy_buffer_encode(kPreset, checked ? LZMA_CHECK_CRC64 : LZMA_CHECK_NONE, nullptr,
                              reinterpret_cast<const std::uint8_t*>(in.data()), in.size(),
                              reinterpret_cast<std::uint8_t*>(out.data()), &used, out.size());
  return result == LZMA_OK ? used : 0;
}

std::size_t to_zstd(std::string_view in, std::string& out, bool checked) {
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(),
                                                                        ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, checked ? 1 : 0);
  const std::size_t used =
      ZSTD_compress2(context.get(), out.data(), out.size(), in.data(), in.size());
  return ZSTD_isError(used) != 0 ? 0 : used;
}

std::size_t to_lz4(std::string_view in, std::string& out, bool checked) {
  LZ4F_preferences_t preferences = LZ4F_INIT_PREFERENCES;
  preferences.frameInfo.contentChecksumFlag =
      checked ? LZ4F_contentChecksumEnabled : LZ4F_noContentChecksum;
  const std::size_t used =
      LZ4F_compressFrame(out.data(), out.size(), in.data(), in.size(), &preferences);
  return LZ4F_isError(used) != 0 ? 0 : used;
}

}  // namespace

std::string compressed_bytes(std::string_view bytes, Compression compression, bool checked) {
  std::string out(bytes.size() * 2 + 65536, '\0');
  std::size_t used = 0;
  if (compression == Compression::kGzip && checked) used = to_gzip(bytes, out);
  if (compression == Compression::kBzip2 && checked) used = to_bzip2(bytes, out);
  if (compression == Compression::kXz) used = to_xz(bytes, out, checked);
  if (compression == Compression::kZstd) used = to_zstd(bytes, out, checked);
  if (compression == Compression::kLz4) used = to_lz4(bytes, out, checked);
  if (used == 0) {
    throw std::runtime_error("cannot compress with " + std::string(compression_name(compression)));
  }
  out.resize(used);
  return out;
}

}  // namespace shardwise::fuzz
