#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/assert.h"

namespace shardwise::tar {

inline constexpr std::size_t kBlockBytes = 512;
/// Largest size of a special header (pax records, long names). Larger headers are refused, because
/// they do not occur in ordinary tars.
inline constexpr std::uint64_t kMaxSpecialBytes = 1 << 20;
/// Largest size of an entry's header with all special headers before it: one special header of each
/// type, of the largest size. Without this limit, a reader would need unlimited memory, because any
/// number of pax global headers may precede an entry.
inline constexpr std::uint64_t kMaxHeaderBytes = 4 * (kMaxSpecialBytes + 2 * kBlockBytes);
static_assert(kMaxHeaderBytes % kBlockBytes == 0);

/// Rounds `size` up to whole blocks. REQUIRES: size <= 2^63.
constexpr std::uint64_t padded(std::uint64_t size) noexcept {
  SHARDWISE_ASSERT_HOT(size <= std::uint64_t{1} << 63);
  return (size + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

bool is_zero_block(const char* block) noexcept;
/// True if the block's checksum matches the sum of its bytes as unsigned numbers, or (in old tars)
/// as signed numbers.
bool has_valid_checksum(const char* block) noexcept;

/// Parses a number field: octal with blanks or NULs around it (all blank is 0), or base-256.
/// Returns nothing if it is malformed or does not fit. Only base-256 can be negative.
std::optional<std::int64_t> parse_number(const char* field, std::size_t size) noexcept;

/// The 512-byte header block of an entry, read in place.
class Header {
 public:
  explicit Header(const char* block) noexcept : block_(block) {}

  char type() const noexcept { return block_[156]; }
  std::optional<std::int64_t> size() const noexcept { return parse_number(block_ + 124, 12); }
  /// True for POSIX ustar, the only dialect in which `prefix` contains a part of the name.
  bool is_ustar() const noexcept {
    return std::string_view(block_ + 257, 6) == std::string_view("ustar\0", 6);
  }
  bool is_gnu() const noexcept {
    return std::string_view(block_ + 257, 8) == std::string_view("ustar  \0", 8);
  }
  bool is_v7() const noexcept;
  /// True if an old GNU sparse map begins in this header and continues in the blocks after it.
  bool has_long_sparse_map() const noexcept {
    return is_gnu() && block_[386] != '\0' && block_[482] != '\0';
  }
  /// The name field up to its NUL.
  std::string_view short_name() const noexcept { return field(0, 100); }
  std::string_view prefix() const noexcept { return field(345, 155); }
  /// The link target's field up to its NUL; special headers may override it.
  std::string_view short_target() const noexcept { return field(157, 100); }
  /// True if the bytes after `prefix` are zero, as in ustar. star and Solaris store data there.
  bool tail_is_zero() const noexcept;
  /// Returns the name that this block alone gives; in ustar with the prefix.
  std::string name() const;

 private:
  std::string_view field(std::size_t offset, std::size_t size) const noexcept;

  const char* block_;
};

/// The type of an entry. For the first five types, all readers agree on the size of the data after
/// the header.
enum class EntryKind : std::uint8_t {
  kFile,
  kDirectory,
  kHardLink,
  kSymbolicLink,
  kSpecial,     ///< a device or FIFO
  kUnsupported  ///< sparse, continued from another volume, a label, or of unknown type
};

/// An entry as described by its raw headers, including the special headers before it.
struct RawEntry {
  std::uint64_t header_offset = 0;
  std::uint64_t data_offset = 0;
  std::uint64_t size = 0;  ///< from pax if given there, else from the header
  bool pax_size = false;   ///< `size` is from pax
  char type = '0';
  bool sparse = false;
  std::string name;    ///< from pax, else GNU long name, else the header
  std::string target;  ///< a link's target, from the same sources

  EntryKind kind() const noexcept;
};

/// Reads the special headers at `offset`, and their entry.
/// @return  the entry. If the headers are malformed, truncated or too large, returns nothing and
///   stores the reason in `why`.
std::optional<RawEntry> read_raw_entry(std::string_view archive, std::uint64_t offset,
                                       std::string* why);

}  // namespace shardwise::tar
