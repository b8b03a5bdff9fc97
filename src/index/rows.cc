#include "index/rows.h"

#include <array>
#include <charconv>
#include <cstdio>

#include "base/bytes.h"
#include "base/hasher.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

[[noreturn]] void no_such_value(const char* what) {
  throw InvalidArgument(std::string("a cell holds no ") + what, "", "");
}

std::int64_t integer_of(const Cell& cell) {
  if (!cell.is_integer) no_such_value("number");
  return cell.integer;
}

const std::string& bytes_of(const Cell& cell) {
  if (cell.is_integer) no_such_value("text");
  return cell.bytes;
}

std::uint64_t parse_hash64(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || !is_hex(text) || error != std::errc() ||
      end != text.data() + text.size()) {
    no_such_value("hash");
  }
  return value;
}

constexpr std::array<std::string_view, 8> kLeftOutNames = {
    "damage", "no-field", "duplicate-field", "repeated-key", "link", "special", "meta", "no-value"};

}  // namespace

std::string_view left_out_name(Index::SkippedMember::Kind kind) noexcept {
  return kLeftOutNames[static_cast<std::size_t>(kind)];
}

Cell to_cell(std::int64_t value) { return {.is_integer = true, .integer = value}; }
Cell to_cell(std::uint64_t value) { return to_cell(static_cast<std::int64_t>(value)); }
Cell to_cell(bool value) { return to_cell(std::int64_t{value}); }
Cell to_cell(const std::string& value) { return {.bytes = value}; }
Cell to_cell(Compression value) { return {.bytes = std::string(compression_name(value))}; }
Cell to_cell(Index::SkippedMember::Kind value) {
  return {.bytes = std::string(left_out_name(value))};
}
Cell to_cell(const Hash128& value) { return {.bytes = to_string(value)}; }
Cell to_cell(const std::optional<Hash128>& value) {
  return {.bytes = value ? to_string(*value) : std::string()};
}

Cell hash_cell(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return {.bytes = text};
}

void from_cell(const Cell& cell, std::int64_t& value) { value = integer_of(cell); }

void from_cell(const Cell& cell, std::uint64_t& value) {
  if (integer_of(cell) < 0) no_such_value("count");
  value = static_cast<std::uint64_t>(cell.integer);
}

void from_cell(const Cell& cell, bool& value) {
  if (integer_of(cell) != 0 && cell.integer != 1) no_such_value("truth");
  value = cell.integer == 1;
}

void from_cell(const Cell& cell, std::string& value) { value = bytes_of(cell); }

void from_cell(const Cell& cell, Compression& value) { value = parse_compression(bytes_of(cell)); }

void from_cell(const Cell& cell, Index::SkippedMember::Kind& value) {
  const std::string& name = bytes_of(cell);
  for (std::size_t i = 0; i < kLeftOutNames.size(); ++i) {
    if (name != kLeftOutNames[i]) continue;
    value = static_cast<Index::SkippedMember::Kind>(i);
    return;
  }
  no_such_value("kind of what is left out");
}

void from_cell(const Cell& cell, Hash128& value) {
  const std::string_view text = bytes_of(cell);
  if (text.size() != 32) no_such_value("hash");
  value = {parse_hash64(text.substr(0, 16)), parse_hash64(text.substr(16))};
}

void from_cell(const Cell& cell, std::optional<Hash128>& value) {
  value.reset();
  if (!bytes_of(cell).empty()) from_cell(cell, value.emplace());
}

std::uint64_t hash_of_cell(const Cell& cell) { return parse_hash64(bytes_of(cell)); }

std::int64_t row_checksum(std::uint64_t number, std::span<const Cell> cells) {
  std::string bytes(8, '\0');
  store_le64(bytes.data(), number);
  pack(cells, bytes);
  return static_cast<std::int64_t>(hash64(bytes));
}

void pack(std::span<const Cell> cells, std::string& out) {
  for (const Cell& cell : cells) {
    char word[8];
    store_le64(word,
               cell.is_integer ? static_cast<std::uint64_t>(cell.integer) : cell.bytes.size());
    out.append(word, sizeof word);
    out += cell.bytes;
  }
}

std::optional<std::vector<Cell>> unpack(std::span<const Cell> like, std::string_view& bytes) {
  std::vector<Cell> cells;
  for (const Cell& kind : like) {
    if (bytes.size() < 8) return std::nullopt;
    const std::uint64_t word = load_le64(bytes.data());
    bytes.remove_prefix(8);
    if (kind.is_integer) {
      cells.push_back(to_cell(static_cast<std::int64_t>(word)));
      continue;
    }
    if (word > bytes.size()) return std::nullopt;
    cells.push_back({.bytes = std::string(bytes.substr(0, word))});
    bytes.remove_prefix(word);
  }
  return cells;
}

}  // namespace shardwise
