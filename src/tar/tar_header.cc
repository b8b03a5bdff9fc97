#include "tar/tar_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"

namespace shardwise::tar {
namespace {

constexpr std::size_t kChecksumOffset = 148;
constexpr std::size_t kChecksumBytes = 8;

/// Sums the block's bytes as unsigned numbers, eight at a time. A 16-bit lane reaches at most 64 *
/// 510.
std::uint32_t unsigned_sum(const char* block) noexcept {
  constexpr std::uint64_t kLow = 0x00FF00FF00FF00FF;
  std::uint64_t lanes = 0;
  for (std::size_t i = 0; i < kBlockBytes; i += 8) {
    const std::uint64_t word = load_le64(block + i);
    lanes += (word & kLow) + ((word >> 8) & kLow);
  }
  return static_cast<std::uint32_t>((lanes & 0xFFFF) + ((lanes >> 16) & 0xFFFF) +
                                    ((lanes >> 32) & 0xFFFF) + (lanes >> 48));
}

std::int32_t signed_sum(const char* block) noexcept {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < kBlockBytes; ++i) sum += static_cast<signed char>(block[i]);
  return sum;
}

/// Sources of an entry's name or target, in ascending priority.
enum class From : std::uint8_t { kHeader, kGnu, kPax };

/// The properties of an entry that are known from the special headers read so far.
struct PartialEntry {
  RawEntry entry;
  From name = From::kHeader;
  From target = From::kHeader;
};

/// Calls `take(key, value)` for each pax record in `body`, until it returns false. Returns false in
/// that case. Returns false and sets `why` if a record is malformed.
template <class Take>
bool for_each_pax_record(std::string_view body, std::string* why, const Take& take) {
  while (!body.empty() && body[0] != '\0') {
    const std::size_t space = body.find(' ');
    const auto length =
        space == std::string_view::npos ? std::nullopt : parse_int64(body.substr(0, space));
    std::string_view record;
    if (length && *length > static_cast<std::int64_t>(space) + 1 &&
        static_cast<std::uint64_t>(*length) <= body.size()) {
      const auto end = static_cast<std::size_t>(*length);
      record = body.substr(space + 1, end - space - 1);
      body.remove_prefix(end);
    }
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos || record.back() != '\n') {
      *why = "a pax record is malformed";
      return false;
    }
    record.remove_suffix(1);
    if (!take(record.substr(0, equals), record.substr(equals + 1))) return false;
  }
  return true;
}

bool says_sparse(std::string_view key) {
  return key.starts_with("GNU.sparse.") || key == "SCHILY.realsize";
}

/// Reads the relevant pax records of `body`. Returns false and sets `why` if a record is malformed.
bool read_pax_records(std::string_view body, PartialEntry& partial, std::string* why) {
  RawEntry& entry = partial.entry;
  return for_each_pax_record(body, why, [&](std::string_view key, std::string_view value) {
    if (key == "size") {
      const auto size = parse_int64(value);
      if (!size || *size < 0) {
        *why = "a pax size is not a number";
        return false;
      }
      entry.size = static_cast<std::uint64_t>(*size);
      entry.pax_size = true;
    } else if (key == "path") {
      entry.name = value;
      partial.name = From::kPax;
    } else if (key == "linkpath") {
      entry.target = value;
      partial.target = From::kPax;
    } else if (says_sparse(key)) {
      entry.sparse = true;
    }
    return true;
  });
}

/// Checks a pax global header, which applies to all entries after it. Some readers apply it, but
/// libarchive does not. Returns false and sets `why` if applying it would change where members are,
/// or their names.
bool check_global_records(std::string_view body, std::string* why) {
  return for_each_pax_record(body, why, [&](std::string_view key, std::string_view) {
    if (key != "path" && key != "linkpath" && key != "size" && !says_sparse(key)) return true;
    *why = "a pax global header with " + in_quotes(key) +
           ", which only some readers apply to the members after it";
    return false;
  });
}

