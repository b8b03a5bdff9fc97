#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardwise::wids_json {

/// Limits that bound the memory for a descriptor. They are far above any real data set.
inline constexpr std::size_t kMaxShards = 10'000'000;
inline constexpr std::size_t kMaxDatasets = 65'536;
inline constexpr std::size_t kMaxDepth = 64;
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;

struct Shard {
  std::string url;
  std::uint64_t num_samples = 0;
  std::optional<std::string> md5;
  std::optional<std::uint64_t> size_bytes;
};

struct Dataset {
  std::optional<std::string> name;
  std::optional<std::string> base;
  std::optional<std::string> source_url;
  std::optional<double> weight;
  std::optional<std::vector<Shard>> shards;
};

/// A parsed descriptor, each of whose values has been checked. References are not resolved yet.
struct Descriptor {
  Dataset own;
  std::optional<std::vector<Dataset>> datasets;
};

/// Parses a descriptor.
/// @param file  the descriptor's name for error texts.
/// Memory: proportional to the result only, whatever the text's nesting and repetitions.
/// Errors: InvalidArgument, VersionMismatch, as read_wids_descriptor().
Descriptor parse(std::string_view json, const std::string& file);

}  // namespace shardwise::wids_json
