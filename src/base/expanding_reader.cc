#include "shardwise/base/compression.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/decoder.h"
#include "base/error_types.h"
#include "base/text.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kRatioFloorBytes = std::uint64_t{64} << 20;
constexpr std::size_t kDetectBytes = 512;

/// Thrown if an expansion exceeds its limits.
struct TooLarge {
  std::string than;  ///< the exceeded limit, e.g. "1.0 GiB"
  bool is_beyond_max_bytes;
};

struct Format {
  Compression compression;
  std::string_view name;
  std::string_view suffix;
  std::string_view magic;
  bool has_skippable_frames = false;
};

constexpr std::array<Format, 5> kFormats = {{
    {Compression::kGzip, "gzip", ".gz", "\x1f\x8b"},
    {Compression::kZstd, "zstd", ".zst", "\x28\xb5\x2f\xfd", true},
    {Compression::kXz, "xz", ".xz",
     std::string_view("\xfd"
                      "7zXZ\0",
                      6)},
    {Compression::kBzip2, "bzip2", ".bz2", "BZh"},
    {Compression::kLz4, "lz4", ".lz4", "\x04\x22\x4d\x18", true},
}};

const Format& format_of(Compression compression) {
  for (const Format& format : kFormats) {
    if (format.compression == compression) return format;
  }
  throw InvalidArgument("unknown compression", "", "");
}

/// Returns the length of the skippable frame at the front of `bytes`, or nothing if they do not
/// begin with a skippable frame. Such a frame is a magic of 0x184D2A50 to 0x184D2A5F, the size of
/// its content, and the content.
std::optional<std::uint64_t> skippable_frame(std::string_view bytes) noexcept {
  constexpr std::uint32_t kMagic = 0x184D2A50, kMask = 0xFFFFFFF0;
  constexpr std::size_t kHeaderBytes = 8;
  if (bytes.size() < kHeaderBytes || (load_le32(bytes.data()) & kMask) != kMagic) {
    return std::nullopt;
  }
  return kHeaderBytes + std::uint64_t{load_le32(bytes.data() + 4)};
}

}  // namespace

std::string_view compression_name(Compression compression) noexcept {
  for (const Format& format : kFormats) {
    if (format.compression == compression) return format.name;
  }
  return "none";
}

Compression parse_compression(std::string_view name) {
  if (name == "none") return Compression::kNone;
  for (const Format& format : kFormats) {
    if (format.name == name) return format.compression;
  }
  throw InvalidArgument("unknown compression", in_quotes(name),
                        "choose none, gzip, zstd, xz, bzip2 or lz4");
}

Compression detail::compression_by_suffix(std::string_view name) noexcept {
  for (const Format& format : kFormats) {
    if (name.ends_with(format.suffix)) return format.compression;
  }
  return Compression::kNone;
}

std::string_view detail::without_compression_suffix(std::string_view name) noexcept {
  for (const Format& format : kFormats) {
    if (name.ends_with(format.suffix)) return name.substr(0, name.size() - format.suffix.size());
  }
  return name;
}

Compression detail::detect_compression(std::string_view first_bytes) noexcept {
  std::string_view bytes = first_bytes.substr(0, kDetectBytes);
  while (const auto frame = skippable_frame(bytes)) {
    if (*frame >= bytes.size()) return Compression::kZstd;
    bytes.remove_prefix(static_cast<std::size_t>(*frame));
  }
  for (const Format& format : kFormats) {
    if (bytes.starts_with(format.magic)) return format.compression;
  }
  return Compression::kNone;
}

// The functions of Impl throw Decoder::Failure and TooLarge. named() converts these to errors that
// name the file and the offset.
struct ExpandingReader::Impl {
  Impl(std::string_view bytes, Compression compression, std::string file,
       const ExpansionLimits& expansion)
      : compressed(bytes),
        format(format_of(compression)),
        name(std::move(file)),
        limits(expansion),
        decoder(make_decoder(compression, expansion)) {}

  std::string_view rest() const noexcept { return compressed.substr(at); }

  /// Skips padding and skippable frames up to the next stream, or to the end.
  void begin_next() {
    while (!rest().empty() && !rest().starts_with(format.magic)) {
      if (const auto frame = skippable_frame(rest()); frame && format.has_skippable_frames) {
        if (*frame > rest().size()) truncated();
        at += static_cast<std::size_t>(*frame);
        continue;
      }
      const std::size_t zeros = std::min(rest().find_first_not_of('\0'), rest().size());
      if (zeros == 0 || num_streams == 0) {
        throw Decoder::Failure{ErrorCode::kCorruptShard,
                               num_streams == 0
                                   ? "no " + std::string(format.name) + " header"
                                   : "the data after the " + std::string(format.name) +
                                         " stream is neither a further stream nor zeros"};
      }
      at += zeros;
    }
    at_end = rest().empty();
    if (at_end && num_streams == 0 && at == 0) truncated();
    if (at_end) return;
    ++num_streams;
    unchecked = !decoder->begin(rest()) || unchecked;
  }

