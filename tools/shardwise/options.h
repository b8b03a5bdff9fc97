#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace shardwise::tools {

/// Throws wrong usage.
[[noreturn]] inline void throw_usage(const std::string& text) {
  throw CLI::ValidationError(text, CLI::ExitCodes::ValidationError);
}

/// Type name of options that are sizes. Help then also shows kSizeRule.
inline constexpr const char* kSizeType = "SIZE";
inline constexpr std::string_view kSizeRule =
    "A SIZE is a number of bytes, or a number with a unit: 512M and 512MiB are 512 x 1024 x 1024 "
    "bytes, 512MB is 512,000,000 bytes. The units are K, M, G, T, P and E.";

/// Help of --header, for commands that print lists.
inline constexpr const char* kHeaderHelp =
    "print the names of the columns (always printed on a terminal)";

/// Help of --access.
inline constexpr const char* kAccessHelp =
    "how shards are read; map maps shards, without copies; read copies, and reports truncated "
    "shards as errors, not as SIGBUS; range fetches each sample of a remote shard by a request";

/// Marks the options of a command that its short help, -h, shows. CLI11 has no field for such a
/// mark, so this uses CLI11's flag `configurable`. The flag is about config files, which no program
/// here reads.
void mark_common(CLI::App& command, std::initializer_list<const char*> names);
inline bool is_common(const CLI::Option& option) { return !option.get_configurable(); }

/// Parses a number of bytes: "512", "512M", "20GiB", "2TB", "32,768 bytes". A unit of one letter
/// or with "iB" is a power of 1,024; a unit with "B" is a power of 1,000. Ignores case. Returns
/// nullopt if `text` is invalid or too large.
std::optional<std::uint64_t> parse_byte_size(std::string_view text);

/// Parses a duration: "30s", "15m", "2h", "1d", "500ms", or "0". Returns nullopt if `text` is
/// invalid or too large.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// Adds an option for a size, parsed by parse_byte_size(). `value` must outlive `command`.
CLI::Option* add_byte_size(CLI::App& command, const std::string& name, std::uint64_t& value,
                           const std::string& text);

/// For options that are numbers of bytes: converts the text to a number. add_byte_size() uses it,
/// and sets the type by which help explains sizes.
extern const CLI::Validator kByteSize;

/// For options that are integers from 0 on, by transform(). CLI11 alone would accept -1 as
/// 2^64 - 1. Accepts thousands separators, which all commands print: 20,000.
extern const CLI::Validator kWholeNumber;
/// For options that are integers from 1 on.
extern const CLI::Validator kPositiveNumber;
/// For options that are numbers of threads: 0 to 1,024, as in the library's Loader.
extern const CLI::Validator kNumThreads;

/// Adds the options of commands that write shards: their limits, and the beginning of their names.
/// The values must outlive `command`.
void add_new_shard_options(CLI::App& command, std::uint64_t& max_samples, std::uint64_t& max_bytes,
                           std::string& prefix);

}  // namespace shardwise::tools
