#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

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

}  // namespace shardwise::tools