  /// Expands into `buffer` until a stream ends or `buffer` is full. Returns the number of bytes.
  std::size_t step(char* buffer, std::size_t size) {
    const Decoder::Step step = decoder->step(rest(), buffer, size);
    at += step.taken;
    position += step.given;
    check_limits();
    if (step.ended) {
      begin_next();
    } else if (step.taken == 0 && step.given == 0) {
      truncated();
    }
    return step.given;
  }

  [[noreturn]] void truncated() const {
    throw Decoder::Failure{ErrorCode::kCorruptShard, "truncated within a " +
                                                         std::string(format.name) +
                                                         (num_streams == 0 ? " frame" : " stream")};
  }

  void check_limits() const {
    const bool too_large = position > limits.max_bytes;
    const bool too_dense =
        position > kRatioFloorBytes && position / limits.max_ratio > compressed.size();
    if (!too_large && !too_dense) return;
    throw TooLarge{too_large ? human_bytes(limits.max_bytes)
                             : std::to_string(limits.max_ratio) + " times the compressed size",
                   too_large};
  }

  template <class Call>
  void named(const Call& call) const {
    try {
      call();
    } catch (const Decoder::Failure& failure) {
      fail(failure);
    } catch (const TooLarge& error) {
      throw Unsupported(
          "the file expands to more than " + error.than, in_quotes(name),
          "if this size is intended, expand the file yourself, and use the expanded file");
    }
  }

  [[noreturn]] void fail(const Decoder::Failure& failure) const {
    const std::string where = in_quotes(name) + ", offset " + std::to_string(at) +
                              ", expanded offset " + std::to_string(position);
    if (failure.code == ErrorCode::kUnsupported) {
      throw Unsupported(
          "the compressed file cannot be expanded (" + failure.why + ")", where,
          "compress the file again with the codec's default options, or use the expanded file");
    }
    throw CorruptShard("the compressed file is damaged (" + failure.why + ")", where,
                       "copy the file again, or make a new one");
  }

  const std::string_view compressed;
  const Format& format;
  const std::string name;
  const ExpansionLimits limits;
  const std::unique_ptr<Decoder> decoder;
  std::size_t at = 0;  // offset in the compressed bytes
  std::uint64_t position = 0;
  std::uint64_t num_streams = 0;
  bool at_end = false;
  bool unchecked = false;
};

ExpandingReader::ExpandingReader(std::string_view compressed, Compression compression,
                                 std::string name, const ExpansionLimits& limits)
    : impl_(std::make_unique<Impl>(compressed, compression, std::move(name), limits)) {
  impl_->named([&] { impl_->begin_next(); });
}
ExpandingReader::~ExpandingReader() = default;
ExpandingReader::ExpandingReader(ExpandingReader&&) noexcept = default;
ExpandingReader& ExpandingReader::operator=(ExpandingReader&&) noexcept = default;

std::size_t ExpandingReader::read(char* buffer, std::size_t size) {
  std::size_t done = 0;
  impl_->named([&] {
    while (done < size && !impl_->at_end) done += impl_->step(buffer + done, size - done);
  });
  return done;
}

std::uint64_t ExpandingReader::position() const noexcept { return impl_->position; }
std::uint64_t ExpandingReader::compressed_position() const noexcept { return impl_->at; }
bool ExpandingReader::unchecked() const noexcept { return impl_->unchecked; }

detail::ExpandedBytes detail::expand_all(std::string_view compressed, Compression compression,
                                         const ExpansionLimits& limits) {
  constexpr std::size_t kLeast = 4096;
  ExpandedBytes all;
  try {
    ExpandingReader::Impl impl(compressed, compression, {}, limits);
    impl.begin_next();
    std::size_t room = 0;
    while (!impl.at_end) {
      if (all.size == room) {
        const std::size_t wanted = room > 0 ? 2 * room : std::max(4 * compressed.size(), kLeast);
        room = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, limits.max_bytes + 1));
        auto larger = std::make_unique_for_overwrite<char[]>(room);
        if (all.size > 0) std::memcpy(larger.get(), all.bytes.get(), all.size);
        all.bytes = std::move(larger);
      }
      all.size += impl.step(all.bytes.get() + all.size, room - all.size);
    }
  } catch (const Decoder::Failure& failure) {
    throw ExpansionFailure(failure.why, false);
  } catch (const TooLarge& error) {
    throw ExpansionFailure("the expanded data exceeds " + error.than, error.is_beyond_max_bytes);
  }
  return all;
}

}  // namespace shardwise
