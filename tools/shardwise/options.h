#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardwise::tools {

/// The type of options that are sizes; help then also shows kSizeRule.
inline constexpr const char* kSizeType = "SIZE";
inline constexpr std::string_view kSizeRule =
    "A SIZE is a number of bytes, or a number with a unit: 512M and 512MiB are 512 x 1024 x 1024 "
    "bytes, 512MB is 512,000,000 bytes. The units are K, M, G, T, P and E.";

/// The help of --header, for every list that can have one.
inline constexpr const char* kHeaderHelp =
    "print the names of the columns (always printed on a terminal)";

/// The help of --access.
inline constexpr const char* kAccessHelp =
    "how shards are read; map maps them, without copies; read copies, so a truncated shard is an "
    "error, not a SIGBUS; range fetches single samples of remote shards, one request each";

/// Parses bytes: "512", "512M", "20GiB", "2TB". A unit of one letter, or with "iB", is a power of
/// 1,024; with "B" it is a power of 1,000. Case does not matter. Returns nullopt if `text` is
/// invalid or too large.
std::optional<std::uint64_t> parse_byte_size(std::string_view text);

/// Parses a time: "30s", "15m", "2h", "1d", "500ms", or "0". Returns nullopt if `text` is invalid
/// or too large.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// Adds an option that is a size, as parse_byte_size() reads it. `value` must live as long as
/// `command` does.
CLI::Option* add_byte_size(CLI::App& command, const std::string& name, std::uint64_t& value,
                           const std::string& text);

/// For options that are bytes: converts the text into the number. add_byte_size() uses it, and
/// names the type so that help explains sizes.
extern const CLI::Validator kByteSize;

/// For options that are whole numbers from 0 on. CLI11 alone would accept -1 as 2^64 - 1.
extern const CLI::Validator kWholeNumber;
/// For options that are whole numbers from 1 on.
extern const CLI::Validator kPositiveNumber;
/// For options that are numbers of threads: 0 to 1,024, the range of the library's Loader.
extern const CLI::Validator kNumThreads;

}  // namespace shardwise::tools