/// Returns false and sets `why` if readers interpret the entry differently. A slash at the end of a
/// file's name is an old notation for a directory. Readers disagree if such an entry has data, or
/// if only one of its two names ends with a slash. They also disagree on a sparse map in an entry
/// that is not sparse: only libarchive accepts it.
bool has_one_meaning(const PartialEntry& partial, const Header& header, std::string* why) {
  const RawEntry& entry = partial.entry;
  if (!entry.sparse && header.has_long_sparse_map()) {
    *why =
        "a sparse map follows the header of an entry that is not sparse, and only some readers "
        "take it for data";
    return false;
  }
  if (entry.sparse || (entry.type != '0' && entry.type != '\0' && entry.type != '7')) return true;
  if (entry.name.ends_with('/') && (entry.size != 0 || partial.name == From::kPax)) {
    *why = "a file of " + std::to_string(entry.size) + " bytes whose name, " +
           in_quotes(entry.name) + ", marks a directory";
    return false;
  }
  if (entry.type == '\0' && header.short_name().ends_with('/') && !entry.name.ends_with('/')) {
    *why = "a file, " + in_quotes(entry.name) + ", whose short name marks a directory";
    return false;
  }
  return true;
}

}  // namespace

bool is_zero_block(const char* block) noexcept {
  if (block[0] != 0) return false;
  static constexpr std::array<char, kBlockBytes> kZero{};
  return std::memcmp(block, kZero.data(), kBlockBytes) == 0;
}

bool has_valid_checksum(const char* block) noexcept {
  const char* field = block + kChecksumOffset;
  if (std::any_of(field, field + kChecksumBytes,
                  [](char c) { return c != ' ' && c != 0 && (c < '0' || c > '7'); })) {
    return false;
  }
  const auto stored = parse_number(block + kChecksumOffset, kChecksumBytes);
  if (!stored) return false;
  std::int64_t unsigned_field = 0;
  std::int64_t signed_field = 0;
  for (std::size_t i = 0; i < kChecksumBytes; ++i) {
    unsigned_field += static_cast<unsigned char>(block[kChecksumOffset + i]);
    signed_field += static_cast<signed char>(block[kChecksumOffset + i]);
  }
  constexpr std::int64_t kBlanks = ' ' * kChecksumBytes;
  if (unsigned_sum(block) - unsigned_field + kBlanks == *stored) return true;
  return signed_sum(block) - signed_field + kBlanks == *stored;
}

std::optional<std::int64_t> parse_number(const char* field, std::size_t size) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(field[i]); };
  if (byte(0) & 0x80) {  // base-256: two's complement, big-endian, without the marker bit
    std::uint64_t value = (byte(0) & 0x40) != 0 ? ~std::uint64_t{0} : 0;
    const bool negative = value != 0;
    value = (value << 7) | (byte(0) & 0x7F);
    for (std::size_t i = 1; i < size; ++i) {
      // The next shift drops these bits, so they must all equal the sign.
      const std::uint64_t top = value >> 55;
      if (top != (negative ? 0x1FF : 0)) return std::nullopt;
      value = (value << 8) | byte(i);
    }
    return static_cast<std::int64_t>(value);
  }
  std::size_t i = 0;
  while (i < size && (field[i] == ' ' || field[i] == '\0')) ++i;
  std::uint64_t value = 0;
  for (; i < size && field[i] >= '0' && field[i] <= '7'; ++i) {
    if (value >> 60 != 0) return std::nullopt;
    value = value << 3 | static_cast<std::uint64_t>(field[i] - '0');
  }
  if (i < size && field[i] != ' ' && field[i] != '\0') return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string_view Header::field(std::size_t offset, std::size_t size) const noexcept {
  const char* begin = block_ + offset;
  const void* nul = std::memchr(begin, 0, size);
  return {begin,
          nul == nullptr ? size : static_cast<std::size_t>(static_cast<const char*>(nul) - begin)};
}

bool Header::is_v7() const noexcept { return load_le64(block_ + 257) == 0; }

bool Header::tail_is_zero() const noexcept {
  return load_le64(block_ + 500) == 0 && load_le32(block_ + 508) == 0;
}

