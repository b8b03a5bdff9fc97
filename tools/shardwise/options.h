#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace shardwise::tools {

/// For options that are whole numbers from 0 on. CLI11 alone would take -1 for 2^64 - 1.
inline const CLI::Validator kWholeNumber(
    [](const std::string& text) {
      std::uint64_t value = 0;
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, value);
      if (error == std::errc() && stop == end) return std::string();
      return "'" + text + "' is no whole number from 0 on";
    },
    "");

/// For options that are bytes: 512, 512M, 20G, 2TiB, in powers of 1,024. Turns the text into the
/// number.
inline const CLI::Validator kByteSize(
    [](std::string& text) {
      constexpr std::string_view kUnits = "KMGTPE";
      const std::string wrong = "'" + text + "' is no size: give bytes, or as 512M, 20G, 2T";
      std::uint64_t value = 0;
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, value);
      if (error != std::errc()) return wrong;
      std::string_view unit(stop, static_cast<std::size_t>(end - stop));
      unsigned shift = 0;
      if (!unit.empty() && unit != "B") {
        const auto place = kUnits.find(static_cast<char>(unit.front() & ~0x20));
        unit.remove_prefix(1);
        if (place == std::string_view::npos) return wrong;
        if (!unit.empty() && unit != "B" && unit != "iB") return wrong;
        shift = 10 * (static_cast<unsigned>(place) + 1);
      }
      if (value > std::numeric_limits<std::uint64_t>::max() >> shift) return wrong;
      text = std::to_string(value << shift);
      return std::string();
    },
    "", "bytes");

}  // namespace shardwise::tools
