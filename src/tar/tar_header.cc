#include "tar/tar_header.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "shardwise/base/bytes.h"
#include "shardwise/base/text.h"

namespace shardwise::tar {
namespace {

constexpr std::size_t kChecksumOffset = 148;
constexpr std::size_t kChecksumBytes = 8;

/// Sum of the block's bytes as unsigned, eight at a time: 16-bit lanes hold at most 64 * 510.
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

/// Takes the pax records that matter out of `body`. False if a record is malformed.
bool read_pax_records(std::string_view body, RawEntry* entry, bool* has_size, bool* has_path,
                      std::string* why) {
  while (!body.empty() && body[0] != '\0') {
    const std::size_t space = body.find(' ');
    const auto length =
        space == std::string_view::npos ? std::nullopt : parse_int64(body.substr(0, space));
    if (!length || *length <= static_cast<std::int64_t>(space) + 1 ||
        static_cast<std::uint64_t>(*length) > body.size()) {
      *why = "a malformed pax record";
      return false;
    }
    std::string_view record = body.substr(space + 1, static_cast<std::size_t>(*length) - space - 1);
    body.remove_prefix(static_cast<std::size_t>(*length));
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos || record.back() != '\n') {
      *why = "a malformed pax record";
      return false;
    }
    record.remove_suffix(1);
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "size") {
      const auto size = parse_int64(value);
      if (!size || *size < 0) {
        *why = "a pax size that is no number";
        return false;
      }
      entry->size = static_cast<std::uint64_t>(*size);
      *has_size = true;
    } else if (key == "path") {
      entry->name = value;
      *has_path = true;
    } else if (key.starts_with("GNU.sparse.") || key == "SCHILY.realsize") {
      entry->sparse = true;
    }
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
      const std::uint64_t top = value >> 55;  // must be all sign bits before another byte comes in
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
  std::string name(front);
  if (name.back() != '/') name += '/';
  return name.append(short_name());
}

std::optional<RawEntry> read_raw_entry(std::string_view archive, std::uint64_t offset,
                                       std::string* why) {
  RawEntry entry;
  bool has_pax_size = false;
  bool has_pax_path = false;
  bool has_long_name = false;
  for (;;) {
    if (!range_fits(offset, kBlockBytes, archive.size())) {
      *why = "the archive ends within a header";
      return std::nullopt;
    }
    const char* block = archive.data() + offset;
    const Header header(block);
    if (is_zero_block(block)) {
      *why = "a special header with no entry behind it";
      return std::nullopt;
    }
    if (!has_valid_checksum(block)) {
      *why = "a header whose checksum is wrong";
      return std::nullopt;
    }
    const auto size = header.size();
    if (!size || *size < 0) {
      *why = "a size field that is negative or no number";
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
      if (!has_pax_size) entry.size = length;
      if (!has_pax_path && !has_long_name) entry.name = header.name();
      return entry;
    }
    if (length > kMaxSpecialBytes) {
      *why = "a special header of " + human_bytes(length) + ", above the limit of 1 MiB";
      return std::nullopt;
    }
    if (!range_fits(offset + kBlockBytes, padded(length), archive.size())) {
      *why = "the archive ends within a special header";
      return std::nullopt;
    }
    const std::string_view body(block + kBlockBytes, length);
    if (type == 'x' || type == 'X') {
      if (!read_pax_records(body, &entry, &has_pax_size, &has_pax_path, why)) return std::nullopt;
    } else if (type == 'L' && !has_pax_path) {
      entry.name = body.substr(0, body.find('\0'));
      has_long_name = true;
    }
    offset += kBlockBytes + padded(length);
  }
}

}  // namespace shardwise::tar