std::string Header::name() const {
  const std::string_view front = is_ustar() ? prefix() : std::string_view();
  if (front.empty()) return std::string(short_name());
  // The slash is added even if the prefix ends with a slash, as in POSIX, GNU tar and Python.
  // libarchive does not add it.
  return std::string(front).append("/").append(short_name());
}

EntryKind RawEntry::kind() const noexcept {
  if (sparse) return EntryKind::kUnsupported;
  switch (type) {
    case '0':
    case '\0':
    case '7':  // a contiguous file
      // A trailing slash is an old notation for a directory.
      return name.ends_with('/') ? EntryKind::kDirectory : EntryKind::kFile;
    case '1':
      return EntryKind::kHardLink;
    case '2':
      return EntryKind::kSymbolicLink;
    case '3':
    case '4':
    case '6':
      return EntryKind::kSpecial;
    case '5':
    case 'D':  // a GNU directory with a list of its entries
      return EntryKind::kDirectory;
    default:
      return EntryKind::kUnsupported;
  }
}

std::optional<RawEntry> read_raw_entry(std::string_view archive, std::uint64_t offset,
                                       std::string* why) {
  PartialEntry partial;
  RawEntry& entry = partial.entry;
  std::string seen;  // types of the special headers read so far
  const std::uint64_t end = offset + kMaxHeaderBytes;
  for (;;) {
    if (!range_fits(offset, kBlockBytes, archive.size())) {
      *why = "the archive ends within a header";
      return std::nullopt;
    }
    const char* block = archive.data() + offset;
    const Header header(block);
    if (is_zero_block(block)) {
      *why = "a special header has no entry after it";
      return std::nullopt;
    }
    if (!has_valid_checksum(block)) {
      *why = "the checksum of a header is wrong";
      return std::nullopt;
    }
    const auto size = header.size();
    if (!size || *size < 0) {
      *why = "a size field is negative or not a number";
      return std::nullopt;
    }
    const auto length = static_cast<std::uint64_t>(*size);
    const char type = header.type();
    const bool special = type == 'x' || type == 'X' || type == 'g' || type == 'L' || type == 'K';
    if (!special) {
      entry.header_offset = offset;
      entry.data_offset = offset + kBlockBytes;
      entry.type = type;
      if (type == 'S') entry.sparse = true;
      if (!entry.pax_size) entry.size = length;
      if (partial.name == From::kHeader) {
        if (!header.is_ustar() && !header.is_gnu() && !header.prefix().empty()) {
          *why = "a header is not a ustar header, but has bytes in ustar's prefix field";
          return std::nullopt;
        }
        entry.name = header.name();
      }
      if (partial.target == From::kHeader) entry.target = header.short_target();
      if (!has_one_meaning(partial, header, why)) return std::nullopt;
      return std::move(entry);
    }
    if (length > kMaxSpecialBytes) {
      *why = "a special header of " + human_bytes(length) + ", above the limit of 1 MiB";
      return std::nullopt;
    }
    const std::uint64_t next = offset + kBlockBytes + padded(length);
    if (next + kBlockBytes > end) {
      *why = "special headers of more than 4 MiB before an entry";
      return std::nullopt;
    }
    if (!range_fits(offset + kBlockBytes, padded(length), archive.size())) {
      *why = "the archive ends within a special header";
      return std::nullopt;
    }
    const std::string_view body(block + kBlockBytes, length);
    const std::string_view text = body.substr(0, body.find('\0'));
    if (type != 'g') {
      const char taken = type == 'X' ? 'x' : type;
      if (seen.find(taken) != std::string::npos) {
        *why = "an entry has two special headers of one type, of which readers use different ones";
        return std::nullopt;
      }
      seen += taken;
    }
    if (type == 'g') {
      if (!check_global_records(body, why)) return std::nullopt;
    } else if (type == 'x' || type == 'X') {
      if (!read_pax_records(body, partial, why)) return std::nullopt;
    } else if (type == 'L' && partial.name != From::kPax) {
      entry.name = text;
      partial.name = From::kGnu;
    } else if (type == 'K' && partial.target != From::kPax) {
      entry.target = text;
      partial.target = From::kGnu;
    }
    offset = next;
  }
}

}  // namespace shardwise::tar
