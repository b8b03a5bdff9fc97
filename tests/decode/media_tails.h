#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardwise::test {

/// Returns the four bytes of a number in little-endian order.
inline std::string little_endian(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> 8 * i);
  return bytes;
}

/// Returns tails that other programs append to files.
inline std::vector<std::string> tails() {
  const std::string id3v1 = "TAG" + std::string(125, '\0');
  const std::string item = little_endian(3) + little_endian(0) + std::string("Key\0\xFF\1\2", 7);
  const auto mark = [](std::size_t size, std::uint32_t flags) {
    return "APETAGEX" + little_endian(2000) + little_endian(static_cast<std::uint32_t>(size)) +
           little_endian(1) + little_endian(flags) + std::string(8, '\0');
  };
  const std::string ape = item + mark(item.size() + 32, 0);
  const std::string ape_with_header =
      mark(item.size() + 32, 0xA0000000) + item + mark(item.size() + 32, 0x80000000);
  const std::string lyrics =
      "LYRICSBEGININD0000200\xFF\xFE"
      "000022LYRICS200";
  return {"\n",
          "\r\n-- sent by a server --\r\n",
          std::string(3, '\0'),
          std::string(7, '\0'),
          std::string(5000, '\0'),
          id3v1,
          ape,
          ape_with_header,
          lyrics,
          lyrics + id3v1,
          ape + id3v1};
}

}  // namespace shardwise::test
