#include <algorithm>
#include <array>
#include <optional>

#include "base/expanding_reader.h"
#include "compressed_bytes.h"
#include "shardwise/base/error.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

constexpr std::array kCodecs = {Compression::kGzip, Compression::kZstd, Compression::kXz,
                                Compression::kBzip2, Compression::kLz4};
constexpr ExpansionLimits kLimits{.max_bytes = std::uint64_t{4} << 20,
                                  .max_window_bytes = std::uint64_t{8} << 20};

/// Expands bytes in pieces. Returns nothing if they were refused with a typed error.
std::optional<std::string> expand(std::string_view bytes, Compression compression,
                                  std::size_t piece_bytes) {
  std::string out;
  std::string piece(piece_bytes, '\0');
  try {
    ExpandingReader reader(bytes, compression, "x.tar.z", kLimits);
    while (const std::size_t n = reader.read(piece.data(), piece.size())) {
      out.append(piece, 0, n);
      SHARDWISE_FUZZ_REQUIRE(reader.position() == out.size());
      SHARDWISE_FUZZ_REQUIRE(out.size() <= kLimits.max_bytes);
      SHARDWISE_FUZZ_REQUIRE(reader.compressed_position() <= bytes.size());
    }
    SHARDWISE_FUZZ_REQUIRE(reader.compressed_position() == bytes.size());
  } catch (const Error&) {
    return std::nullopt;
  }
  return out;
}

/// Expands all bytes at once, like a compressed field.
std::optional<std::string> expand_at_once(std::string_view bytes, Compression compression) {
  try {
    const ExpandedBytes all = expand_all(bytes, compression, kLimits);
    SHARDWISE_FUZZ_REQUIRE(all.size <= kLimits.max_bytes);
    return std::string(all.bytes.get(), all.size);
  } catch (const ExpansionFailure&) {
    return std::nullopt;
  }
}

void expand_anything(std::string_view bytes) {
  const Compression detected = detect_compression(bytes);
  for (const Compression compression : kCodecs) {
    const auto whole = expand(bytes, compression, std::size_t{1} << 16);
    SHARDWISE_FUZZ_REQUIRE(expand_at_once(bytes, compression) == whole);
    // Detection does not see the codec after a long skippable frame.
    const bool is_guess = detected == Compression::kZstd && compression == Compression::kLz4;
    SHARDWISE_FUZZ_REQUIRE(!whole || whole->empty() || compression == detected || is_guess);
    if (whole && whole->size() < 4096) {
      SHARDWISE_FUZZ_REQUIRE(expand(bytes, compression, 1) == whole);
    }
  }
}

/// Expands two streams with known content after one change to their bytes.
void expand_changed(std::string_view choices) {
  static const std::string kFirst = [] {
    std::string text;
    for (unsigned i = 0; i < 150; ++i) text += std::to_string(i * 2654435761U) + " ";
    return text;
  }();
  static const std::string kSecond = std::string(3000, 'x') + kFirst;
  static const auto kStreams = [] {
    std::array<std::pair<std::string, std::string>, kCodecs.size()> streams;
    for (std::size_t i = 0; i < kCodecs.size(); ++i) {
      streams[i] = {compressed_bytes(kFirst, kCodecs[i]), compressed_bytes(kSecond, kCodecs[i])};
    }
    return streams;
  }();
  const auto choice = [&](std::size_t i) -> unsigned {
    return i < choices.size() ? static_cast<unsigned char>(choices[i]) : 0;
  };
  const std::size_t codec = choice(0) % kCodecs.size();
  const std::string& first = kStreams[codec].first;
  std::string bytes = first + kStreams[codec].second;
  const std::size_t at = (choice(2) << 8 | choice(3)) % bytes.size();
  const char value = static_cast<char>(choice(4));
  switch (choice(1) % 5) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (choice(4) % 8)));
      break;
    case 1:
      bytes[at] = value;
      break;
    case 2:
      bytes.insert(at, 1, value);
      break;
    case 3:
      bytes.erase(at, 1);
      break;
    default:
      // The first stream alone is a complete file, so it is not cut there.
      if (at != first.size()) bytes.resize(at);
      break;
  }
  const auto expanded = expand(bytes, kCodecs[codec], std::size_t{1} << 16);
  SHARDWISE_FUZZ_REQUIRE(!expanded || *expanded == kFirst + kSecond);
}

}  // namespace

void expand_target(std::string_view input) {
  if (input.empty()) return;
  if ((input[0] & 1) == 0) {
    expand_anything(input.substr(1));
  } else {
    expand_changed(input.substr(1));
  }
}

std::vector<std::string> expand_seeds() {
  const std::string text = "a stream's content, content, content";
  const std::string skippable("\x50\x2a\x4d\x18\4\0\0\0abcd", 12);
  std::vector<std::string> seeds;
  const auto add = [&](char control, const std::string& bytes) {
    seeds.push_back(control + bytes);
  };
  for (std::size_t i = 0; i < kCodecs.size(); ++i) {
    const std::string stream = compressed_bytes(text, kCodecs[i]);
    add('\0', stream);
    add('\0', stream + stream + std::string(20, '\0'));
    for (char change = 0; change < 5; ++change) {
      add('\1', {static_cast<char>(i), change, '\0', '\x60', '\x11'});
    }
  }
  for (const Compression compression : {Compression::kZstd, Compression::kXz, Compression::kLz4}) {
    add('\0', compressed_bytes(text, compression, false));
  }
  for (const Compression compression : {Compression::kZstd, Compression::kLz4}) {
    add('\0', skippable + compressed_bytes(text, compression) + skippable);
  }
  return seeds;
}

}  // namespace shardwise::fuzz
