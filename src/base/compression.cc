#include "shardwise/base/compression.h"

#include <archive.h>
#include <archive_entry.h>

#include <array>
#include <new>

#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kRatioFloorBytes = std::uint64_t{64} << 20;

struct Format {
  Compression compression;
  std::string_view name;
  std::string_view magic;
  int (*support)(archive*);
};

constexpr std::array<Format, 5> kFormats = {{
    {Compression::kGzip, "gzip", "\x1f\x8b", archive_read_support_filter_gzip},
    {Compression::kZstd, "zstd", "\x28\xb5\x2f\xfd", archive_read_support_filter_zstd},
    {Compression::kXz, "xz",
     std::string_view("\xfd"
                      "7zXZ\0",
                      6),
     archive_read_support_filter_xz},
    {Compression::kBzip2, "bzip2", "BZh", archive_read_support_filter_bzip2},
    {Compression::kLz4, "lz4", "\x04\x22\x4d\x18", archive_read_support_filter_lz4},
}};

const Format& format_of(Compression compression) {
  for (const Format& format : kFormats) {
    if (format.compression == compression) return format;
  }
  throw InvalidArgument("not a compression", "", "");
}

struct ArchiveDeleter {
  void operator()(archive* a) const noexcept { archive_read_free(a); }
};

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
                        "there are none, gzip, zstd, xz, bzip2 and lz4");
}

Compression detect_compression(std::string_view first_bytes) noexcept {
  for (const Format& format : kFormats) {
    if (first_bytes.starts_with(format.magic)) return format.compression;
  }
  return Compression::kNone;
}

struct ExpandingReader::Impl {
  Impl(std::string_view bytes, Compression compression, std::string file,
       const ExpansionLimits& expansion)
      : name(std::move(file)), limits(expansion), compressed_bytes(bytes.size()) {
    if (!reader) throw std::bad_alloc();
    archive* a = reader.get();
    // ARCHIVE_WARN would mean that an external program does the work: none is ever run.
    if (format_of(compression).support(a) != ARCHIVE_OK ||
        archive_read_support_format_raw(a) != ARCHIVE_OK ||
        archive_read_support_format_empty(a) != ARCHIVE_OK) {
      throw Unsupported(
          "the system's libarchive cannot read " + std::string(compression_name(compression)),
          in_quotes(name), "expand the file, and use it expanded");
    }
    archive_entry* entry = nullptr;
    if (archive_read_open_memory(a, bytes.data(), bytes.size()) != ARCHIVE_OK) fail();
    const int status = archive_read_next_header(a, &entry);
    if (status == ARCHIVE_EOF) {
      at_end = true;
    } else if (status != ARCHIVE_OK) {
      fail();
    }
  }

  [[noreturn]] void fail() const {
    const char* why = archive_error_string(reader.get());
    throw CorruptShard("the compressed file is damaged (" +
                           std::string(why == nullptr ? "no reason given" : why) + ")",
                       in_quotes(name) + ", expanded offset " + std::to_string(position),
                       "copy or make it again");
  }

  void check_limits() const {
    const bool too_large = position > limits.max_bytes;
    const bool too_dense =
        position > kRatioFloorBytes && position / limits.max_ratio > compressed_bytes;
    if (!too_large && !too_dense) return;
    throw Unsupported("the file expands to more than " +
                          (too_large ? human_bytes(limits.max_bytes)
                                     : std::to_string(limits.max_ratio) + " times its size"),
                      in_quotes(name), "if that is meant, expand it, and use it expanded");
  }

  const std::string name;
  const ExpansionLimits limits;
  const std::uint64_t compressed_bytes;
  const std::unique_ptr<archive, ArchiveDeleter> reader{archive_read_new()};
  std::uint64_t position = 0;
  bool at_end = false;
};

ExpandingReader::ExpandingReader(std::string_view compressed, Compression compression,
                                 std::string name, const ExpansionLimits& limits)
    : impl_(std::make_unique<Impl>(compressed, compression, std::move(name), limits)) {}
ExpandingReader::~ExpandingReader() = default;
ExpandingReader::ExpandingReader(ExpandingReader&&) noexcept = default;
ExpandingReader& ExpandingReader::operator=(ExpandingReader&&) noexcept = default;

std::size_t ExpandingReader::read(char* buffer, std::size_t size) {
  Impl& impl = *impl_;
  std::size_t done = 0;
  while (done < size && !impl.at_end) {
    const la_ssize_t n = archive_read_data(impl.reader.get(), buffer + done, size - done);
    if (n < 0) impl.fail();
    impl.at_end = n == 0;
    done += static_cast<std::size_t>(n);
    impl.position += static_cast<std::uint64_t>(n);
    impl.check_limits();
  }
  return done;
}

std::uint64_t ExpandingReader::position() const noexcept { return impl_->position; }

std::uint64_t ExpandingReader::compressed_position() const noexcept {
  const la_int64_t bytes = archive_filter_bytes(impl_->reader.get(), -1);
  return bytes < 0 ? 0 : static_cast<std::uint64_t>(bytes);
}

}  // namespace shardwise
